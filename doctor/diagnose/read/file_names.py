"""What the name of a log file shows: rank, device, host, process id.

Sources of the names: MindSpore's msrun (``worker_3.log``, ``scheduler.log``), torchrun ``--log-dir``
(``attempt_0/3/stderr.log``), CANN (``plog-PID_TIME.log``, ``device-3/``), Slurm (``slurm-77_3.out``, ``%t``), and
what people write (``rank_3.log``, ``node003/train.log``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

import msgspec

_RANK = re.compile(r"(?:^|[/._!-])(?:worker_|rank[_-]?|proc[_-]?|task[_-]?|r)(\d{1,6})(?=[._/!-]|$)", re.IGNORECASE)
_TORCHRUN = re.compile(r"attempt_(\d+)/(\d{1,5})/(?:stdout|stderr|error)\b")
_DEVICE = re.compile(r"(?:^|[/._!-])dev(?:ice)?[_-]?(\d{1,4})(?=[._/!-]|$)", re.IGNORECASE)
_HOST = re.compile(
    r"(?:^|[/!.])(?P<host>worker-?\d{1,6}|(?:node|host|server|npu|gpu|n)[-_]?\d{1,6}|\d{1,3}(?:\.\d{1,3}){3})"
    r"(?=[/._!-]|$)"
)
_PID = re.compile(r"(?:plog|device-\d+|trace)[-_](\d{1,10})_\d{8,20}\.log|[._-](?:pid|p)?(\d{4,10})\.log$")
_LAUNCHER = re.compile(r"(?:^|[/._!-])(?:slurm-|scheduler|msrun|torchrun|launch|mpirun|srun)", re.IGNORECASE)


class NameHints(msgspec.Struct, frozen=True):
    """What the file's name shows; None or empty where it shows nothing."""

    rank: int | None = None
    local_rank: int | None = None
    device: int | None = None
    host: str = ""
    pid: str = ""
    folder: str = ""
    """The folder within which a local rank is a rank's own."""
    launcher: bool = False


def read_name(name: str) -> NameHints:
    """Hints from a path.

    >>> read_name("logs/node003/worker_12.log").rank
    12
    """
    path = name[-300:]
    torchrun = _TORCHRUN.search(path)
    ranks = _RANK.findall(path)
    pid = _PID.search(path)
    host = list(_HOST.finditer(path))
    device = _DEVICE.findall(path)
    return NameHints(
        rank=None if torchrun or not ranks else int(ranks[-1]),
        local_rank=int(torchrun[2]) if torchrun else None,
        device=int(device[0]) if device else None,
        host=host[-1]["host"] if host else "",
        pid=next((group for group in pid.groups() if group), "") if pid else "",
        folder=name.partition("attempt_")[0] if torchrun else "",
        launcher=bool(_LAUNCHER.search(path)),
    )


def read_names(names: Sequence[str], origins: Sequence[str] = ()) -> list[NameHints]:
    """Hints from all paths of a job: a rank that files of several hosts have is a rank within its host.

    ``origins``: the host that each file was read on, as far as known; it outranks what the name shows.

    >>> [hints.local_rank for hints in read_names(["node0/rank_0.log", "node1/rank_0.log"])]
    [0, 0]
    """
    all_hints = [read_name(name) for name in names]
    for index, origin in enumerate(origins):
        if origin:
            all_hints[index] = msgspec.structs.replace(all_hints[index], host=origin)
    hosts: dict[int, set[str]] = defaultdict(set)
    for hints in all_hints:
        if hints.rank is not None and hints.host:
            hosts[hints.rank].add(hints.host)
    if all(len(members) == 1 for members in hosts.values()):
        return all_hints
    return [
        msgspec.structs.replace(hints, rank=None, local_rank=hints.rank, folder=hints.host)
        if hints.rank is not None and hints.host
        else hints
        for hints in all_hints
    ]
