"""torchrun, ``python -m torch.distributed.run`` and ``torch.distributed.launch``.

Source: PyTorch, torch/distributed/run.py, ``get_args_parser``, with the defaults of its variables ``PET_NAME``
(https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py, torch/distributed/argparse_util.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from doctor.job.launch_line.launcher import Started
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import Options, option_table, split_options
from doctor.job.shell.word import Word

NAMES = ("torchrun",)
MODULES = ("torch.distributed.run", "torch.distributed.launch", "torch_npu.distributed.run")

_TABLE = option_table(
    """
    nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval start-method
    event-log-handler role log-dir r/redirects t/tee local-ranks-filter duplicate-stdout-filters
    duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs numa-binding signals-to-handle
    shutdown-timeout
    """,
    "h/help standalone m/module no-python run-path use-env virtual-local-rank enable-tiered-rendezvous",
)


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `doctor.job.launch_line.launcher.ReadCall`."""
    options = split_options(command, argv, _TABLE)
    _add_defaults(options, environ)
    least, most = _nodes(options)
    per_node, by_devices = _ranks_per_node(options)
    call = LaunchCall(
        launcher="torchrun",
        command=command,
        nodes=least,
        max_nodes=most,
        ranks_per_node=per_node,
        ranks_by_devices=by_devices,
        node_rank=options.number("node-rank"),
        master_addr=options.text("master-addr"),
        master_port=options.number("master-port", most=65535),
        rdzv_backend=options.text("rdzv-backend"),
        rdzv_endpoint=options.text("rdzv-endpoint"),
        standalone="standalone" in options,
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
    )
    is_module = "module" in options
    return Started(call, options.rest, "no-python" not in options, is_module)


def _add_defaults(options: Options, environ: Mapping[str, str]) -> None:
    """What is not in the line comes from variables: ``PET_NNODES`` and so on."""
    for name in sorted(_TABLE.values):
        value = environ.get("PET_" + name.upper().replace("-", "_"), "")
        if value and name not in options:
            options.by_name[name] = [(Word(value),)]


def _nodes(options: Options) -> tuple[int | None, int | None]:
    if "standalone" in options:
        return 1, 1
    text = options.text("nnodes")
    if not text:
        return (None, None) if "nnodes" in options.unresolved or not options.is_complete else (1, 1)
    parts = text.split(":")
    if len(parts) > 2 or not all(part.isascii() and part.isdecimal() and len(part) < 8 for part in parts):
        options.refuse(["nnodes"], "a number of hosts, or the least and the most: 2:4")
        return None, None
    least, most = int(parts[0]), int(parts[-1])
    if not 0 < least <= most:
        options.refuse(["nnodes"], "a number of hosts, or the least and the most: 2:4")
        return None, None
    return least, most


def _ranks_per_node(options: Options) -> tuple[int | None, str]:
    text = options.text("nproc-per-node")
    if not text:
        return (None, "") if "nproc-per-node" in options.unresolved or not options.is_complete else (1, "")
    if text in ("gpu", "auto", "cpu", "xpu", "npu"):
        return None, text
    return options.number("nproc-per-node", least=1, most=65536), ""
