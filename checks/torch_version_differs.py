from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.analysis.majority import differing
from doctor.facts.pip_commands import UNDECIDED, install_command
from doctor.facts.python_env import PythonEnv
from doctor.job import LaunchConfig

ABSENT = "not installed"
OTHER_PYTHON = "Where the job has another interpreter, name it with --python."
ONE_HOST = "only one host: nothing to compare"


@check(severity=ERROR, area="versions", single_host=ONE_HOST)
def torch_version_differs(python: PerHost[PythonEnv], launch: LaunchConfig | None) -> Iterator[Finding]:
    """All hosts have the same versions of torch, torch_npu and MindSpore.

    ## Why it matters
    A rank without the package ends at its import. Ranks of different versions fail to find each other, call collectives
    in another order, or cannot load each other's checkpoints.

    ## What to do
    On {host}: `{pip}`. {python}

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
            path, target = python[finding.hosts[0]].typed, finding.values.get("expected", UNDECIDED)
            pip = install_command(path, name, target)
            finding.values["pip"] = (
                pip.replace(" install ", " uninstall ").partition("==")[0] if target == ABSENT else pip
            )
            finding.values["python"] = "" if launch and launch.python else OTHER_PYTHON
            finding.values["pair"] = "torch" if name != "mindspore" and target != UNDECIDED else ""
            yield finding
