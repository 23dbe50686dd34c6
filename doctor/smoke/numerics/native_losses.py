"""torch's own parallel wrappers against the reference run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.facts.smoke.further_stages import NativeResult, SmokeNative
from doctor.smoke.model import SmokePlan
from doctor.smoke.numerics.defect import ranks_on
from doctor.smoke.numerics.reference_run import MajorityReference, relative_error


class NativeDeviation(msgspec.Struct, frozen=True):
    """A wrapper that differs from the reference run, from this step on."""

    api: str
    layout: str
    step: int
    observed: float | None
    """None: not finite."""
    expected: float | None
    ranks: tuple[int, ...]


def native_deviations(
    plan: SmokePlan, native: Mapping[str, SmokeNative], reference: MajorityReference
) -> Iterator[NativeDeviation]:
    """Wrappers that deviate, each with its first step and the ranks that report it."""
    for (layout, api), events in _runs(native).items():
        wrong: dict[int, tuple[int, float | None, float | None]] = {}
        for event in events:
            pairs = zip(event.losses, event.reference or reference.losses, strict=False)
            for step, (observed, expected) in enumerate(pairs):
                if relative_error(observed, expected) > reference.tolerance:
                    wrong[event.rank] = step, observed, expected
                    break
        if wrong:
            step, observed, expected = wrong[min(wrong, key=lambda rank: (wrong[rank][0], rank))]
            yield NativeDeviation(
                api, plan.layouts[layout].name, step, _rounded(observed), _rounded(expected), tuple(sorted(wrong))
            )


def _rounded(loss: float | None) -> float | None:
    return None if loss is None else float(f"{loss:.6g}")


def not_run(plan: SmokePlan, native: Mapping[str, SmokeNative]) -> list[str]:
    """Wrappers that came to no loss, and why."""
    reasons = []
    for (layout, api), events in _runs(native).items():
        texts = {event.rank: event.text for event in events if event.text}
        if texts:
            first = min(texts)
            ranks = ranks_on(plan, sorted(texts))
            reasons.append(filled("{0} in {1}, {2}: {3}", api, plan.layouts[layout].name, ranks, texts[first]))
    return reasons


def _runs(native: Mapping[str, SmokeNative]) -> dict[tuple[int, str], list[NativeResult]]:
    """The events of each wrapper in each layout."""
    runs = lists_by_key(((event.layout, event.api), event) for fact in native.values() for event in fact.native)
    return dict(sorted(runs.items()))
