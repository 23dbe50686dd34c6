from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.versions import NpuVersions

CAUSES = {"firmware-mismatch": ("observed",)}
ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST, follows_from=CAUSES)
def firmware_version_differs(versions: PerHost[NpuVersions]) -> Iterator[Finding]:
    """All hosts have the same version of the NPU firmware.

    ## Why it matters
    Firmware decides how an NPU trains its links, reports faults and throttles. A host with another version is slower,
    or fails in a way that no other host does.

    ## What to do
    Install firmware {expected} on {host}: `./Ascend-hdk-<chip>-npu-firmware_{expected}.run --full`, and
    restart the host.

    ## Source
    `Version` in /usr/local/Ascend/firmware/version.info; hosts are compared with each other.
    """
    values = {host: host_versions.firmware for host, host_versions in versions.items() if host_versions.firmware}
    yield from differing(values, "NPU firmware {observed}; {count} of {total} hosts have {expected}")
