"""Learning rates, schedulers, scalers, steps and averages that a rank goes on with, against those of the save. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import isclose

from doctor.engine.sanitize import printable
from doctor.watch.data.group_roles import name_tensors
from doctor.watch.resume.compare_data import Row, Values
from doctor.watch.resume.marks import Mark, Number, row_of

RATE_TOLERANCE = 1e-6


def _rate_rows(was: Mark, now: Mark, _: bool) -> Iterator[Row]:
    before, rates, first = _rates(was.groups), _rates(now.groups), _numbers(was.lr0)
    if before and len(before) == len(rates) and not _close(before, rates):
        values: Values = {"now": f"{rates[0]:.4g}", "before": f"{before[0]:.4g}"}
        again = len(first) == len(rates) and _close(first, rates)
        yield ("rate-restart", "soft", (), values) if again else ("rate", "note", (), values)
    for earlier, group in zip(was.groups, now.groups, strict=False):
        for name in sorted(earlier.keys() & group.keys() - {"lr", "initial_lr"}):
            if earlier[name] != group[name]:
                values = {"name": str(name), "now": str(group[name])[:80], "before": str(earlier[name])[:80]}
                yield "settings", "note", (), values


def _scheduler_rows(was: Mark, now: Mark, is_same_script: bool) -> Iterator[Row]:
    first, before, rates = was.lr0, _rates(was.groups), _rates(now.groups)
    # One that is lost leaves the rate that the optimizer loaded, or begins where the first run began.
    is_new = bool(rates) and not any(
        len(kept) == len(rates) and _close(kept, rates) for kept in (before, _numbers(first))
    )
    hardness = "note" if is_new and before and first else "scheduler"
    for earlier, scheduler in zip(was.schedulers, now.schedulers, strict=False):
        count, begin = earlier.get("at"), scheduler.get("at")
        if earlier.get("n") != scheduler.get("n") or not isinstance(count, int) or not isinstance(begin, int):
            continue
        if count > 0 and begin != count:
            values: Values = {"name": str(earlier.get("n"))[:60], "now": begin, "before": count}
            yield "scheduler", "scheduler" if begin else hardness, (), values
    for earlier in was.schedulers[len(now.schedulers) :]:
        if isinstance(count := earlier.get("at"), int) and count > 0:
            values = {"name": str(earlier.get("n"))[:60], "before": count}
            yield "scheduler-gone", "soft" if is_same_script else "note", (), values


def _scaler_rows(was: Mark, now: Mark, is_same_script: bool) -> Iterator[Row]:
    for earlier, scaler in zip(was.scalers, now.scalers, strict=False):
        if earlier.get("scale") != scaler.get("scale"):
            values: Values = {"now": str(scaler.get("scale"))[:20], "before": str(earlier.get("scale"))[:20]}
            yield "scaler", "scaler", (), values
        elif earlier.get("good") != scaler.get("good"):
            values = {"now": int(scaler.get("good", 0)), "before": int(earlier.get("good", 0))}
            yield "scaler-steps", "scaler", (), values
    for earlier in was.scalers[len(now.scalers) :]:
        values = {"before": str(earlier.get("scale"))[:20]}
        yield "scaler-gone", "soft" if is_same_script else "note", (), values


def _step_rows(was: Mark, now: Mark, _: bool) -> Iterator[Row]:
    """The optimizer's own counts, where it has its moments."""
    if not any(name in now.states for name in was.states):
        return
    counted, counts = max(step_counts(was.numbers), default=0.0), step_counts(now.numbers)
    common = [name for name in was.numbers.keys() & now.numbers.keys() if name.startswith("step of ")]
    other = [float(now.numbers[name]) for name in sorted(common) if was.numbers[name] != now.numbers[name]]
    at = max(counts, default=0.0) if max(counts, default=0.0) != counted else min(other, default=counted)
    if counted and at != counted:
        yield "steps", "hard", (), {"now": f"{at:g}", "before": f"{counted:g}"}


