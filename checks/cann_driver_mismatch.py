from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import driver_row, judge_driver
from doctor.facts.versions import CannVersion, NpuVersions

CAUSES = {"driver-version-differs": ("driver=observed",)}


@check(severity=WARNING, area="versions", follows_from=CAUSES)
def cann_driver_mismatch(versions: NpuVersions, cann: CannVersion) -> Iterator[Finding]:
    """The NPU driver is one that the vendor lists for the installed CANN.

    ## Why it matters
    CANN calls functions that an older driver does not have: the first operator or the first collective fails, often
    with an inner error (`EE9999`) that names neither of the two.

    ## What to do
    On {host}, while no job runs, install driver and firmware of Ascend HDK {expected} or newer: in the folder with its
    two files `./Ascend-hdk-*-npu-driver_*_linux-$(uname -m | tr _ -).run --full`, then
    `./Ascend-hdk-*-npu-firmware_*.run --full`, then `reboot`. Or install for the job a CANN that belongs to driver
    {driver}.

    ## Source
    The matrix of CANN and drivers in the release notes of CANN (gitcode.com/cann/release-management), and for CANN
    before 8.5 the compatibility pages of hiascend.com: doctor/engine/cann_driver_matrix.toml and cann_drivers.toml. A
    driver that is newer than all of a table, and a CANN that none holds, are unknown, not wrong.
    """
    row = driver_row(cann.version)
    if row is None:
        raise Unreadable(filled("the vendor's tables do not hold CANN {0}", cann.version))
    try:
        verdict = judge_driver(row, versions.driver)
    except ValueError:
        raise Unreadable(filled("driver {0}: expected a version of two numbers or more", versions.driver)) from None
    if verdict == "unlisted":
        raise Unreadable(
            filled("the vendor's table for CANN {0} does not hold driver {1}", cann.version, versions.driver)
        )
    if verdict != "works":
        yield Finding(
            "driver {driver} with CANN {cann}; the vendor lists it with driver {expected} and newer",
            driver=versions.driver,
            cann=cann.version,
            path=cann.path,
            expected=row.works[0],
        )
