"""``msrun`` of MindSpore.

Source: MindSpore, "msrun Launching" (https://www.mindspore.cn/tutorials/en/stable/parallel/msrun_launcher.html) and
mindspore/python/mindspore/parallel/cluster/run.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("msrun",)
MODULES = ("mindspore.parallel.cluster.run",)
_DEFAULT_RANKS = 8

_TABLE = option_table(
    """
    worker-num local-worker-num master-addr master-port node-rank log-dir join cluster-time-out bind-core sim-level
    sim-rank-id rank-table-file worker-log-name tail-worker-log
    """,
    "h/help m/module",
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, _TABLE)
    ranks = options.number("worker-num", least=1)
    local = options.number("local-worker-num", least=1, most=65536)
    if ranks is None and "worker-num" not in options and options.is_complete:
        ranks = _DEFAULT_RANKS
    if local is None and "local-worker-num" not in options and options.is_complete:
        local = _DEFAULT_RANKS
    exact = ranks is not None and local is not None and ranks % local == 0
    nodes = ranks // local if exact and ranks and local else None
    if ranks and local and not exact:
        options.unresolved["nodes"] = f"--worker_num {ranks} is no multiple of --local_worker_num {local}"
    call = LaunchCall(
        launcher="msrun",
        command=command,
        nodes=nodes,
        max_nodes=nodes,
        ranks=ranks,
        ranks_per_node=local,
        node_rank=options.number("node-rank"),
        master_addr=options.text("master-addr"),
        master_port=options.number("master-port", least=1024, most=65535),
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    return Started(call, options.rest, runs_python=True)
