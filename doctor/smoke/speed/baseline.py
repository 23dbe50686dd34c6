"""The speeds of good runs in a file, and what a later run lacks of them. Pure but for reading and writing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from doctor.analysis.outliers.own_past import UsualRange, usual_range
from doctor.config.atomic_write import write_atomic
from doctor.config.file import state_folder
from doctor.engine.bounded_read import read_bounded
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.smoke_summary import CollectiveSpeed, PairSpeed, RankEnvironment, SmokeSummary
from doctor.engine.texts import filled, joined
from doctor.smoke.model import Baseline, SpeedHistory, SpeedKey

SITE, SITE_FILE = "site", "baseline.json"
"""What stands for the file in the state folder, and its name there."""
MIN_BYTES = 1 << 16
"""Smaller messages tell of latency, which a busy CPU changes."""
MAX_FILE = 4 << 20
"""Bytes of a baseline that is read."""
MOST_BYTES, MOST_RATE = 1 << 50, 1e18
"""Of a message, and bytes a second, that no run exceeds."""
MOST_RUNS, MOST_SERIES, LONGEST_NAME = 50, 2000, 120
EXCHANGE = "exchange"
"""Of two ranks, each way: it does not depend on how many hosts there are."""


class SlowSpeed(NamedTuple):
    """A speed below the usual range of earlier runs."""

    key: SpeedKey
    value: float
    """Bytes a second."""
    usual: UsualRange

    @property
    def ratio(self) -> float:
        return self.usual.median / self.value


class Comparison(NamedTuple):
    """A run against a baseline."""

    compared: int
    slow: tuple[SlowSpeed, ...]
    """The slowest first."""
    why_not: str
    """Why nothing could be compared; empty where something was."""

    @property
    def is_slow(self) -> bool:
        """Half of what both have, or more, is below the usual range."""
        return bool(self.slow) and 2 * len(self.slow) >= self.compared


def run_speeds(
    backend: str,
    hosts: int,
    environments: Sequence[RankEnvironment],
    collectives: Iterable[CollectiveSpeed],
    pairs: Sequence[PairSpeed],
) -> dict[SpeedKey, float]:
    """Bytes a second: bus bandwidth of each collective of all ranks, and what the median pair exchanges each way."""
    product = " + ".join(sorted({environment.device or "CPU" for environment in environments}))[:LONGEST_NAME]
    versions = sorted({".".join(environment.torch.split(".")[:2]) for environment in environments})
    torch = " + ".join(versions)[:LONGEST_NAME]
    speeds = {
        SpeedKey(product, backend, torch, speed.op, speed.bytes, speed.ranks, hosts): speed.busbw
        for speed in collectives
        if speed.group == "world" and speed.bytes >= MIN_BYTES and speed.busbw > 0
    }
    largest = max((pair.bytes for pair in pairs), default=0)
    rates = sorted(pair.bytes / pair.seconds for pair in pairs if pair.bytes == largest and pair.seconds > 0)
    if rates and largest >= MIN_BYTES:
        key = SpeedKey(product, backend, torch, EXCHANGE, largest, 2, 2 if hosts > 1 else 1)
        speeds[key] = rates[len(rates) // 2]
    return {key: value for key, value in speeds.items() if math.isfinite(value)}


def speeds_of(summary: SmokeSummary) -> dict[SpeedKey, float]:
    """Of a whole run. Raises: ValueError for one that did not complete."""
    if summary.ended != "complete":
        raise ValueError("the run did not complete; expected a whole run as baseline")
    return run_speeds(
        summary.backend, len(summary.hosts), summary.environments, summary.collective_speeds, summary.pair_speeds
    )


def with_run(baseline: Baseline, speeds: Mapping[SpeedKey, float]) -> Baseline:
    """The baseline with one more run; of each speed the latest `MOST_RUNS` are kept."""
    series = {_key(history): history.values for history in baseline.series}
    for key, value in speeds.items():
        series[key] = (*series.get(key, ()), round(value, 1))
    return _baseline(series)


def merged(first: Baseline, second: Baseline) -> Baseline:
    """Both, in this order; a value that both have of a speed is one run."""
    series = {_key(history): history.values for history in first.series}
    for history in second.series:
        values = series.get(_key(history), ())
        series[_key(history)] = (*values, *(value for value in history.values if value not in values))
    return _baseline(series)


def compare(baseline: Baseline, speeds: Mapping[SpeedKey, float]) -> Comparison:
    """Each speed against the range of the earlier ones with the same key."""
    ranges = {_key(history): usual for history in baseline.series if (usual := usual_range(history.values))}
    compared = [SlowSpeed(key, value, ranges[key]) for key, value in speeds.items() if key in ranges and value > 0]
    slow = sorted((speed for speed in compared if speed.value < speed.usual.lowest), key=lambda speed: -speed.ratio)
    return Comparison(len(compared), tuple(slow), "" if compared else _why_not(ranges, speeds))


def _why_not(baseline_keys: Iterable[SpeedKey], speeds: Iterable[SpeedKey]) -> str:
    kinds = {key.kind for key in baseline_keys}
    run_kinds = {key.kind for key in speeds}
    if kinds & run_kinds:
        sizes = {(key.ranks, key.hosts) for key in baseline_keys if key.kind in run_kinds and key.op != EXCHANGE}
        texts = [filled("{0} ranks on {1} hosts", *size) for size in sorted(sizes)[:4]]
        return filled("the baseline has no run of this size: it has {0}", joined(", ", texts) if texts else "none")
    texts = [filled("{0} with {1} and torch {2}", *map(_clean_name, kind)) for kind in sorted(kinds)[:4]]
    mine = [filled("{0} with {1} and torch {2}", *map(_clean_name, kind)) for kind in sorted(run_kinds)[:1]]
    names = joined(", ", mine) if mine else "these speeds"
    return filled("the baseline has no run of {0}: it has {1}", names, joined(", ", texts) if texts else "none")


def _clean_name(text: str) -> str:
    return strip_control_chars(text, LONGEST_NAME)


def _key(history: SpeedHistory) -> SpeedKey:
    return SpeedKey(*msgspec.structs.astuple(history)[:-1])


def _baseline(series: Mapping[SpeedKey, Sequence[float]]) -> Baseline:
    """Raises: ValueError."""
    if len(series) > MOST_SERIES:
        raise ValueError(filled("it would have {0} kinds of speeds; expected at most {1}", len(series), MOST_SERIES))
    rows = sorted(series.items())
    fields = [(msgspec.structs.asdict(key), tuple(values[-MOST_RUNS:])) for key, values in rows]
    return Baseline(tuple(SpeedHistory(**of_key, values=values) for of_key, values in fields))


def site_file(environ: Mapping[str, str]) -> Path:
    """The file of this user's state folder. Raises: ValueError where there is none."""
    folder = state_folder(environ)
    if folder is None:
        raise ValueError("there is no home folder; expected a file")
    return folder / SITE_FILE


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Raises: OSError."""
    write_atomic(path, msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n", 0o644)


def read_baseline(path: Path) -> Baseline:
    """Raises: ValueError, which says what is wrong with the file; OSError."""
    data = read_bounded(path, MAX_FILE)
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != Baseline.VERSION:
            raise ValueError(filled("version {0}; expected {1}", version, Baseline.VERSION))
        baseline = msgspec.json.decode(data, type=Baseline)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(filled("{0}; expected a file of --save-baseline", error)) from None
    if len(baseline.series) > MOST_SERIES:
        raise ValueError(filled("{0} kinds of speeds; expected at most {1}", len(baseline.series), MOST_SERIES))
    for history in baseline.series:
        sizes = (history.bytes, history.ranks, history.hosts)
        if not all(0 < size <= MOST_BYTES for size in sizes) or not all(
            1 <= value <= MOST_RATE for value in history.values
        ):
            raise ValueError(filled("a speed or size of {0} is none that a run can have", _clean_name(history.op)))
    return _baseline({_key(history): history.values for history in baseline.series})


class _Version(msgspec.Struct):
    version: int = 1
