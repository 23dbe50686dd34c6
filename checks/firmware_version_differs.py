from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.npu import NpuProduct
from doctor.facts.versions import NpuVersions, package_values

ADVISORY = ("products",)
CAUSES = {"firmware-mismatch": ("observed",)}
ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST, follows_from=CAUSES, advisory=ADVISORY)
def firmware_version_differs(versions: PerHost[NpuVersions], products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """All hosts have the same version of the NPU firmware.

    ## Why it matters
    Firmware decides how an NPU trains its links, reports faults and throttles. A host with another version is slower,
    or fails in a way that no other host does.

    ## What to do
    It can wait until no job runs. On {host}: `./Ascend-hdk-{package}-npu-firmware_{expected}.run --full`, then
    `reboot`. {change}

    ## Source
    `Version` in /usr/local/Ascend/firmware/version.info; hosts are compared with each other.
    """
    values = {host: host_versions.firmware for host, host_versions in versions.items() if host_versions.firmware}
    for finding in differing(values, "NPU firmware {observed}; {count} of {total} hosts have {expected}"):
        finding.values.update(package_values(finding, products))
        yield finding
