"""What `doctor watch --log` prints: the verdicts and the curve, as text and as JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from doctor.engine.exit_code import Exit
from doctor.engine.sanitize import count_noun, printable
from doctor.watch.labelled_lines import LABEL_WIDTH, folded, labelled
from doctor.watch.loss.log_watch import MIN_JUDGED, LogWatch
from doctor.watch.loss.loss_series import LossSeries
from doctor.watch.loss.loss_verdicts import LossVerdict
from doctor.watch.loss.sparkline import sparkline

SCHEMA = "doctor.watch-log/1"
MAX_CURVES = 4
"""Curves of ranks that are shown; those of ranks with a verdict first."""


def exit_code(watch: LogWatch, verdicts: Sequence[LossVerdict], *, strict: bool = False) -> int:
    """10 something is wrong; 11 with ``strict``, a warning; 78 no line tells a loss; 12 too few do; 0 none is wrong."""
    if any(not verdict.is_warning for verdict in verdicts):
        return Exit.FAILED
    if not watch.losses:
        return Exit.NOTHING
    if verdicts and strict:
        return Exit.WARNINGS
    return Exit.HEALTHY if watch.decided else Exit.UNKNOWN


def render_text(
    watch: LogWatch,
    verdicts: Sequence[LossVerdict],
    notes: Sequence[str],
    width: int,
    *,
    unicode: bool = True,
    bold: bool = False,
    verbose: bool = False,
) -> str:
    """The report; ``width`` 0 does not fold lines."""
    head = headline(watch, verdicts)
    lines = list(folded(head, width, ""))
    if bold:
        lines = [f"\x1b[1m{line}\x1b[0m" for line in lines]
    for verdict in verdicts:
        mark = "warning" if verdict.is_warning else "error"
        lines += ["", *labelled(mark, f"{verdict.text} ({verdict.kind})", width)]
        lines += labelled("", f"{verdict.advice}.", width)
    if watch.losses:
        lines += ["", *_curves(watch, verdicts, width, unicode, verbose)]
    for note in notes:
        lines += labelled("note", printable(note, 300), width)
    return "\n".join(lines) + "\n"


def headline(watch: LogWatch, verdicts: Sequence[LossVerdict]) -> str:
    """The report in one sentence."""
    series = watch.series
    if not series:
        return "Undecidable: no line tells a loss; --loss-regex says how one is told."
    ranks = f" of {count_noun(len(series), 'rank')}" if len(series) > 1 else ""
    counted = f"{count_noun(watch.losses, 'loss', 'losses')}{ranks}"
    errors = sum(not verdict.is_warning for verdict in verdicts)
    if errors:
        return f"{count_noun(errors, 'error')} in {counted}."
    if not watch.decided:
        return f"Undecidable: {counted}; a verdict needs {MIN_JUDGED} of one rank."
    if verdicts:
        return f"{count_noun(len(verdicts), 'warning')} in {counted}."
    return f"No error in {counted}."


def _curves(
    watch: LogWatch, verdicts: Sequence[LossVerdict], width: int, unicode: bool, verbose: bool
) -> Iterator[str]:
    series = watch.series
    named = [rank for verdict in verdicts for rank in verdict.ranks if rank in series]
    order = list(dict.fromkeys([*named, *sorted(series, key=lambda rank: -1 if rank is None else rank)]))
    displayed = order if verbose else order[:MAX_CURVES]
    for rank in displayed:
        entry = series[rank]
        label = "loss" if rank is None else f"rank {rank}"
        first, last = (_number(value) for value in _ends(entry))
        room = max(10, min(60, (width or 120) - LABEL_WIDTH - len(first) - len(last) - 4))
        yield f"{label:<{LABEL_WIDTH}}{first} {sparkline(entry.drawn, room, unicode=unicode)} {last}"
        extra = f", {entry.not_finite_count} not finite" if entry.not_finite_count else ""
        resumed = f", went back to step {entry.resumed_at}" if entry.resumed_at is not None else ""
        steps = f"steps {entry.first_step} to {entry.last_step}"
        about = f"{steps}, {count_noun(entry.lines, 'loss', 'losses')}{extra}{resumed}"
        yield from labelled("", about, width)
    if len(displayed) < len(order):
        yield from labelled("", f"{count_noun(len(order) - len(displayed), 'rank')} more (--verbose)", width)


def _ends(series: LossSeries) -> tuple[float, float]:
    last = series.last.value if series.last else math.nan
    return (series.first[0] if series.first else last), last


def _number(value: float) -> str:
    return f"{value:.4g}"


def document(watch: LogWatch, verdicts: Sequence[LossVerdict], notes: Sequence[str], code: int) -> dict[str, Any]:
    """The same for JSON: what is not finite is a string, since JSON has no number for it."""
    return {
        "schema": SCHEMA,
        "exit_code": code,
        "headline": headline(watch, verdicts),
        "verdicts": [
            {
                "kind": verdict.kind,
                "severity": "warning" if verdict.is_warning else "error",
                "text": verdict.text,
                "ranks": list(verdict.ranks),
                "step": verdict.step,
                "advice": verdict.advice,
            }
            for verdict in verdicts
        ],
        "ranks": [
            {
                "rank": rank,
                "losses": entry.lines,
                "not_finite": entry.not_finite_count,
                "first_step": entry.first_step,
                "last_step": entry.last_step,
                "first": _json_number(_ends(entry)[0]),
                "last": _json_number(_ends(entry)[1]),
                "curve": [_json_number(value) for value in entry.drawn],
            }
            for rank, entry in watch.series.items()
        ],
        "notes": [printable(note, 300) for note in notes],
    }


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
