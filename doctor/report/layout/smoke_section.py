"""What a person wants of a smoke run beside the checks: what stopped it, what ran, how far, how right, how fast."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from doctor.engine.smoke_summary import Figure, Summary
from doctor.report.layout.formatting import clean, count, duration
from doctor.report.layout.group_findings import ranges
from doctor.report.layout.page_model import Details, labelled
from doctor.smoke.model import Trouble

FRAMES = 12
"""Lines of a stack that are shown."""
LONGEST = 2000
"""Characters of one line."""
STACKS = 2
"""Stacks that are shown, unless all is."""

_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+ \(most recent call first\):\Z")

_DID = {
    "not-started": "did not start",
    "never-joined": "did not join",
    "mismatch": "called another collective than the others",
    "order": "wait for each other in different collectives",
    "dead": "died",
    "left": "left while others waited",
    "stopped": "stopped by SIGSTOP or a debugger",
    "frozen": "frozen by a cgroup",
    "blocked": "blocked outside of a collective",
    "busy": "computes and does not come back",
    "input": "waits for its data loader",
    "network": "in one collective, and no bytes arrive",
    "silent": "on a host that says nothing any more",
    "budget": "not done when the time was up",
}
_ITS_STAGE = ("not-started", "never-joined")
"""Kinds that say the stage by themselves."""


def told(summary: Summary, whole: bool) -> Details:
    """The run in labelled lines; ``whole`` shows every stack, size and group."""
    lines = [line for trouble in summary.troubles[: None if whole else 1] for line in _trouble(trouble, summary, whole)]
    if summary.not_reached:
        lines.append(("not done", ", ".join(summary.not_reached)))
    lines.append(("ran", _ran(summary)))
    lines += labelled("ranks", _seats(summary))
    if summary.stages:
        lines.append(("stages", ", ".join(f"{one.name} {_time(one.seconds)}" for one in summary.stages)))
    lines += labelled("layouts", _layouts(summary))
    lines += labelled("speed", _speed(summary.figures if whole else _largest(summary.figures)))
    lines += labelled("note", [clean(note) for note in summary.notes])
    return tuple((label, _safe(text)) for label, text in lines)


def _safe(text: str) -> str:
    return " " * (len(text) - len(text.lstrip(" "))) + clean(text, LONGEST)


def _trouble(trouble: Trouble, summary: Summary, whole: bool) -> Iterator[tuple[str, str]]:
    who = ranks_in_words(trouble.guilty) if trouble.guilty else "all ranks"
    seats = dict.fromkeys(clean(summary.places[rank], 100) for rank in trouble.guilty if rank < len(summary.places))
    places = f" ({', '.join(list(seats)[:4])}{', ...' if len(seats) > 4 else ''})" if seats else ""
    where = [f"stage {trouble.stage}"] if trouble.stage and trouble.kind not in _ITS_STAGE else []
    where += [f"layout {trouble.layout}, step {trouble.step}"] if trouble.layout else []
    text = f": {clean(trouble.text)}" if trouble.text and trouble.kind not in ("stopped", "frozen") else ""
    yield "cause", f"{who}{places} {_DID[trouble.kind]}{', ' if where else ''}{', '.join(where)}{text}"
    if trouble.links:
        yield "links", ", ".join(f"{clean(a, 100)} to {clean(b, 100)}" for a, b in trouble.links)
    yield from labelled("call", _calls(trouble, trouble.guilty))
    yield from labelled("waited", _calls(trouble, trouble.victims) or _silent(trouble.victims))
    yield from labelled("seen", [clean(one) for one in trouble.evidence[: None if whole else 6]])
    for rank in [one for one in trouble.stacks if one in trouble.guilty or whole][: None if whole else STACKS]:
        yield from labelled(
            "stack", [f"{ranks_in_words((rank,))}, innermost call first:", *_stack(trouble.stacks[rank])]
        )


def _calls(trouble: Trouble, ranks: Sequence[int]) -> list[str]:
    """What ranks were doing, those that did the same together."""
    doing: dict[str, list[int]] = {}
    for rank in sorted(ranks):
        if trouble.calls.get(rank):
            doing.setdefault(trouble.calls[rank], []).append(rank)
    return [f"{ranks_in_words(who)}: {clean(what)}" for what, who in doing.items()]


def _silent(ranks: Sequence[int]) -> list[str]:
    return [ranks_in_words(ranks)] if ranks else []


def _stack(text: str) -> list[str]:
    lines = [line for line in (clean(line, 160) for line in text.splitlines()) if line and not _THREAD.match(line)]
    more = [f"  ... {len(lines) - FRAMES} more lines"] if len(lines) > FRAMES else []
    return [f"  {line}" for line in lines[:FRAMES]] + more


def _ran(summary: Summary) -> str:
    numbers = set(summary.hosts.values())
    each = f", {numbers.pop()} on each" if len(numbers) == 1 and len(summary.hosts) > 1 else ""
    hosts = f"{count(summary.world, 'rank')} on {count(len(summary.hosts), 'host')}{each}"
    ended = {"complete": "", "trouble": ", stopped early", "budget": ", cut short", "interrupted": ", interrupted"}
    imported = f", of which import torch {_time(summary.import_seconds)}" if summary.import_seconds else ""
    return f"{summary.backend}, {hosts}, {duration(summary.seconds)}{imported}{ended[summary.ended]}"


def _seats(summary: Summary) -> list[str]:
    seats = []
    for seat in summary.seats:
        parts = [f"{name} {version}" for name, version in (("torch", seat.torch), ("numpy", seat.numpy)) if version]
        parts += [f"Python {seat.python}"] if seat.python else []
        parts += [seat.device] if seat.device else []
        seats.append(f"{ranks_in_words(seat.ranks)}: {clean(', '.join(parts))}")
    return seats


def _layouts(summary: Summary) -> list[str]:
    shown = [f"{one.layout} {_share(one.error)}" for one in summary.layouts if one.error is not None]
    missed = [one.layout for one in summary.layouts if one.error is None]
    lines = [f"{', '.join(shown)} (largest relative error of the loss against the serial twin)"] if shown else []
    return lines + ([f"not compared: {', '.join(missed)}"] if missed and shown else [])


def _share(error: float) -> str:
    return f"{error:.0e}" if error else "0"


def _speed(figures: Sequence[Figure]) -> list[str]:
    if not figures:
        return []
    return ["time, algbw / busbw as nccl-tests define them", *map(_figure, figures)]


def _figure(one: Figure) -> str:
    what = f"{one.op} {size(one.bytes)}" if one.bytes else one.op
    unit, name = next(((u, n) for u, n in _RATES if max(one.algbw, one.busbw) >= u), _RATES[-1])
    rates = f", {one.algbw / unit:.3g} / {one.busbw / unit:.3g} {name}" if one.bytes else ""
    return f"{what}, {clean(one.group, 40)} of {one.ranks}: {_time(one.seconds)}{rates}"


_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))


def _largest(figures: Sequence[Figure]) -> list[Figure]:
    """Of every collective, the largest group and the largest size."""
    best: dict[str, Figure] = {}
    for one in figures:
        if one.op not in best or (one.ranks, one.bytes) > (best[one.op].ranks, best[one.op].bytes):
            best[one.op] = one
    return list(best.values())


def ranks_in_words(ranks: Iterable[int]) -> str:
    """``rank 3``, ``ranks 0-2,5``."""
    numbers = sorted(set(ranks))
    return f"rank{'' if len(numbers) == 1 else 's'} {ranges(numbers)}"


def size(number: int) -> str:
    """Bytes in binary units: ``4 B``, ``64 KiB``, ``1 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.4g} {name}"
    return f"{number} B"


def _time(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1000:.3g} ms" if seconds < 0.9995 else duration(seconds)
