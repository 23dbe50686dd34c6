"""``srun``, and ``salloc`` or ``sbatch --wrap`` for their options.

Source: Slurm, srun(1) (https://slurm.schedmd.com/srun.html) and src/common/slurm_opt.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started, host_list
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import Options, option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("srun", "salloc")

TABLE = option_table(
    """
    A/account acctg-freq accel-bind bb bbf b/begin D/chdir cluster-constraint M/clusters comment C/constraint container
    container-id S/core-spec cores-per-socket cpu-bind cpu-freq cpus-per-gpu c/cpus-per-task deadline delay-boot
    d/dependency m/distribution epilog e/error x/exclude export B/extra-node-info gid gpu-bind gpu-freq G/gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group hint i/input J/job-name jobid L/licenses
    mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus mpi msg-timeout network F/nodefile
    w/nodelist N/nodes n/ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node tasks-per-node/ntasks-per-node
    ntasks-per-socket open-mode o/output p/partition power prefer priority profile prolog q/qos r/relative reservation
    signal slurmd-debug sockets-per-node switches task-epilog task-prolog thread-spec T/threads threads-per-core t/time
    time-min tmp tres-bind tres-per-task uid W/wait wckey container-image container-mounts container-name
    container-workdir container-env container-save container-remap-root container-entrypoint wrap array a/array
    ntasks-per-board export-file get-user-env gpu-cmode treewidth oom-kill-step segment
    """,
    """
    bcast bcast-exclude compress contiguous X/disable-status exact exclusive external-launcher h/help H/hold
    I/immediate interactive K/kill-on-bad-exit l/label Z/no-allocate k/no-kill O/overcommit overlap s/oversubscribe
    E/preserve-env propagate pty Q/quiet quit-on-interrupt reboot resv-ports send-libs spread-job test-only
    u/unbuffered usage use-min-nodes v/verbose V/version whole x11 nice multi-prog no-container-mount-home
    container-mount-home container-readonly container-writable no-container-entrypoint no-container-remap-root
    parsable requeue no-requeue ignore-pbs no-bell bell debugger-test no-shell
    """,
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, TABLE)
    least, most = node_range(options)
    exported, passed, inherits = _exports(options)
    ranks, per_node = options.number("ntasks", least=1), options.number("ntasks-per-node", least=1, most=65536)
    if (
        least is not None
        and least == most
        and ranks is None
        and per_node is None
        and options.is_complete
        and not _limits(options, environ)
    ):
        per_node = 1
    if "multi-prog" in options:
        options.unresolved["program"] = "the configuration of --multi-prog names the programs"
    call = LaunchCall(
        launcher="srun",
        command=command,
        nodes=least,
        max_nodes=most,
        ranks=ranks,
        ranks_per_node=per_node,
        hosts=host_list(options.text("nodelist")) if "/" not in options.text("nodelist") else (),
        hostfile=options.text("nodefile"),
        environ=exported,
        passed=passed,
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    rest = () if "multi-prog" in options else options.rest
    return Started(call, rest, inherits_environment=inherits)


def node_range(options: Options) -> tuple[int | None, int | None]:
    """``-N 4`` and ``-N 2-4``; both None where it is not given."""
    text = options.text("nodes")
    if not text:
        return None, None
    match = re.fullmatch(r"([0-9]{1,7})(?:-([0-9]{1,7}))?", text, re.ASCII)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < least <= most:
        options.refuse(["nodes"], "a number of hosts, or the least and the most: 2-4")
        return None, None
    return least, most


def _limits(options: Options, environ: Mapping[str, str]) -> bool:
    """Whether the allocation, and not the line, says how many tasks there are."""
    return any(name in environ for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS")) or bool(
        {"ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task", "ntasks"} & options.by_name.keys()
        or {"ntasks", "ntasks-per-node"} & options.unresolved.keys()
    )


def _exports(options: Options) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """``--export=ALL,A=b,C``: variables, names that are passed, and whether all others are."""
    text = options.text("export")
    if not text:
        return {}, (), True
    exported: dict[str, str] = {}
    passed: list[str] = []
    inherits = False
    for entry in text.split(","):
        name, equals, value = entry.partition("=")
        if equals:
            exported[name] = value
        elif entry.upper() in ("ALL", "NONE", "NIL"):
            inherits |= entry.upper() == "ALL"
        elif entry:
            passed.append(entry)
    return exported, tuple(passed), inherits