def _average_rows(was: Mark, now: Mark, _: bool) -> Iterator[Row]:
    """Averages of the parameters (`torch.optim.swa_utils.AveragedModel`) that have taken in something."""
    for number, (before, count) in enumerate(zip(was.averaged, now.averaged, strict=False)):
        averages = [name for name in was.averages if name.startswith(f"{number}:") and _comparable(was, now, name)]
        other = [name for name in averages if row_of(was.averages, name) != row_of(now.averages, name)]
        if before and other and count <= before:
            values: Values = {
                "count": len(other),
                "total": len(averages),
                "tensors": name_tensors(sorted(name.partition(":")[2] for name in other)),
            }
            yield "average", "soft", (), values
        elif count < before:
            yield "average-count", "hard", (), {"now": count, "before": before}


def _copy_rows(was: Mark, now: Mark, __: bool) -> Iterator[Row]:
    """Copies of the parameters, such as an average or a frozen reference, that had values of their own at the save.

    They were made anew where they are the parameters of now, or what they were in the beginning.
    """
    labels: dict[str, list[tuple[str, str]]] = {}
    for name in sorted(was.averages.keys() & now.averages.keys()):
        label, _, parameter = name.partition(":")
        if not label.isdecimal() and row_of(now.model, parameter):
            labels.setdefault(label, []).append((name, parameter))
    for label, pairs in labels.items():
        digests = [
            (row_of(now.averages, name), row_of(was.averages, name), row_of(was.averages0, name), parameter)
            for name, parameter in pairs
        ]
        is_new = all(digest == row_of(now.model, parameter) for digest, _, _, parameter in digests)
        has_moved = any(digest != first for _, digest, first, _ in digests)
        is_first = has_moved and all(digest == first for digest, _, first, _ in digests)
        was_own = any(digest != row_of(was.model, parameter) for _, digest, _, parameter in digests)
        if was_own and (is_first or (is_new and (has_moved or label in was.modules0))):
            yield "copy", "soft", (), {"name": printable(label, 80)}


def _comparable(was: Mark, now: Mark, name: str) -> bool:
    """Of one type; and in shards only among as many ranks."""
    before, after = row_of(was.averages, name), row_of(now.averages, name)
    in_shards = max(len(mark.averages.get(name, ())) for mark in (was, now)) > 4
    return bool(before and after and before[1] == after[1]) and (was.w == now.w or not in_shards)


JUDGES: tuple[Callable[[Mark, Mark, bool], Iterator[Row]], ...] = (
    *(_rate_rows, _scheduler_rows, _scaler_rows, _step_rows, _average_rows, _copy_rows),
)
"""Each: of the mark of the save, that of now, and whether the same script goes on: kind, hardness, ranks, values."""


def step_counts(numbers: Mapping[str, Number]) -> list[float]:
    """Of each parameter for which the optimizer counts its steps."""
    return [
        float(value)
        for name, value in numbers.items()
        if name.startswith("step of ") and isinstance(value, float | int)
    ]


def other_numbers(was: Mapping[str, Number], now: Mapping[str, Number]) -> list[str]:
    """Of what an optimizer keeps of a parameter, beside its steps: numbers that differ by more than bfloat16 rounds."""
    pairs = ((name, value, now.get(name)) for name, value in sorted(was.items()) if not name.startswith("step of "))
    numeric = ((name, a, b) for name, a, b in pairs if isinstance(a, float | int) and isinstance(b, float | int))
    return [name for name, a, b in numeric if not isclose(a, b, rel_tol=0.01)]


def _rates(groups: Iterable[Mapping[str, object]]) -> list[float]:
    return _numbers(group.get("lr") for group in groups)


def _numbers(rates: Iterable[object]) -> list[float]:
    return [float(rate) for rate in rates if isinstance(rate, float | int)]


def _close(some: Sequence[float], others: Sequence[float]) -> bool:
    return all(abs(a - b) <= RATE_TOLERANCE * max(abs(a), abs(b)) for a, b in zip(some, others, strict=True))
