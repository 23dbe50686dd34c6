from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.version_matrix import in_version_range
from doctor.facts.versions import NpuVersions


@check(severity=ERROR, area="versions")
def firmware_mismatch(versions: NpuVersions) -> Iterator[Finding]:
    """The firmware version is in the range that the NPU driver supports.

    ## Why it matters
    Driver and firmware use a private protocol. Outside the range that the driver names, NPUs fail to start, or answer
    wrongly.

    ## What to do
    Install the firmware of the same release as driver {driver} on {host},
    `./Ascend-hdk-<chip>-npu-firmware_<version>.run --full`, and restart the host. `npu-smi info -t board -i 0` shows
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
        yield Finding(
            "driver {driver} does not support firmware {observed}; expected {expected}",
            driver=versions.driver,
            observed=firmware,
            expected=[filled("{0} to {1}", first, last) for first, last in ranges],
        )
