"""Losses step by step, beside those of the reference run, as places in a drawing. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from doctor.engine.language import localized
from doctor.engine.smoke_summary import SmokeSummary
from doctor.engine.watch_summary import LossCurve
from doctor.report.layout.formatting import clean

WIDTH, HEIGHT = 640, 240
LEFT, TOP, RIGHT, BOTTOM = 56, 12, 12, 34
REFERENCE = "reference run"
MAX_CURVES = 24
"""Layouts that are drawn; the table has all."""
MAX_DOTS = 60
"""Points of a curve that are drawn as such; of more, the line alone."""
MAX_LOSS = 1e100
"""A loss beyond it is as good as none."""

Losses = Sequence[float | None]


class Curve(msgspec.Struct, frozen=True):
    """One curve: a name, a number for the style (0: the reference run), the runs of steps in which it was finite."""

    name: str
    number: int
    pieces: tuple[str, ...]
    """Points of each run, as an SVG polyline has them."""
    points: tuple[tuple[float, float], ...]
    losses: tuple[str, ...]
    error: str = ""
    """The largest relative difference from the reference run, in words; empty for the reference run itself."""


class LossChart(msgspec.Struct, frozen=True):
    """Curves with common axes."""

    curves: tuple[Curve, ...]
    """The reference run first, where there is one."""
    steps: int
    ticks: tuple[tuple[float, str], ...]
    """Height and value of the lines across."""
    marks: tuple[tuple[float, int], ...]
    """Place and number of the steps that are named."""
    places: tuple[int, ...] = ()
    """The step of each point; empty: they are the steps."""


def training_chart(summary: SmokeSummary) -> LossChart | None:
    """Each layout beside the reference run; None where no loss was measured."""
    named: list[tuple[str, Losses, str]] = []
    if summary.reference_losses:
        named.append((REFERENCE, summary.reference_losses, ""))
    for layout in summary.layouts:
        if layout.losses:
            error = (
                localized("not compared") if layout.error is None else f"{layout.error:.1e}" if layout.error else "0"
            )
            named.append((clean(layout.layout, 60), layout.losses, error))
    return _chart(named)


def learning_chart(summary: SmokeSummary) -> LossChart | None:
    """The loss of the learning stage; None where it was not measured."""
    return _chart([(localized("learning"), summary.learning_losses, "")] if summary.learning_losses else [])


def watched_chart(curves: Sequence[LossCurve]) -> LossChart | None:
    """The losses of a watched program, by rank; None where none were read. Points are means of several steps."""
    named: list[tuple[str, Losses, str]] = [
        (localized("loss") if curve.rank is None else f"rank {curve.rank}", curve.points, "")
        for curve in curves[:MAX_CURVES]
    ]
    chart = _chart(named)
    if chart is None:
        return None
    longest = max(curves[:MAX_CURVES], key=lambda curve: len(curve.points))
    first, last = longest.first_step or 0, longest.last_step or 0
    step = (last - first) / max(chart.steps - 1, 1)
    marks = tuple((place, round(first + number * step)) for place, number in chart.marks)
    places = tuple(round(first + number * step) for number in range(chart.steps))
    drawn = [msgspec.structs.replace(curve, points=()) if chart.steps > MAX_DOTS else curve for curve in chart.curves]
    return msgspec.structs.replace(chart, curves=tuple(drawn), marks=marks, places=places)


def _drawable(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) and abs(loss) < MAX_LOSS else None


def _chart(named: Sequence[tuple[str, Losses, str]]) -> LossChart | None:
    named = [(name, [_drawable(loss) for loss in losses], error) for name, losses, error in named]
    finite = [loss for _, losses, _ in named for loss in losses if loss is not None]
    steps = max((len(losses) for _, losses, _ in named), default=0)
    if not steps:
        return None
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    margin = (high - low) * 0.05 or max(abs(high) * 0.01, 1e-6)
    low, high = low - margin, high + margin
    across = (WIDTH - LEFT - RIGHT) / max(steps - 1, 1)

    def place(step: int, loss: float) -> tuple[float, float]:
        height = (high - loss) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + step * across, 1), round(TOP + height, 1)

    curves = []
    for number, (name, losses, error) in enumerate(named, start=int(named[0][0] != REFERENCE)):
        runs: list[list[tuple[float, float]]] = [[]]
        for step, loss in enumerate(losses):
            if loss is None:
                runs.append([])
            else:
                runs[-1].append(place(step, loss))
        pieces = tuple(" ".join(f"{x},{y}" for x, y in run) for run in runs if len(run) > 1)
        points = tuple(point for run in runs for point in run)
        texts = tuple(localized("not finite") if loss is None else f"{loss:.6g}" for loss in losses)
        label = localized(name) if name == REFERENCE else name
        curves.append(Curve(label, number, pieces, points, texts, error))
    values = [low + (high - low) * part / 4 for part in range(5)]
    every = max(1, -(-steps // 12))
    return LossChart(
        tuple(curves),
        steps,
        tuple((place(0, value)[1], f"{value:.4g}") for value in values),
        tuple((place(step, low)[0], step) for step in range(0, steps, every)),
    )
