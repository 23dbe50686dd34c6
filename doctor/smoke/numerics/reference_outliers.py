"""Ranks whose serial twin is not that of their equals. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.facts.smoke import Twin
from doctor.smoke.model import Plan
from doctor.smoke.numerics.layout_trace import Split, split
from doctor.smoke.numerics.reference_run import LOSS, apart, middle


class Odd(msgspec.Struct, frozen=True):
    """Ranks whose serial twin is another one than most have on the same kind of device."""

    kind: str
    ranks: tuple[int, ...]
    agree: tuple[int, ...]
    """Those that agree with each other; empty for a tie."""
    init: bool
    """They differ before the first step: it is the random numbers, not the arithmetic."""
    share: float
    """The largest relative difference of a loss."""
    precision: tuple[float, float] = (0.0, 0.0)
    """Relative error of a product: on them, and on those that agree."""

    @property
    def how(self) -> str:
        if self.init:
            return "they begin with other parameters, so the random numbers differ"
        if 0 < 100 * min(self.precision) < max(self.precision):
            return "products of float32 are off by {:.0e} there, by {:.0e} on the others (TF32 or the like)".format(
                *self.precision
            )
        return f"losses differ by up to {self.share:.1e}" if self.share > LOSS else "only the last bits differ"


def odd_twins(plan: Plan, told: Mapping[int, Twin], names: Mapping[int, str] | None = None) -> list[Odd]:
    """Twins that are not equal bit for bit on one kind of device; on others than that, not equal to `LOSS`."""
    kinds: dict[str, dict[int, Twin]] = {}
    for rank, event in told.items():
        kinds.setdefault(_kind(plan, rank, names or {}), {})[rank] = event
    found = []
    for kind, group in sorted(kinds.items()):
        steps = min(len(event.losses) for event in group.values())
        bits = {
            rank: (event.init, event.losses[:steps], event.params if len(event.losses) == steps else 0)
            for rank, event in group.items()
        }
        found += _apart(kind, group, split(bits))
    if not found and len(kinds) > 1:
        ours = told[middle({rank: event.losses for rank, event in told.items()})]
        far = {rank: apart(event.losses, ours.losses) > LOSS for rank, event in told.items()}
        found += _apart("all devices", told, split(far))
    return found


def _kind(plan: Plan, rank: int, names: Mapping[int, str]) -> str:
    """Ranks of which the same bits may be expected: on one kind of accelerator, or on the CPUs of one host."""
    place = plan.places[rank]
    return names.get(rank, plan.backend) if place.device >= 0 else f"the CPUs of {place.host}"


def _apart(kind: str, group: Mapping[int, Twin], found: Split | None) -> list[Odd]:
    if not found:
        return []
    norm = group[found.agree[0] if found.agree else min(group)]
    others = [group[rank] for rank in found.against]
    share = max(apart(event.losses, norm.losses) for event in others)
    rough = (max(event.precision or 0.0 for event in others), norm.precision or 0.0)
    init = any(event.init != norm.init for event in others)
    return [Odd(kind, found.against, found.agree, init, share, rough)]
