"""``colossalai run``, which starts torchrun on the hosts of a list over SSH.

Source: ColossalAI, colossalai/cli/launcher (https://github.com/hpcaitech/ColossalAI/tree/main/colossalai/cli/launcher).
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started, host_list
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("colossalai",)
SUBCOMMANDS = {"colossalai": ("run",)}

_TABLE = option_table(
    """
    H/host host hostfile include exclude num-nodes nproc-per-node master-port master-addr extra-launch-args ssh-port
    """,
    "m/module help",
    abbreviates=False,
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, _TABLE)
    hosts = tuple(dict.fromkeys(host_list(options.text("host"))))
    nodes = options.number("num-nodes", least=1) if options.text("num-nodes") not in ("", "-1") else None
    if nodes is None and not {"hostfile", "host", "num-nodes"} & {*options.by_name, *options.unresolved}:
        nodes = 1
    elif nodes is None and hosts:
        nodes = len(hosts)
    elif nodes is None:
        options.unresolved.setdefault("num-nodes", f"from the hostfile, {options.text('hostfile') or 'not known'}")
    per_node = options.number("nproc-per-node", least=1, most=65536)
    call = LaunchCall(
        launcher="colossalai",
        command=command,
        nodes=nodes,
        max_nodes=nodes,
        ranks_per_node=per_node,
        master_addr=options.text("master-addr"),
        master_port=options.number("master-port", most=65535),
        hosts=hosts,
        hostfile=options.text("hostfile"),
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    return Started(call, options.rest, runs_python=True, is_module="module" in options)
