import shlex
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.analysis.majority import differing
from doctor.facts.python_env import PythonEnv

ABSENT, UNDECIDED = "not installed", "<version>"
ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="versions", single_host=ONE_HOST)
def torch_version_differs(python: PerHost[PythonEnv]) -> Iterator[Finding]:
    """All hosts have the same versions of torch, torch_npu and MindSpore.

    ## Why it matters
    Ranks of different versions disagree on the wire: a rendezvous that fails, collectives in another order, or a
    checkpoint that one host cannot load.

    ## What to do
    On {host}, with the job's interpreter in the place of python3: `{pip}`. A version with a suffix such
    as +cpu is on the index that the other hosts have it from: `--index-url`. Name the interpreter with --python when
    the job has one of its own.

    ## Source
    The installed distributions of the job's interpreter; the hosts are compared with each other, and the majority is
    the norm.
    """
    names = [
        n
        for n in ("torch", "torch_npu", "mindspore")
        if any(n in host_python.packages for host_python in python.values())
    ]
    if not names:
        raise Skip("neither torch nor MindSpore is installed for the job's interpreter; --python names another")
    for name in names:
        # Of a package installed in several versions, the one in use is unknown: so is its host, not different.
        versions = {
            host: host_python.packages.get(name, ABSENT)
            for host, host_python in python.items()
            if name not in host_python.unread
        }
        for finding in differing(
            versions, "{package} {observed}; {count} of {total} hosts have {expected}", package=name
        ):
            finding.values["pip"] = _pip_command(name, finding.values.get("expected", UNDECIDED))
            yield finding


def _pip_command(package: str, version: str) -> str:
    """The whole command; a host has named the version.

    >>> _pip_command("torch", "2.7.1"), _pip_command("mindspore", ABSENT)
    ('python3 -m pip install torch==2.7.1', 'python3 -m pip uninstall mindspore')
    """
    if version == ABSENT:
        return f"python3 -m pip uninstall {package}"
    return f"python3 -m pip install {package}=={(version if version == UNDECIDED else shlex.quote(version))}"
