from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.versions import CannVersion

ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="versions", single_host=ONE_HOST)
def cann_version_differs(cann: PerHost[CannVersion]) -> Iterator[Finding]:
    """All hosts run the job with the same version of CANN.

    ## Why it matters
    HCCL compares versions while it builds a group, and refuses a mixed one (EI0008); versions that it lets through
    may choose different algorithms for one collective, and hang.

    ## What to do
    Install CANN {expected} on {host}: `./Ascend-cann-toolkit_{expected}_linux-$(uname -m).run --install`, or make
    `latest` and the job's environment point to it. Where the job runs in a container, name it with --within.

    ## Source
    HCCL error EI0008 (public source of HCCL). `version` in the install.info of the toolkit or nnae that the job's
    environment names, else that `latest` points to; the majority is the norm. Names of the packages: hiascend.com,
    Index SDK 7.3.0, "Installing the NPU Driver, Firmware, and CANN": from CANN 8.5.0 on, the operators are a package of
    their own.
    """
    values = {host: host_cann.version for host, host_cann in cann.items()}
    yield from differing(values, "CANN {observed}; {count} of {total} hosts have {expected}")
