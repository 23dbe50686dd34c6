"""The losses of a watched program as a report shows them: a curve in one line for each rank, and its figures."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from doctor.engine.language import localized, phrase
from doctor.engine.output_encoding import BLOCKS
from doctor.engine.result import Outcome
from doctor.engine.watch_summary import LossCurve
from doctor.report.layout.formatting import count_noun
from doctor.report.layout.page_model import Details

MAX_CURVES = 4
"""Curves that are shown, unless all is; those of ranks with a finding first."""
CURVE_CELLS = 50


def loss_lines(curves: Sequence[LossCurve], outcomes: Sequence[Outcome], full: bool) -> Details:
    """Labelled lines; ``full`` shows the curve of every rank."""
    named = _named_ranks(outcomes)
    ordered = sorted(curves, key=lambda curve: curve.rank not in named)
    displayed = ordered if full else ordered[:MAX_CURVES]
    lines: list[tuple[str, str]] = []
    for curve in displayed:
        rank = "" if curve.rank is None else f"rank {curve.rank}{localized(': ')}"
        ends = f"{number(curve.first)} {sparkline(curve.points, CURVE_CELLS)} {number(curve.last)}"
        lines.append(("loss", f"{rank}{ends}"))
        lines.append(("", localized(", ").join(_figures(curve))))
    if len(displayed) < len(ordered):
        more = count_noun(len(ordered) - len(displayed), "rank")
        lines.append(("", phrase("{ranks} more (-v shows all)", ranks=more)))
    return tuple(lines)


def _figures(curve: LossCurve) -> Iterator[str]:
    yield phrase("steps {first} to {last}", first=curve.first_step, last=curve.last_step)
    yield phrase("{count} losses", count=curve.losses)
    if curve.not_finite:
        yield phrase("{count} not finite", count=curve.not_finite)
    if curve.resumed_at is not None:
        yield phrase("went back to step {step}", step=curve.resumed_at)


def number(value: float | None) -> str:
    """A loss in four digits."""
    return localized("not finite") if value is None else f"{value:.4g}"


def _named_ranks(outcomes: Sequence[Outcome]) -> frozenset[object]:
    values: list[Mapping[str, object]] = [
        finding.values for outcome in outcomes if outcome.area in ("loss", "smoke") for finding in outcome.findings
    ]
    lists = [entry.get("ranks") for entry in values]
    return frozenset(rank for ranks in lists if isinstance(ranks, (list, tuple)) for rank in ranks[:64])


def sparkline(values: Sequence[float | None], width: int = 60) -> str:
    """The values as bars from the lowest to the highest; ``x`` stands for one that is not finite, or None.

    >>> sparkline([3.0, 2.0, 1.0, 1.0])
    '█▅▁▁'
    """
    columns = _columns([math.nan if value is None else value for value in values], width)
    finite = [value for value in columns if math.isfinite(value)]
    if not finite:
        return "x" * len(columns)
    low, high = min(finite), max(finite)
    span = high - low

    def mark(value: float) -> str:
        if not math.isfinite(value):
            return "x"
        return BLOCKS[min(len(BLOCKS) - 1, int((value - low) / span * len(BLOCKS)))] if span > 0 else BLOCKS[0]

    return "".join(map(mark, columns))


def _columns(values: Sequence[float], width: int) -> list[float]:
    """At most ``width`` values, each the mean of its part; not finite where one of them is not."""
    if len(values) <= width:
        return list(values)
    bounds = [len(values) * column // width for column in range(width + 1)]
    parts = (values[start:end] for start, end in itertools.pairwise(bounds))
    return [sum(part) / len(part) for part in parts]
