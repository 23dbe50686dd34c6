"""What is wrong with the loss of a training, from the series of its ranks. Pure.

A verdict is made where chance does not explain it; `FALSE_ALARMS` says how often it was made of healthy trainings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from doctor.watch.loss.loss_series import CONSTANT_RUN, LossSeries
from doctor.watch.loss.rank_agreement import RankAgreement

Kind = Literal["not-finite", "diverged", "spiked", "stalled", "constant", "ranks-differ", "silent"]
KINDS: tuple[Kind, ...] = ("not-finite", "diverged", "ranks-differ", "constant", "stalled", "spiked", "silent")
"""In the order in which they are shown."""
WARNINGS: frozenset[Kind] = frozenset({"spiked", "stalled"})
"""Verdicts after which the training may still come out well."""


class LossVerdict(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: Kind
    text: str
    ranks: tuple[int, ...] = ()
    """Those that it is said of; empty for all, or where the logs name no rank."""
    step: int | None = None
    """Where it began."""
    advice: str = ""

    @property
    def is_warning(self) -> bool:
        return self.kind in WARNINGS


ADVICE: Mapping[Kind, str] = {
    "not-finite": (
        "Look at the steps before: a loss scale that fell to 1, no warm-up, a batch without a label. "
        "If one rank printed it first, check the memory errors of its device"
    ),
    "diverged": "Stop, go back to a checkpoint before that step, and lower the learning rate or raise the warm-up",
    "spiked": "Compare the data of these steps; if the loss does not come back, continue from a checkpoint before them",
    "stalled": (
        "Compare masks, shards and gradients between ranks (`doctor watch --data`), then learning rate and labels"
    ),
    "constant": "No update reaches the model, or each step reads the same batch: learning rate, frozen layers, loader",
    "ranks-differ": (
        "These ranks hold the same model and must print the same loss: compare seeds, data and library versions"
    ),
    "silent": "Look at what the ranks do: `doctor watch --attach`",
}


def judge(series: Mapping[int | None, LossSeries], agreement: RankAgreement | None = None) -> list[LossVerdict]:
    """All verdicts on the series, by rank, in the order of `KINDS`; a rank of None is that of logs that name none."""
    verdicts: list[LossVerdict] = []
    for kind in KINDS:
        ranks = [rank for rank, entry in series.items() if _holds(kind, entry)]
        if ranks:
            verdicts.append(_verdict(kind, ranks, series))
    if agreement is not None and agreement.differing:
        verdicts.append(_differing(agreement))
    has = {verdict.kind for verdict in verdicts}
    # What is not finite has no level; what is constant has not fallen either.
    hidden = {"stalled"} if has & {"constant", "diverged", "not-finite"} else set()
    hidden |= {"spiked"} if has & {"diverged", "not-finite"} else set()
    return sorted((entry for entry in verdicts if entry.kind not in hidden), key=lambda entry: KINDS.index(entry.kind))


def _holds(kind: Kind, series: LossSeries) -> bool:
    if kind == "not-finite":
        return series.not_finite_step is not None
    if kind == "constant":
        return series.constant_step is not None
    if series.takes_negative_values:
        return False
    if kind == "diverged":
        return series.diverged is not None
    if kind == "stalled":
        return series.stalled
    return kind == "spiked" and bool(series.spikes)


def _verdict(kind: Kind, ranks: list[int | None], series: Mapping[int | None, LossSeries]) -> LossVerdict:
    first = min((series[rank] for rank in ranks), key=lambda entry: _step(kind, entry))
    step = _step(kind, first)
    named = tuple(sorted(rank for rank in ranks if rank is not None and _step(kind, series[rank]) == step))
    every = len(ranks) == len(series) and (len(named) in (0, len(series)) or len(series) == 1)
    who = "" if every or not named else f" of rank{'s' if len(named) > 1 else ''} {ranges(named)}"
    return LossVerdict(kind, _TEXTS[kind](first, who), () if every else named, step, ADVICE[kind])


def _step(kind: Kind, series: LossSeries) -> int:
    steps = {
        "not-finite": series.not_finite_step,
        "constant": series.constant_step,
        "diverged": series.diverged.step if series.diverged else None,
        "spiked": series.spikes[0].step if series.spikes else None,
        "stalled": series.first_step,
    }
    return steps.get(kind) or 0


def _not_finite(series: LossSeries, who: str) -> str:
    if series.last is not None and math.isfinite(series.last.value):
        return f"the loss{who} was {series.not_finite_text} from step {series.not_finite_step}, and is finite again"
    return f"the loss{who} is {series.not_finite_text} since step {series.not_finite_step}"


def _constant(series: LossSeries, who: str) -> str:
    return f"the loss{who} is the same to its last digit for {CONSTANT_RUN} steps since step {series.constant_step}"


def _diverged(series: LossSeries, who: str) -> str:
    rise = series.diverged
    assert rise
    return f"the loss{who} rose from {rise.before:.4g} at step {rise.step} to {rise.after:.4g}, and stays there"


def _spiked(series: LossSeries, who: str) -> str:
    rise = series.spikes[0]
    more = f"; {series.spike_count} times in all" if series.spike_count > 1 else ""
    return f"the loss{who} jumped from {rise.before:.4g} to {rise.after:.4g} at step {rise.step}{more}"


def _stalled(series: LossSeries, who: str) -> str:
    fallen = series.fall()
    share = max(fallen[1], 0.0) if fallen else 0.0
    return (
        f"the loss{who} does not fall: by at most {share:.1%} in the {series.lines} steps since it was "
        f"{sum(series.first) / len(series.first):.4g}"
    )


_TEXTS = {
    "not-finite": _not_finite,
    "constant": _constant,
    "diverged": _diverged,
    "spiked": _spiked,
    "stalled": _stalled,
}


def _differing(agreement: RankAgreement) -> LossVerdict:
    difference = agreement.differing
    assert difference
    examples = ", ".join(f"rank {rank}: {value:.6g}" for rank, value in sorted(difference.values.items())[:4])
    before = f" after {agreement.equal_steps} steps on which it was equal" if agreement.equal_steps else ""
    outliers = f"; the others agree without {_who(difference.outliers)}" if difference.outliers else ""
    text = f"the loss differs between ranks since step {difference.step}{before} ({examples}){outliers}"
    return LossVerdict("ranks-differ", text, difference.outliers, difference.step, ADVICE["ranks-differ"])


def silent_verdict(seconds: float, usual: float, ranks: Iterable[int | None] = ()) -> LossVerdict:
    """No loss came for longer than the training's habit allows."""
    named = tuple(sorted(rank for rank in ranks if rank is not None))
    who = f" of {_who(named)}" if named else ""
    text = f"no loss{who} for {seconds:.0f} s; before, the longest wait was {usual:.0f} s"
    return LossVerdict("silent", text, named, None, ADVICE["silent"])


def _who(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as ranges.

    >>> ranges([0, 1, 2, 5])
    '0-2,5'
    """
    return ",".join(_parts(sorted(set(numbers))))


def _parts(numbers: list[int]) -> Iterator[str]:
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            first, last = numbers[start], numbers[index - 1]
            yield str(first) if first == last else f"{first}-{last}"
            start = index
