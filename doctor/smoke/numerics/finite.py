"""Where numbers first stopped being finite. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.smoke.numerics.defect import Defect, spans
from doctor.smoke.numerics.layout_trace import Course

NOT_FINITE = "smoke-not-finite"
MADE = ("activations", "loss", "gradient")
"""What a rank can make bad out of good by itself, in the order in which a step comes by it."""


def not_finite(course: Course) -> Iterator[Defect]:
    """The ranks that made the first bad number out of good ones; those that were given it are its victims."""
    for step, said in course.after():
        bad = {rank: one.bad for rank, one in sorted(said.items()) if one.bad}
        if not bad:
            continue
        made = {rank: what for rank, what in bad.items() if what in MADE}
        kind = min(made.values(), key=MADE.index) if made else "parameters"
        ranks = tuple(rank for rank, what in (made or bad).items() if what == kind or not made)
        rest = sorted(set(bad) - set(ranks))
        template = "{who} turned finite numbers into NaN or Inf: the {what} of step {step}, before any reduction"
        if not made:
            template = "the {what} of {who} are NaN or Inf after step {step}: all local gradients were finite before"
        follow = f"; on {len(rest)} other ranks it came from there" if rest else ""
        values = {"what": kind, "follow": follow, "victims": spans(rest)}
        everybody = len(ranks) == course.layout.world
        yield Defect(
            NOT_FINITE, kind, course, step, () if everybody else ranks, template + "{follow}", values, root=True
        )
        return
