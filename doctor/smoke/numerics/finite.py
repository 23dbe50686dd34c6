"""Where numbers first stopped being finite. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.analysis.values.splits import first_makers, format_ranges
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled
from doctor.smoke.numerics.defect import Defect
from doctor.smoke.numerics.layout_trace import LayoutTrace

NOT_FINITE = "smoke-not-finite"
LOCAL_QUANTITIES = ("activations", "loss", "gradient")
"""What a rank can make bad out of good by itself, in the order in which a step comes by it."""
_ORDER = {quantity: place for place, quantity in enumerate(LOCAL_QUANTITIES)}


def not_finite_defects(trace: LayoutTrace) -> Iterator[Defect]:
    """The ranks that made the first bad number out of good ones; ranks that received it are not reported."""
    for step, events in trace.numbered_steps():
        bad = {rank: event.bad for rank, event in sorted(events.items()) if event.bad}
        if not bad:
            continue
        ranks, rest = first_makers({rank: _ORDER.get(quantity, len(_ORDER)) for rank, quantity in bad.items()})
        made_here = bad[ranks[0]] in _ORDER
        kind = bad[ranks[0]] if made_here else "parameters"
        template = "{who} turned finite numbers into NaN or Inf: the {what} of step {step}, before any reduction"
        if not made_here:
            template = "the {what} of {who} are NaN or Inf after step {step}: all local gradients were finite before"
        follow = filled("; it spread from there to {0}", count_noun(len(rest), "other rank")) if rest else ""
        values = {"what": kind, "follow": follow, "victims": format_ranges(rest)}
        everybody = len(ranks) == trace.layout.world
        yield Defect(
            NOT_FINITE, kind, step, () if everybody else ranks, template + "{follow}", values, root=True, trace=trace
        )
        return
