"""The smoke run beside its checks: what stopped it, what ran, how far, how accurate, how fast."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median_low

from doctor.engine.grouping import lists_by_key
from doctor.engine.language import localized, phrase
from doctor.engine.quantities import bytes_text, number_text, seconds_text
from doctor.engine.sanitize import number_ranges
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.smoke_summary import CollectiveSpeed, DeviceRate, Failure, PairSpeed, SmokeSummary, SoakMinute
from doctor.remote.runtime.stack_frames import is_of_program
from doctor.report.layout.formatting import byte_rate, clean, count_noun, duration, translated
from doctor.report.layout.page_model import Details, label_lines

MAX_STACK_LINES = 12
"""Lines of a stack that are shown."""
MAX_LINE_CHARS = 2000
"""Characters of one line."""
MAX_SOAK_LINES = 8
"""Ranks, and pairs of ranks, whose wrong results are shown, unless all is."""
MAX_STACKS = 2
"""Stacks that are shown, unless all is."""

_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\):\Z")


MAX_LINES = 24
MAX_DEPTH = 12
MAX_FRAMES = 4
"""Calls of one branch that are shown: the innermost ones."""
_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,7}) in ([^\n]{1,200})')

_Call = tuple[str, bool]
"""A call in words, and whether it is of the program itself."""
Stacks = Mapping[int, tuple[_Call, ...]]
"""By rank: its calls, the outermost first."""


def stack_tree(stacks: Mapping[int, str]) -> list[tuple[int, str, tuple[int, ...]]]:
    r"""(depth, calls, ranks) of each branch, from stacks as faulthandler writes them.

    >>> main = 'File "/x/t.py", line 9 in main'
    >>> stack_tree({0: 'File "/x/t.py", line 3 in wait\n' + main, 1: 'File "/x/t.py", line 5 in save\n' + main})
    [(0, 'main at t.py:9', (0, 1)), (1, 'wait at t.py:3', (0,)), (1, 'save at t.py:5', (1,))]
    """
    calls = {rank: found for rank, text in sorted(stacks.items()) if (found := _stack_calls(text))}
    rows: list[tuple[int, str, tuple[int, ...]]] = []
    todo: list[tuple[int, Stacks]] = [(0, calls)] if len(calls) > 1 else []
    while todo and len(rows) < MAX_LINES:
        depth, branch = todo.pop()
        common = _common(branch)
        if common:
            hidden, visible = common[:-MAX_FRAMES], common[-MAX_FRAMES:]
            line = [call for call in hidden if call[1]][-1:]  # the program's own, above what libraries call
            marks = ["..."] * (len(hidden) > len(line)), ["..."] * bool(line and hidden[-1] != line[0])
            parts_shown = [*marks[0], *(call for call, _ in line), *marks[1], *(call for call, _ in visible)]
            rows.append((depth, " > ".join(parts_shown), tuple(branch)))
        parts: dict[_Call, dict[int, tuple[_Call, ...]]] = {}
        for rank, stack in branch.items():
            if rest := stack[len(common) :]:
                parts.setdefault(rest[0], {})[rank] = rest
        if depth < MAX_DEPTH:
            larger_first = sorted(parts.values(), key=lambda part: -len(part))
            todo += [(depth + bool(common), part) for part in reversed(larger_first)]
    return rows


def _common(stacks: Stacks) -> tuple[_Call, ...]:
    """The outermost calls that all of them have."""
    first, last = min(stacks.values()), max(stacks.values())
    shorter = min(len(first), len(last))
    same = next((place for place in range(shorter) if first[place] != last[place]), shorter)
    return first[:same]


def _stack_calls(text: str) -> tuple[_Call, ...]:
    """The main thread's calls; those of loader workers stand behind them."""
    frames = _FRAME.findall(text.partition("\nloader worker ")[0])[::-1]
    calls = [
        (f"{name.strip()} at {path.rpartition('/')[2]}:{line}", is_of_program(path)) for path, line, name in frames
    ]
    return tuple((clean(call, 120), is_program) for call, is_program in calls)


