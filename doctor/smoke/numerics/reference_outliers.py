"""Ranks whose reference run differs from that of other ranks on the same device type. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal

import msgspec

from doctor.analysis.majority import Split
from doctor.analysis.values.splits import majority_split
from doctor.engine.texts import filled
from doctor.facts.smoke.training import ReferenceRun
from doctor.smoke.model import SmokePlan
from doctor.smoke.numerics.reference_run import LOSS_TOLERANCE, MAX_TOLERANCE, largest_difference, median_rank

ROUGH = 100
"""Times the relative error of another rank's products from which on one computes with fewer bits, or wrongly."""


class Outlier(msgspec.Struct, frozen=True):
    """Ranks whose reference run is another one than most have on the same kind of device."""

    kind: str
    ranks: tuple[int, ...]
    agreeing: tuple[int, ...]
    """Those that agree with each other; empty for a tie."""
    init: bool
    """They differ before the first step: it is the random numbers, not the arithmetic."""
    share: float
    """The largest relative difference of a loss."""
    precision: tuple[float, float] = (0.0, 0.0)
    """Relative error of a product: on them, and on those that agree."""
    unrepeated: Literal["", "repeated", "layout", "formula"] = ""
    """What differs, by that share, when it is computed again."""

    @property
    def explanation(self) -> str:
        if self.init:
            return "they begin with other parameters, so the random numbers differ"
        if 0 < ROUGH * min(self.precision) < max(self.precision):
            return filled(
                "products of float32 are off by {0} there, by {1} on the others (TF32 or the like)",
                *(f"{error:.0e}" for error in self.precision),
            )
        if self.share > LOSS_TOLERANCE:
            return filled("losses differ by up to {0}", f"{self.share:.1e}")
        return "only the last bits differ"


def find_outliers(
    plan: SmokePlan, events: Mapping[int, ReferenceRun], names: Mapping[int, str] | None = None
) -> list[Outlier]:
    """Reference runs not equal bit for bit on one kind of device and code path, or not to `LOSS_TOLERANCE` between."""
    kinds: dict[tuple[str, str], dict[int, ReferenceRun]] = {}
    for rank, event in events.items():
        kinds.setdefault((_kind(plan, rank, names or {}), event.code_path), {})[rank] = event
    outliers = _not_repeated(plan, events)
    reported = {rank for outlier in outliers for rank in outlier.ranks}
    for (kind, _), group in sorted(kinds.items()):
        split = majority_split(_comparable_bits(group))
        if not split or not reported.intersection(split.differing):
            outliers += _outlier(kind, group, split)
    if not outliers and len(kinds) > 1:
        ours = events[median_rank({rank: event.losses for rank, event in events.items()})]
        far = {rank: largest_difference(event.losses, ours.losses) > LOSS_TOLERANCE for rank, event in events.items()}
        outliers += _outlier("all devices", events, majority_split(far))
    return outliers


def _not_repeated(plan: SmokePlan, events: Mapping[int, ReferenceRun]) -> list[Outlier]:
    """Ranks that came to other numbers when they computed a step again, on the same input, or by the formulas.

    A reference run that differs names its rank. On a CPU a first step is equal; an accelerator may add
    in any order, within `LOSS_TOLERANCE`. Of the formulas an accelerator's products may be as far as any result, and
    where all ranks are, it is the library.
    """
    outliers: list[Outlier] = []
    reported: set[int] = set()
    for kind, limits in REPEATED.items():
        shares = {
            rank: share
            for rank, event in events.items()
            if (share := getattr(event, kind)) > limits[plan.places[rank].device >= 0] and rank not in reported
        }
        if kind == "formula" and len(shares) == len(events):
            break
        reported |= shares.keys()
        if shares:
            others = tuple(rank for rank in events if rank not in shares)
            outliers.append(Outlier("repeat", tuple(shares), others, False, max(shares.values()), unrepeated=kind))
    return outliers


REPEATED: dict[Literal["repeated", "layout", "formula"], tuple[float, float]] = {
    "repeated": (0.0, LOSS_TOLERANCE),
    "layout": (0.0, LOSS_TOLERANCE),
    "formula": (LOSS_TOLERANCE, MAX_TOLERANCE),
}
"""What is computed again: the reference run, a rank's part of each layout, losses by the formulas. With the limits of a
CPU and of an accelerator."""


def _comparable_bits(group: Mapping[int, ReferenceRun]) -> dict[int, tuple[object, ...]]:
    """What each rank can be compared by: the losses of the steps that all have done, and the parameters behind them.

    And whether its products are far less exact than others': it alone would widen the tolerance of the whole run.
    Parameters from behind another number of steps than most ranks' say nothing: they count as those of the ranks with
    the same losses.
    """
    steps = min(len(event.losses) for event in group.values())
    taken = {rank: event.params_step or len(event.losses) for rank, event in group.items()}
    common = Counter(taken.values()).most_common(1)[0][0]
    losses = {rank: (event.init, event.losses[:steps]) for rank, event in group.items()}
    params: dict[tuple[object, ...], Counter[int]] = {}
    for rank, event in group.items():
        if taken[rank] == common:
            params.setdefault(losses[rank], Counter())[event.params] += 1
    usual = {key: votes.most_common(1)[0][0] for key, votes in params.items()}
    exact = min((event.precision for event in group.values() if event.precision), default=0.0)
    rough = {rank: 0 < ROUGH * exact < (event.precision or 0.0) for rank, event in group.items()}
    return {
        rank: (*losses[rank], event.params if taken[rank] == common else usual.get(losses[rank]), rough[rank])
        for rank, event in group.items()
    }


def _kind(plan: SmokePlan, rank: int, names: Mapping[int, str]) -> str:
    """The hardware that should give the same bits with one code path: an accelerator, or the CPUs of one host."""
    place = plan.places[rank]
    return names.get(rank, plan.backend) if place.device >= 0 else filled("the CPUs of {0}", place.host)


def _outlier(kind: str, group: Mapping[int, ReferenceRun], split: Split[int] | None) -> list[Outlier]:
    if not split:
        return []
    norm = group[split.agreeing[0] if split.agreeing else min(group)]
    others = [group[rank] for rank in split.differing]
    share = max(largest_difference(event.losses, norm.losses) for event in others)
    rough = (max(event.precision or 0.0 for event in others), norm.precision or 0.0)
    init = any(event.init != norm.init for event in others)
    return [Outlier(kind, split.differing, split.agreeing, init, share, rough)]
