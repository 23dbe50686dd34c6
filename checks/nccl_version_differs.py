from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.pip_commands import UNDECIDED, install_command
from doctor.facts.python_env import PythonEnv

SAME_IMAGE = "libnccl belongs to NVIDIA's container: start the same image as on the other hosts."
ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="versions", single_host=ONE_HOST)
def nccl_version_differs(python: PerHost[PythonEnv]) -> Iterator[Finding]:
    """All hosts have the same version of NCCL.

    ## Why it matters
    NCCL refuses to start with ranks of another version: `Mismatched NCCL version detected` (ncclInvalidUsage).

    ## What to do
    On {host}: {remedy}

    ## Source
    NCCL, src/init.cc, which compares the versions of all ranks. The version is that of the package nvidia-nccl for the
    job's interpreter, or with a torch of NVIDIA's containers that of libnccl in the library folders; one that is built
    into torch, or set by LD_PRELOAD, is not read.
    """
    found = {host: own.nccl for host, own in python.items() if own.nccl}
    if found:
        versions = {host: version for host, (_, version) in found.items()}
        package = next(name for name, _ in found.values())
        template = "NCCL {observed}; {count} of {total} hosts have {expected}"
        for finding in differing(versions, template, package=package.replace("_", "-")):
            path, version = python[finding.hosts[0]].typed, finding.values.get("expected", UNDECIDED)
            command = f"`{install_command(path, finding.values['package'], version)}`."
            finding.values["remedy"] = SAME_IMAGE if package == "libnccl" else command
            yield finding