def smoke_lines(summary: SmokeSummary, full: bool, shown: Collection[str] = ()) -> Details:
    """The run in labelled lines; ``full`` shows every stack, size and group. ``shown``: evidence that findings have."""
    failures = summary.failures[: None if full else 1]
    lines = [line for failure in failures for line in _failure_lines(failure, summary, full, shown)]
    if summary.unfinished_stages and not summary.watched:
        lines.append(("unfinished", ", ".join(summary.unfinished_stages)))
    lines.append(("ran", _ran(summary)))
    lines += label_lines("ranks", _environment_lines(summary))
    if summary.stages and not summary.watched:
        lines.append(("stages", ", ".join(f"{stage.name} {seconds_text(stage.seconds)}" for stage in summary.stages)))
    lines += label_lines("layouts", _layouts(summary))
    lines += label_lines("speed", _speed(summary.collective_speeds if full else _largest(summary.collective_speeds)))
    lines += label_lines("pairs", pair_grid(summary.pair_speeds) if full else [])
    lines += label_lines("devices", _device_speeds(summary.device_speeds))
    lines += label_lines("soak", _soak(summary, full))
    lines += label_lines("note", [translated(note) for note in summary.notes])
    return tuple((label, _safe(text)) for label, text in lines)


def _safe(text: str) -> str:
    return " " * (len(text) - len(text.lstrip(" "))) + clean(text, MAX_LINE_CHARS)


def failure_text(failure: Failure) -> str:
    """What the culprit ranks did, to stand behind them: ``died``."""
    kind = FAILURE_KINDS[failure.kind]
    if failure.kind == "network" and not failure.op:
        return localized("waited in a collective that was not recorded")
    if kind.unnamed_text and not failure.culprit_ranks:
        return localized(kind.unnamed_text)
    if failure.unreached:
        return localized(kind.unreached_text)
    return localized(kind.differing_text if kind.differing_text and failure.culprits_differ else kind.report_text)


def culprits_in_words(failure: Failure) -> str:
    """The culprit ranks; without any all ranks, or one that is not known where the failure is a single rank's."""
    if failure.culprit_ranks:
        return ranks_in_words(failure.culprit_ranks)
    return localized("a rank that is not known") if failure.kind in ("blocked", "busy") else localized("all ranks")


def _failure_lines(
    failure: Failure, summary: SmokeSummary, full: bool, shown: Collection[str]
) -> Iterator[tuple[str, str]]:
    kind = FAILURE_KINDS[failure.kind]
    who = f"{culprits_in_words(failure)}{_placements(failure, summary)}"
    staged = failure.stage and not (kind.implies_stage or summary.watched)
    where = [phrase("stage {name}", name=failure.stage)] if staged else []
    if failure.layout:
        where.append(phrase("layout {layout}, step {step}", layout=failure.layout, step=failure.step))
    text = localized(": ") + translated(failure.text) if failure.text and not kind.implies_text else ""
    yield ("cause", f"{who} {failure_text(failure)}{localized(', ').join(['', *where])}{text}")
    if failure.links:
        names = [(clean(source, 100), clean(destination, 100)) for source, destination in failure.links]
        links = [phrase("{source} to {destination}", source=source, destination=other) for source, other in names]
        yield ("links", localized(", ").join(links))
    yield from label_lines("call", _calls(failure, failure.culprit_ranks))
    silent = [ranks_in_words(failure.waiting_ranks)] if failure.waiting_ranks else []
    yield from label_lines("waited", _calls(failure, failure.waiting_ranks) or silent)
    evidence = [text for text in failure.evidence[: None if full else 6] if text not in shown]
    yield from label_lines("evidence", [translated(text) for text in evidence])
    ranks_with_stack = [rank for rank in failure.stacks if rank in failure.culprit_ranks or full]
    for rank in ranks_with_stack[: None if full else MAX_STACKS]:
        head = phrase("{rank}, innermost call first:", rank=ranks_in_words((rank,)))
        yield from label_lines("stack", [head, *_stack(failure.stacks[rank])])
    if rows := stack_tree(failure.stacks):
        lines = [f"  {'| ' * depth}{calls} [{ranks_in_words(ranks)}]" for depth, calls, ranks in rows]
        yield from label_lines("stack", [localized("all ranks, outermost call first:"), *lines])


