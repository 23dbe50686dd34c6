from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import agreed_value
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import in_version_range
from doctor.facts.npu import NpuProduct
from doctor.facts.versions import NpuVersions

ADVISORY = ("product", "fleet")


@check(severity=ERROR, area="versions", advisory=ADVISORY)
def firmware_mismatch(
    versions: NpuVersions, product: NpuProduct | None, fleet: PerHost[NpuVersions] | None
) -> Iterator[Finding]:
    """The firmware version is in the range that the NPU driver supports.

    ## Why it matters
    Driver and firmware use a private protocol. Outside the range that the driver names, NPUs fail to start, or answer
    wrongly.

    ## What to do
    On {host}, while no job runs, install the firmware of the same release as driver {driver}:
    `./Ascend-hdk-{package}-npu-firmware_{version}.run --full`, then `reboot`. `npu-smi info -t board -i 0` shows
    `Compatibility : OK` afterwards.

    ## Source
    `compatible_version_fw=[first,last]` in /usr/local/Ascend/driver/version.info, against `Version` in
    /usr/local/Ascend/firmware/version.info (public source of the driver package). Names of the packages: hiascend.com,
    Index SDK 7.3.0, "Installing the NPU Driver, Firmware, and CANN".
    """
    if versions.firmware is None:
        raise Skip("the host has no firmware file")
    if not versions.firmware_ranges:
        raise Skip("this driver states no firmware range")
    firmware, ranges = versions.firmware, versions.firmware_ranges
    try:
        fits = any(in_version_range(firmware, first, last) for first, last in ranges)
    except ValueError:
        raise Unreadable(
            filled("firmware {0} cannot be compared with the driver's range {1}", firmware, ranges[0])
        ) from None
    if not fits:
        alike = [other.firmware for other in (fleet or {}).values() if other.driver == versions.driver]
        yield Finding(
            "driver {driver} does not support firmware {observed}; expected {expected}",
            driver=versions.driver,
            package=product.package if product else None,
            version=agreed_value(text for text in alike if text and text != firmware),
            observed=firmware,
            expected=[filled("{0} to {1}", first, last) for first, last in ranges],
        )
