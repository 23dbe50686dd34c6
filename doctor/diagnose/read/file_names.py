"""What the names of log files, and the hosts on which they lie, show: rank, device, host, process id.

Sources of the names: MindSpore's msrun (``worker_3.log``, ``scheduler.log``), torchrun ``--log-dir``
(``attempt_0/3/stderr.log``), ModelArts (``modelarts-job-ID-worker-0.log``), CANN (``plog-PID_TIME.log``,
``device-3/``), Slurm (``slurm-77_3.out``, ``%t``), and what people write (``rank_3.log``, ``node003/train.log``).

The folders of torchrun and CANN, and addresses, are what they are, and so is the end of the name of a flight recorder's
dump: torch and torch_npu append the rank to the configured prefix (pytorch/pytorch
torch/csrc/distributed/c10d/FlightRecorder.cpp, DebugInfoWriter). Any other number may be one of an experiment, as in
``lora_r16.log``: it counts only where names of several files differ in it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import msgspec

from doctor.diagnose.events import Event, FileReading, FileSummary
from doctor.engine.grouping import sets_by_key

_RANK = re.compile(
    r"(?:^|[/._!-])(?:worker_|rank[_-]?|(?P<short>proc[_-]?|task[_-]?|r))(?P<value>\d{1,6})(?=[._/!-]|$)", re.IGNORECASE
)
_TORCHRUN = re.compile(r"attempt_(\d+)/(\d{1,5})/(?:stdout|stderr|error)\b")
_DEVICE = re.compile(r"(?:^|[/._!-])dev(?:ice)?[_-]?(?P<value>\d{1,4})(?=[._/!-]|$)", re.IGNORECASE)
_DEVICE_FOLDER = re.compile(r"(?:^|/)device-(\d{1,4})/")
_HOST = re.compile(
    r"(?:^|[/!.]|modelarts-job-[A-Za-z0-9-]{1,80}-)(?P<value>worker-?\d{1,6}|(?:node|host|server|npu|gpu|n)[-_]?\d{1,6}|\d{1,3}(?:\.\d{1,3}){3})"
    r"(?=[/._!-]|$)"
)
_NUMBERED_FOLDER = re.compile(r"(?:^|[/!])(?P<value>(?P<word>[A-Za-z][A-Za-z-]{0,40})\d{1,6})(?=[/!])")
_NO_HOST = frozenset(
    ("attempt", "epoch", "exp", "job", "log", "logs", "part", "rank", "run", "shard", "step", "try", "v")
)
"""Words of folders that are numbered for another reason."""
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_PID = re.compile(r"[._-](?:pid|p)?(?P<value>\d{4,10})\.log$")
_PID_OF_CANN = re.compile(r"(?:plog|device-\d+|trace)[-_](\d{1,10})_\d{8,20}\.log")
_LAUNCHER = re.compile(r"(?:^|[/._!-])(?:slurm-|scheduler|msrun|torchrun|launch|mpirun|srun)", re.IGNORECASE)
_PACKED = re.compile(r"\.(?:gz|bz2|xz|zst|lz4)$")
_STAMP = re.compile(r"\d{6,}")
"""A time or a process id, which differs between any two files."""
_END_OF_DUMP = re.compile(r"(\d{1,9})(?:\.(?:pkl|pickle|json|bin|dump))?$")
"""The digits at the end of the name of a dump: the last of them, or more, are its rank."""


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


class _Number(msgspec.Struct, frozen=True):
    """A number of a name that may be a rank, a device, a host or a process id."""

    kind: str
    value: str
    form: str
    """The part of the path that contains it, without its numbers of these kinds, and without times."""
    short: bool
    """The word before it is a letter, or one that means other things as well."""


def _numbers(name: str) -> dict[str, _Number]:
    path = _PACKED.sub("", name[-300:])
    ranks, hosts = list(_RANK.finditer(path)), list(_HOST.finditer(path))
    matches = {
        "rank": ranks[-1] if ranks else None,
        "device": _DEVICE.search(path),
        "host": hosts[-1] if hosts else None,
        "pid": _PID.search(path),
    }
    present = {kind: match for kind, match in matches.items() if match}
    form = path
    for start, end in sorted({match.span("value") for match in present.values()}, reverse=True):
        form = f"{form[:start]}{'*' * (end - start)}{form[end:]}"
    numbers = {}
    for kind, match in present.items():
        first = max(form.rfind(separator, 0, match.start("value")) for separator in "/!") + 1
        part = re.split("[/!]", form[first:], maxsplit=1)[0]
        short = kind == "rank" and bool(match["short"])
        numbers[kind] = _Number(kind, match["value"], re.sub(r"\*+", "*", _STAMP.sub("#", part)), short)
    return numbers


def _is_counted(number: _Number, alike: set[str]) -> bool:
    """Whether names of one form differ in the number. After a short word, they must be most of those from 0 to the
    largest as well, as ranks are, and the sizes that experiments compare are not.
    """
    return len(alike) > 1 and not (number.short and max(map(int, alike)) + 1 >= 2 * len(alike))


def _hints(name: str, numbers: Mapping[str, str], host: str) -> NameHints:
    path = name[-300:]
    torchrun, folder, pid = _TORCHRUN.search(path), _DEVICE_FOLDER.search(path), _PID_OF_CANN.search(path)
    device = folder[1] if folder else numbers.get("device")
    return NameHints(
        rank=None if torchrun or "rank" not in numbers else int(numbers["rank"]),
        local_rank=int(torchrun[2]) if torchrun else None,
        device=int(device) if device else None,
        host=host if _ADDRESS.fullmatch(host) else numbers.get("host", ""),
        pid=pid[1] if pid else numbers.get("pid", ""),
        folder=name.partition("attempt_")[0] if torchrun else "",
        launcher=bool(_LAUNCHER.search(path)),
    )


def read_case_names(readings: Sequence[FileReading]) -> list[NameHints]:
    """`read_names` of all files of a job; of dumps of flight recorders the rank is that in the world."""
    summaries = [reading.summary for reading in readings]
    hints = read_names([summary.name for summary in summaries], [summary.origin for summary in summaries])
    dumps = [(index, reading.recording) for index, reading in enumerate(readings) if reading.recording]
    members = [{rank for group in recording.groups for rank in group.ranks} for _, recording in dumps]
    for (index, _), rank in zip(dumps, dump_ranks([summaries[index].name for index, _ in dumps], members), strict=True):
        if rank is not None:
            hints[index] = msgspec.structs.replace(hints[index], rank=rank, local_rank=None, folder="")
    return hints


def read_names(names: Sequence[str], origins: Sequence[str] = (), *, every_number: bool = False) -> list[NameHints]:
    """Hints from all paths of a job: a rank that files of several hosts have is a rank within its host.

    ``origins``: the host that each file was read on, as far as known; it outranks what the name shows.
    ``every_number``: also numbers that only one name has: to compare names, for numbers of any meaning.

    >>> [hints.rank for hints in read_names(["worker_0.log", "worker_12.log"])], read_names(["lora_r16.log"])[0].rank
    ([0, 12], None)
    >>> [hints.local_rank for hints in read_names([f"n{host}/rank_{rank}.log" for host in (0, 1) for rank in (0, 1)])]
    [0, 1, 0, 1]
    """
    origins = origins or [""] * len(names)
    by_name = [_numbers(name.removeprefix(f"{origin}:")) for name, origin in zip(names, origins, strict=True)]
    alike = sets_by_key(((each.kind, each.form), each.value) for numbers in by_name for each in numbers.values())
    all_hints = []
    for name, numbers in zip(names, by_name, strict=True):
        counted = {
            number.kind: number.value
            for number in numbers.values()
            if every_number or _is_counted(number, alike[number.kind, number.form])
        }
        all_hints.append(_hints(name, counted, numbers["host"].value if "host" in numbers else ""))
    for index, origin in enumerate(origins):
        if origin:
            all_hints[index] = msgspec.structs.replace(all_hints[index], host=origin)
    for index, host in _host_folders(names, all_hints).items():
        all_hints[index] = msgspec.structs.replace(all_hints[index], host=host)
    hosts = sets_by_key((hints.rank, hints.host) for hints in all_hints if hints.rank is not None and hints.host)
    if all(len(members) == 1 for members in hosts.values()):
        return all_hints
    return [
        msgspec.structs.replace(hints, rank=None, local_rank=hints.rank, folder=hints.host)
        if hints.rank is not None and hints.host
        else hints
        for hints in all_hints
    ]


def _host_folders(names: Sequence[str], hints: Sequence[NameHints]) -> dict[int, str]:
    """The hosts that numbered folders stand for, by the index of a file: each has ranks of its own, in their order.

    The folders of experiments, or of attempts, all have a rank 0.

    >>> _host_folders(["fr0001/0", "fr0002/1"], [NameHints(rank=0), NameHints(rank=1)])
    {0: 'fr0001', 1: 'fr0002'}
    >>> _host_folders(["fr0001/0", "fr0002/0"], [NameHints(rank=0), NameHints(rank=0)])
    {}
    """
    ranks: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    for index, (name, found) in enumerate(zip(names, hints, strict=True)):
        folders = list(_NUMBERED_FOLDER.finditer(name[-300:]))
        if found.rank is not None and not found.host and folders and folders[-1]["word"].lower() not in _NO_HOST:
            ranks[folders[-1]["word"]][folders[-1]["value"]][index] = found.rank
    hosts: dict[int, str] = {}
    for alike in ranks.values():
        held = sorted((sorted(set(members.values())), folder) for folder, members in alike.items())
        if len(held) > 1 and [rank for numbers, _ in held for rank in numbers] == list(
            range(sum(len(n) for n, _ in held))
        ):
            hosts |= {index: folder for folder, members in alike.items() for index in members}
    return hosts


def dump_ranks(names: Sequence[str], members: Sequence[Collection[int]]) -> list[int | None]:
    """The rank of each dump of a flight recorder, by the end of its name; None where that does not show it.

    ``members``: the ranks of the job as each dump names them, empty where it does not; the digits before a rank may
    belong to the prefix of the names, which is the same for all dumps of a folder.

    >>> dump_ranks(["/tmp/fr-0", "/tmp/fr-1"], [[0, 1], [0, 1]]), dump_ranks(["run20", "run21"], [[0, 1], [0, 1]])
    ([0, 1], [0, 1])
    >>> dump_ranks(["dump-20260101"], [[0, 1]]), dump_ranks(["fr-3", "fr-4"], [[], []]), dump_ranks(["fr-3"], [[]])
    ([None], [3, 4], [None])
    """
    folders: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    numbers = [_END_OF_DUMP.search(name) for name in names]
    for index, (name, number) in enumerate(zip(names, numbers, strict=True)):
        if number:
            folders[name[: number.start()]][name[number.end(1) :]].append(index)
    ranks: list[int | None] = [None] * len(names)
    for alike in (indexes for folder in folders.values() for indexes in folder.values()):
        digits = [number[1] for index in alike if (number := numbers[index])]
        # Of one name alone nothing shows that it has a prefix of digits, such as a date.
        for length in range(min(map(len, digits)) if len(digits) > 1 else 1):
            found = [text[length:] for text in digits]
            if len({text[:length] for text in digits}) == 1 and _are_ranks(found, [members[index] for index in alike]):
                for index, text in zip(alike, found, strict=True):
                    ranks[index] = int(text)
                break
    return ranks


def _are_ranks(numbers: Sequence[str], members: Sequence[Collection[int]]) -> bool:
    """Whether the ends of the names of dumps of one prefix can be ranks of the jobs that these dumps name."""
    if len(set(numbers)) < len(numbers) or any(text != str(int(text)) for text in numbers):
        return False
    numbered = [(int(text), ranks) for text, ranks in zip(numbers, members, strict=True) if ranks]
    return all(rank in ranks for rank, ranks in numbered) if numbered else len(numbers) > 1


def own_logs(summaries: Sequence[FileSummary], names: Sequence[NameHints]) -> set[int]:
    """The files that hold the output of processes of the host on which they lie.

    A launcher's file holds the output of all hosts. So may one whose name is that of no process, unless each host has
    one of its own, or there is only one host.
    """
    origins: dict[str, set[str]] = defaultdict(set)
    for summary in summaries:
        if summary.origin:
            origins[summary.name.partition(":")[2]].add(summary.origin)
            origins[""].add(summary.origin)
    indexes = set()
    for index, (summary, hints) in enumerate(zip(summaries, names, strict=True)):
        named = hints.pid or not (hints.rank is hints.local_rank is hints.device is None)
        each = len(origins[summary.name.partition(":")[2]]) > 1 or len(origins[""]) == 1
        if not summary.origin or named or (each and not hints.launcher):
            indexes.add(index)
    return indexes


def host_of(origin: str, hints: NameHints, events: list[Event]) -> str:
    """As lines show it; their addresses say less than the host on which the file was read."""
    host = next((event.host for event in events if event.host), "")
    return origin if origin and not re.search("[A-Za-z]", host) else host or hints.host
