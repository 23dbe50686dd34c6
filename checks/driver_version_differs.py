from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.npu import NpuProduct
from doctor.facts.versions import NpuVersions, package_values

ADVISORY = ("products",)
ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST, advisory=ADVISORY)
def driver_version_differs(versions: PerHost[NpuVersions], products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """All hosts have the same version of the NPU driver.

    ## Why it matters
    HCCL, the runtime and the tools behave differently from version to version. One host refuses a setting that all the
    others take, or is slower, and the rest wait for it.

    ## What to do
    It can wait until no job runs. On {host}: `./Ascend-hdk-{package}-npu-driver_{expected}_linux-$(uname -m | tr _
    -).run --full`, then the firmware of the same release, then `reboot`. {change}

    ## Source
    `Version` in /usr/local/Ascend/driver/version.info; hosts are compared with each other. Names of the packages:
    hiascend.com, Index SDK 7.3.0, "Installing the NPU Driver, Firmware, and CANN".
    """
    values = {host: host_versions.driver for host, host_versions in versions.items()}
    for finding in differing(values, "NPU driver {observed}; {count} of {total} hosts have {expected}"):
        finding.values.update(package_values(finding, products))
        yield finding
