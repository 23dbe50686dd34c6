"""``deepspeed``, which starts ranks on the hosts of a hostfile.

Source: DeepSpeed, deepspeed/launcher/runner.py, ``parse_args``
(https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("deepspeed", "ds", "deepspeed.pt")
MODULES = ("deepspeed.launcher.runner", "deepspeed")
DEFAULT_HOSTFILE = "/job/hostfile"

_TABLE = option_table(
    """
    H/hostfile i/include e/exclude num-nodes min-elastic-nodes max-elastic-nodes num-gpus num-accelerators/num-gpus
    master-port master-addr node-rank launcher launcher-args enable-each-rank-log autotuning comment account
    bind-core-list ssh-port venv-script
    """,
    """
    h/help module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid elastic-training bind-cores-to-rank
    """,
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, _TABLE)
    nodes = _positive(options.text("num-nodes"))
    include = options.text("include")
    hosts = tuple(dict.fromkeys(part.partition(":")[0] for part in include.split("@") if part))
    if nodes is None and hosts and "localhost" not in hosts:
        nodes = len(hosts)
    if nodes is None and "num-nodes" not in options.unresolved:
        options.unresolved["num-nodes"] = f"from the hostfile, {options.text('hostfile') or DEFAULT_HOSTFILE}"
    call = LaunchCall(
        launcher="deepspeed",
        command=command,
        nodes=nodes,
        max_nodes=nodes,
        ranks_per_node=_positive(options.text("num-gpus")) or _slots(include),
        node_rank=options.number("node-rank"),
        master_addr=options.text("master-addr"),
        master_port=options.number("master-port", most=65535),
        hosts=hosts,
        hostfile=options.text("hostfile"),
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    return Started(call, options.rest, "no-python" not in options, "module" in options)


def _positive(text: str) -> int | None:
    """Also -1, the default, is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 and int(text) else None


def _slots(include: str) -> int | None:
    """As many as ``host:0,1,2`` names, where all hosts have as many."""
    counts = {len(part.partition(":")[2].split(",")) for part in include.split("@") if ":" in part}
    return counts.pop() if len(counts) == 1 and all(":" in part for part in include.split("@") if part) else None
