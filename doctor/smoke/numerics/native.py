"""torch's own parallel wrappers against the serial twin. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from doctor.facts.smoke import Native, SmokeNative
from doctor.smoke.model import Plan
from doctor.smoke.numerics.defect import ranks_on
from doctor.smoke.numerics.reference_run import Twins, relative


class OffNative(msgspec.Struct, frozen=True):
    """A wrapper that does not train as the twin does, from this step on."""

    api: str
    layout: str
    step: int
    saw: float | None
    """None: not finite."""
    want: float | None
    ranks: tuple[int, ...]


def off(plan: Plan, native: Mapping[str, SmokeNative], twin: Twins) -> Iterator[OffNative]:
    """Wrappers that are off, each with its first step and the ranks that tell of it."""
    for (layout, api), told in _runs(native).items():
        wrong: dict[int, tuple[int, float | None, float | None]] = {}
        for event in told:
            pairs = zip(event.losses, event.twin or twin.losses, strict=False)
            for step, (saw, want) in enumerate(pairs):
                if relative(saw, want) > twin.tolerance:
                    wrong[event.rank] = step, saw, want
                    break
        if wrong:
            step, saw, want = wrong[min(wrong, key=lambda rank: (wrong[rank][0], rank))]
            yield OffNative(api, plan.layouts[layout].name, step, _short(saw), _short(want), tuple(sorted(wrong)))


def _short(loss: float | None) -> float | None:
    return None if loss is None else float(f"{loss:.6g}")


def not_run(plan: Plan, native: Mapping[str, SmokeNative]) -> list[str]:
    """Wrappers that came to no loss, and why."""
    missing = []
    for (layout, api), told in _runs(native).items():
        texts = {event.rank: event.text for event in told if event.text}
        if texts:
            first = min(texts)
            missing.append(f"{api} in {plan.layouts[layout].name}, {ranks_on(plan, sorted(texts))}: {texts[first]}")
    return missing


def _runs(native: Mapping[str, SmokeNative]) -> dict[tuple[int, str], list[Native]]:
    """What was told of each wrapper in each layout."""
    runs: dict[tuple[int, str], list[Native]] = {}
    for fact in native.values():
        for event in fact.native:
            runs.setdefault((event.layout, event.api), []).append(event)
    return dict(sorted(runs.items()))