def _placements(failure: Failure, summary: SmokeSummary) -> str:
    """Host and device of the culprit ranks, in brackets; empty where they are not known."""
    placements = dict.fromkeys(
        clean(summary.placements[rank], 100) for rank in failure.culprit_ranks if rank < len(summary.placements)
    )
    return f" ({', '.join(list(placements)[:4])}{', ...' if len(placements) > 4 else ''})" if placements else ""


def _calls(failure: Failure, ranks: Sequence[int]) -> list[str]:
    """The calls of the ranks, equal ones grouped."""
    ranks_by_call = lists_by_key((failure.calls[rank], rank) for rank in sorted(ranks) if failure.calls.get(rank))
    return [
        f"{ranks_in_words(call_ranks)}{localized(': ')}{translated(call)}" for call, call_ranks in ranks_by_call.items()
    ]


def _stack(text: str) -> list[str]:
    lines = [line for line in (clean(line, 160) for line in text.splitlines()) if line and not _THREAD.match(line)]
    more = (
        [phrase("  ... {count} more lines", count=len(lines) - MAX_STACK_LINES)] if len(lines) > MAX_STACK_LINES else []
    )
    return [f"  {line}" for line in lines[:MAX_STACK_LINES]] + more


def _ran(summary: SmokeSummary) -> str:
    numbers = set(summary.hosts.values())
    each = phrase(", {count} on each", count=numbers.pop()) if len(numbers) == 1 and len(summary.hosts) > 1 else ""
    ranks, hosts = count_noun(summary.world_size, "rank"), count_noun(len(summary.hosts), "host")
    placed = phrase("{ranks} on {hosts}", ranks=ranks, hosts=hosts) + each
    ended = {
        "complete": "",
        "trouble": localized(", stopped early"),
        "budget": localized(", cut short"),
        "interrupted": localized(", interrupted"),
    }
    imported = (
        phrase(", {time} of it import torch", time=seconds_text(summary.import_seconds))
        if summary.import_seconds
        else ""
    )
    backend = "mccl" if (summary.library, summary.backend) == ("mindspore", "gloo") else summary.backend
    parts = localized(", ").join([backend, placed, duration(summary.seconds)])
    return f"{parts}{imported}{ended[summary.ended]}"


def _environment_lines(summary: SmokeSummary) -> list[str]:
    lines = []
    for environment in summary.environments:
        versions = (("torch", environment.torch), ("numpy", environment.numpy))
        parts = [f"{name} {version}" for name, version in versions if version]
        parts += [f"Python {environment.python}"] if environment.python else []
        parts += [environment.device] if environment.device else []
        lines.append(f"{ranks_in_words(environment.ranks)}{localized(': ')}{clean(', '.join(parts))}")
    return lines


def _layouts(summary: SmokeSummary) -> list[str]:
    compared = [
        f"{layout.layout} {f'{layout.error:.0e}' if layout.error else '0'}"
        for layout in summary.layouts
        if layout.error is not None
    ]
    missed = [layout.layout for layout in summary.layouts if layout.error is None]
    lines, names = list[str](), ", ".join(compared)
    if compared:
        lines.append(phrase("{layouts} (largest relative error of the loss against the reference run)", layouts=names))
    return lines + ([phrase("not compared: {layouts}", layouts=", ".join(missed))] if missed and compared else [])


