import shlex
from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check, filled
from doctor.facts.python_env import PythonEnv
from doctor.facts.versions import CannVersion
from doctor.job import LaunchConfig
from doctor.job.variable_versions import VariableNotRead, not_read


@check(severity=WARNING, area="ranks")
def launch_variable_not_read(
    python: PerHost[PythonEnv], cann: PerHost[CannVersion] | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """The installed versions of NCCL, PyTorch, torch_npu and HCCL read the variables of the job.

    ## Why it matters
    A library ignores a variable of a newer or an older version without a word: the job runs with the default. A setting
    that was copied from another cluster, and that is to keep NCCL off a broken path, then has no effect.

    ## What to do
    In the job's script: `unset {variable}`{instead}. Or install a version of {library} that reads it.

    ## Source
    NCCL, the source of each release: the first that reads a name, and the first that does not any more; "Environment
    Variables" of its documentation. PyTorch, pull request 114077: torch 2.2 and later read TORCH_NCCL_BLOCKING_WAIT and
    its like, older ones NCCL_BLOCKING_WAIT. torch_npu, the source of each release: 26.1.0 is the first to read
    TORCH_HCCL_BLOCKING_WAIT, older ones read HCCL_BLOCKING_WAIT. HCCL, its source from CANN 8.5.0 on.

    The version of NCCL is that of the package nvidia-nccl, or with a torch of NVIDIA's containers that of libnccl in
    the library folders; one that is built into torch or set by LD_PRELOAD is not known, and then this verdict can be
    wrong.
    """
    hosts_by_variable: dict[tuple[VariableNotRead, str], list[str]] = defaultdict(list)
    judged = False
    for host, packages in python.items():
        nccl = packages.nccl[1] if packages.nccl else ""
        torch = packages.packages.get("torch", "")
        npu = packages.packages.get("torch_npu", "")
        toolkit = cann[host].version if cann and host in cann else ""
        judged = judged or bool(nccl or torch or npu or toolkit)
        installed = {"NCCL": nccl, "PyTorch": torch, "torch_npu": npu, "HCCL": toolkit}
        for row in not_read(launch.environ_of(host), nccl, torch, npu, toolkit):
            hosts_by_variable[row, installed[row.library]].append(host)
    if not judged:
        raise Skip("no version of NCCL, PyTorch, torch_npu or CANN is known")
    for (row, version), hosts in sorted(hosts_by_variable.items()):
        expected = (
            filled("{0} {1} or later", row.library, row.since)
            if row.since
            else filled("{0} before {1}", row.library, row.until)
        )
        same = row.since and launch.environ_of(hosts[0]).get(row.variable)
        value = shlex.quote(same) if same else "<value>"
        yield Finding(
            "{library} {installed} does not read {variable}",
            hosts=hosts,
            variable=row.variable,
            library=row.library,
            installed=version,
            replacement=row.replacement,
            instead=filled(", and `export {0}={1}`, which {2} reads", row.replacement, value, version)
            if row.replacement
            else "",
            observed=f"{row.library} {version}",
            expected=expected,
        )
