"""The speeds of a good run in a file, and what a later run lacks of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from doctor.config.atomic_write import write_atomic
from doctor.engine.bounded_read import read_bounded
from doctor.engine.smoke_summary import CollectiveSpeed, SmokeSummary
from doctor.engine.texts import filled
from doctor.smoke.model import Baseline

SLOWER = 1.5
"""Times as long as in the baseline: gloo on a quiet host repeats itself to within a third."""
MIN_BYTES = 1 << 16
"""Smaller messages tell of latency, which a busy CPU changes."""
MAX_FILE = 1 << 20
"""Bytes of a baseline that is read."""


def speed_key(speed: CollectiveSpeed) -> str:
    """Such as ``all_reduce 1048576 world``."""
    return f"{speed.op} {speed.bytes} {speed.group}"


def save_baseline(path: Path, summary: SmokeSummary) -> None:
    """Writes the speeds of a run. Raises: ValueError for a run that did not complete; OSError."""
    if summary.ended != "complete":
        raise ValueError("the run did not complete; expected a whole run as baseline")
    busbw = {speed_key(speed): round(speed.busbw, 1) for speed in summary.collective_speeds if speed.bytes >= MIN_BYTES}
    baseline = Baseline(summary.backend, len(summary.hosts), summary.world_size, busbw)
    write_atomic(path, msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n", 0o644)


def read_baseline(path: Path) -> Baseline:
    """Raises: ValueError, which says what is wrong with the file; OSError."""
    data = read_bounded(path, MAX_FILE)
    try:
        baseline = msgspec.json.decode(data, type=Baseline)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(filled("{0}; expected a file of --save-baseline", error)) from None
    if baseline.version != 1:
        raise ValueError(filled("version {0}; expected 1", baseline.version))
    return baseline


def slower_than(
    baseline: Baseline, speeds: Iterable[CollectiveSpeed]
) -> tuple[int, list[tuple[CollectiveSpeed, float]]]:
    """How many speeds the baseline has, too, and those that are slower than it, slowest first, with how many times."""
    known: Mapping[str, float] = baseline.busbw
    compared = [(speed, known[speed_key(speed)]) for speed in speeds if known.get(speed_key(speed), 0.0) > 0]
    slow = [(speed, before / speed.busbw) for speed, before in compared if 0 < speed.busbw * SLOWER < before]
    return len(compared), sorted(slow, key=lambda pair: -pair[1])