def _soak(summary: SmokeSummary, full: bool) -> list[str]:
    """The counts of the soak stage, in total, by rank and collective, and by pair of ranks."""
    if summary.soak is None:
        return []
    soak, most = summary.soak, None if full else MAX_SOAK_LINES
    total = sum(soak.calls.values())
    wrong = sum(error.wrong for error in soak.errors)
    ranks_text = ranks_in_words(sorted({error.rank for error in soak.errors}))
    results = localized("no wrong result")
    if wrong:
        results = phrase("{results} on {ranks}", results=count_noun(wrong, "wrong result"), ranks=ranks_text)
    collectives, time = count_noun(total, "collective"), duration(soak.seconds)
    lines = [phrase("{collectives} on each rank in {time}: ", collectives=collectives, time=time) + results]
    placements = summary.placements
    hosts = [f" ({clean(place, 100)})" for place in placements] + [""] * (summary.world_size - len(placements))
    for error in soak.errors[:most]:
        if 0 <= error.rank < len(hosts):
            numbers = {"wrong": error.wrong, "calls": error.calls, "operation": clean(error.op, 40)}
            rank = f"{error.rank}{hosts[error.rank]}"
            lines.append(phrase("rank {rank}: {wrong} of {calls} {operation}", rank=rank, **numbers))
    for link in soak.links[:most]:
        if 0 <= link.source < len(hosts) and 0 <= link.rank < len(hosts):
            source, rank = (f"{number}{hosts[number]}" for number in (link.source, link.rank))
            lines.append(phrase("rank {source} to rank {rank}: {wrong}", source=source, rank=rank, wrong=link.wrong))
    return lines + minute_lines(soak.minutes, full)


def _speed(figures: Sequence[CollectiveSpeed]) -> list[str]:
    """Of a rank alone none: it exchanges nothing."""
    lines = [_speed_text(speed) for speed in figures if speed.ranks > 1]
    return [localized("time, algbw / busbw as nccl-tests define them"), *lines] if lines else []


def _speed_text(speed: CollectiveSpeed) -> str:
    operation = f"{speed.op} {bytes_text(speed.bytes)}" if speed.bytes else speed.op
    rates = f", {byte_rate(speed.algbw, speed.busbw)}" if speed.bytes else ""
    figures = {"group": clean(speed.group, 40), "count": speed.ranks, "time": f"{seconds_text(speed.seconds)}{rates}"}
    return phrase("{operation}, {group} of {count}: {time}", operation=operation, **figures)


def _device_speeds(speeds: Sequence[DeviceRate]) -> list[str]:
    """One line for each kind of work and model of device."""
    lines, model = [], ""
    for speed in sorted(speeds, key=lambda speed: speed.model):
        if speed.model != model:
            model = speed.model
            lines.append(phrase("{ranks} with {model}", ranks=count_noun(speed.ranks, "rank"), model=clean(model, 80)))
        unit, prefix = next(((u, p) for u, p in _PREFIXES if speed.median >= u), (1.0, ""))
        value = number_text(speed.slowest / unit)
        slowest = phrase(", slowest {value} (rank {rank})", value=value, rank=speed.slowest_rank)
        slowest = slowest if speed.ranks > 1 else ""
        lines.append(f"  {clean(speed.test, 40)}: {number_text(speed.median / unit)} {prefix}{speed.unit}{slowest}")
    return lines


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


def _largest(figures: Sequence[CollectiveSpeed]) -> list[CollectiveSpeed]:
    """Of every collective, the largest group and the largest size."""
    best: dict[str, CollectiveSpeed] = {}
    for speed in figures:
        if speed.op not in best or (speed.ranks, speed.bytes) > (best[speed.op].ranks, best[speed.op].bytes):
            best[speed.op] = speed
    return list(best.values())


