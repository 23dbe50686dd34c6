"""What is wrong with the loss of a training, from the series of its ranks. Pure.

A verdict is made where chance does not explain it; `tests/watch/test_loss_verdicts.py` measures how often it was made
of healthy trainings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from doctor.engine.sanitize import count_noun, number_ranges
from doctor.engine.texts import filled
from doctor.engine.watch_summary import LOSS_RULES, LossRule, LossVerdict
from doctor.watch.loss.loss_series import CONSTANT_RUN, LossSeries, not_finite_text
from doctor.watch.loss.rank_agreement import RankAgreement

AT_END: LossRule = "ends-not-finite"


def judge(
    series: Mapping[int | None, LossSeries], agreement: RankAgreement | None = None, is_over: bool = True
) -> list[LossVerdict]:
    """All verdicts on the series, by rank, in their order; a rank of None is that of logs that name none.

    ``is_over``: the next loss is not waited for, which may show that the last one was a step left out.
    """
    verdicts: list[LossVerdict] = []
    for kind in LOSS_RULES:
        ranks = [rank for rank, entry in series.items() if _holds(kind, entry)] if is_over or kind != AT_END else []
        if ranks:
            verdicts.append(_verdict(kind, ranks, series))
    if agreement is not None and agreement.differing:
        verdicts.append(_differing(agreement))
    has = {verdict.kind for verdict in verdicts}
    # What is not finite has no level; what is constant has not fallen either.
    hidden = {"stalled"} if has & {"constant", "diverged", "not-finite"} else set()
    hidden |= {"spiked"} if has & {"diverged", "not-finite"} else set()
    hidden |= {AT_END} if "not-finite" in has else set()
    return sorted(
        (entry for entry in verdicts if entry.kind not in hidden), key=lambda entry: LOSS_RULES.index(entry.kind)
    )


def _holds(kind: LossRule, series: LossSeries) -> bool:
    if kind == "not-finite":
        return series.not_finite_step is not None
    if kind == AT_END:
        return series.ends_not_finite
    if kind == "constant":
        return series.constant_step is not None
    if series.takes_negative_values:
        return False
    if kind == "diverged":
        return series.diverged is not None
    if kind == "stalled":
        return series.stalled
    return kind == "spiked" and bool(series.spikes)


def _verdict(kind: LossRule, ranks: list[int | None], series: Mapping[int | None, LossSeries]) -> LossVerdict:
    first = min((series[rank] for rank in ranks), key=lambda entry: _step(kind, entry))
    step = _step(kind, first)
    named = tuple(sorted(rank for rank in ranks if rank is not None and _step(kind, series[rank]) == step))
    every = len(ranks) == len(series) and (len(named) in (0, len(series)) or len(series) == 1)
    of_whom = "" if every or not named else filled(" of {0}", _who(named))
    values = {"of_whom": of_whom, "step": step, **_VALUES[kind](first)}
    last = first.last
    is_over = kind == "not-finite" and last is not None and math.isfinite(last.value)
    return LossVerdict(kind, () if every else named, step, values, is_over)


def _step(kind: LossRule, series: LossSeries) -> int:
    steps = {
        "not-finite": series.not_finite_step,
        AT_END: series.last_step,
        "constant": series.constant_step,
        "diverged": series.diverged.step if series.diverged else None,
        "spiked": series.spikes[0].step if series.spikes else None,
        "stalled": series.first_step,
    }
    return steps.get(kind) or 0


Values = dict[str, str | int | float]


def _not_finite(series: LossSeries) -> Values:
    return {"number": series.not_finite_text}


def _ends_not_finite(series: LossSeries) -> Values:
    assert series.last
    return {"number": not_finite_text(series.last.value)}


def _constant(series: LossSeries) -> Values:
    return {"rate": "its own", "count": CONSTANT_RUN}


def _diverged(series: LossSeries) -> Values:
    rise = series.diverged
    assert rise
    return {"before": f"{rise.before:.4g}", "after": f"{rise.after:.4g}"}


def _spiked(series: LossSeries) -> Values:
    rise = series.spikes[0]
    more = filled("; {0} times in all", series.spike_count) if series.spike_count > 1 else ""
    return {"before": f"{rise.before:.4g}", "after": f"{rise.after:.4g}", "more": more}


def _stalled(series: LossSeries) -> Values:
    fallen = series.fall()
    share = max(fallen[1], 0.0) if fallen else 0.0
    start = sum(series.first) / len(series.first)
    return {"rate": "its own", "share": f"{share:.1%}", "count": series.lines, "before": f"{start:.4g}"}


_VALUES = {
    "not-finite": _not_finite,
    AT_END: _ends_not_finite,
    "constant": _constant,
    "diverged": _diverged,
    "spiked": _spiked,
    "stalled": _stalled,
}


def _differing(agreement: RankAgreement) -> LossVerdict:
    difference = agreement.differing
    assert difference
    examples = ", ".join(
        filled("rank {0}: {1}", rank, f"{value:.6g}") for rank, value in sorted(difference.values.items())[:4]
    )
    steps = count_noun(agreement.equal_steps, "step")
    before = filled(" after {0} on which it was equal", steps) if agreement.equal_steps else ""
    others = filled("; the others agree without {0}", _who(difference.outliers)) if difference.outliers else ""
    values: Values = {"step": difference.step, "before": before, "examples": examples, "others": others}
    return LossVerdict("ranks-differ", difference.outliers, difference.step, values)


def silent_verdict(seconds: float, usual: float, ranks: Iterable[int | None] = ()) -> LossVerdict:
    """No loss came for longer than the training's habit allows."""
    named = tuple(sorted(rank for rank in ranks if rank is not None))
    of_whom = filled(" of {0}", _who(named)) if named else ""
    return LossVerdict(
        "silent", named, None, {"of_whom": of_whom, "seconds": f"{seconds:.0f}", "usual": f"{usual:.0f}"}
    )


def _who(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {number_ranges(ranks)}"