def ranks_in_words(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-2,5``."""
    numbers = sorted(set(ranks))
    return phrase("rank {ranks}" if len(numbers) == 1 else "ranks {ranks}", ranks=number_ranges(numbers))


MOST_LINES = 8
"""Minutes that are shown, evenly, unless all are."""
MOST_SENSORS = 3


def minute_lines(minutes: Sequence[SoakMinute], full: bool) -> list[str]:
    """What each minute had: results, the rate of all_reduce, the time of the same work, heat, errors of links."""
    step = 1 if full or len(minutes) <= MOST_LINES else len(minutes) / MOST_LINES
    chosen_minutes = [minutes[int(step * place)] for place in range(len(minutes) if step == 1 else MOST_LINES)]
    return [_line(minute) for minute in chosen_minutes]


def _line(minute: SoakMinute) -> str:
    results = count_noun(minute.wrong, "wrong result") if minute.wrong else localized("no wrong result")
    parts = [count_noun(minute.calls, "collective"), results]
    if minute.busbw > 0:
        parts.append(phrase("all_reduce {rate}", rate=byte_rate(minute.busbw)))
    if minute.work > 0:
        time, slowest, rank = seconds_text(minute.work), seconds_text(minute.slowest_work), minute.slowest_rank
        parts.append(phrase("work {time}, slowest {slowest} (rank {rank})", time=time, slowest=slowest, rank=rank))
    hottest = sorted(minute.temperatures, key=lambda entry: -entry.celsius)[:MOST_SENSORS]
    parts += [f"{clean(entry.host, 100)} {entry.celsius:.0f} °C" for entry in hottest]
    parts += [
        f"{clean(entry.host, 100)} {clean(entry.counter, 80)} +{entry.count}"
        for entry in minute.link_errors[:MOST_SENSORS]
    ]
    start, end = duration(minute.start), duration(minute.start + minute.seconds)
    return phrase("from {start} to {end}: {figures}", start=start, end=end, figures=localized(", ").join(parts))


MOST_ROWS = 32
"""Of more ranks, neighbours share a row, which shows the slowest of their pairs."""
SIGNS = ((1.5, "."), (2.0, "-"), (4.0, "+"), (float("inf"), "#"))
"""Below so many times the median time: its sign."""


def pair_grid(pairs: Sequence[PairSpeed]) -> list[str]:
    r"""Lines; none for fewer than three ranks.

    >>> times = {(0, 1): 1.0, (0, 2): 1.1, (1, 2): 1.0, (0, 3): 9.0, (1, 3): 9.0, (2, 3): 2.6}
    >>> for line in pair_grid([PairSpeed(*pair, 1 << 20, seconds) for pair, seconds in times.items()])[1:5]:
    ...     print(line)
    0 \..#
    1 .\.#
    2 ..\+
    3 ##+\
    """
    largest = max((pair.bytes for pair in pairs), default=0)
    times = {(pair.low, pair.high): pair.seconds for pair in pairs if pair.bytes == largest and pair.seconds > 0}
    ranks = sorted({rank for pair in times for rank in pair})
    if len(ranks) < 3:
        return []
    usual = median_low(times.values())
    share = -(-len(ranks) // MOST_ROWS)
    blocks = [ranks[start : start + share] for start in range(0, len(ranks), share)]
    labels = [f"{block[0]}-{block[-1]}" if len(block) > 1 else f"{block[0]}" for block in blocks]
    row_of = {rank: number for number, block in enumerate(blocks) for rank in block}
    worst: dict[tuple[int, int], float] = {}
    for (low, high), seconds in times.items():
        cell = (row_of[low], row_of[high])
        worst[cell] = max(worst.get(cell, 0.0), seconds / usual)
    width = max(map(len, labels))
    head = phrase(
        "exchanges of {size} by rank, median {rate} each way:",
        size=bytes_text(largest),
        rate=byte_rate(largest / usual),
    )
    rows = [
        f"{label:>{width}} {''.join(_sign(number, column, worst) for column in range(len(blocks)))}"
        for number, label in enumerate(labels)
    ]
    return [head, *rows, localized(". below 1.5 times the median time, - below 2, + below 4, # from 4 on")]


def _sign(row: int, column: int, worst: Mapping[tuple[int, int], float]) -> str:
    """Of a cell; a space where no pair of it was measured."""
    ratio = worst.get((min(row, column), max(row, column)))
    if ratio is None:
        return "\\" if row == column else " "
    return next(sign for limit, sign in SIGNS if ratio < limit or limit == float("inf"))
