"""From what all ranks said of the training to what is wrong with it: one cause, its consequences kept apart. Pure.

Order of decision, in each layout:

1. *Roots*: what nothing else can bring about. Other data than planned; other draws inside a model, or the same ones on
   several data-parallel ranks; parameters that were not broadcast; a tensor that never moved; the first NaN; a
   gradient longer than any mean can be.
2. Of all others, the first in time: in a step the loss comes before the gradient, its reduction, the update.
3. What comes later, or beside a root, is a consequence: its check says *unknown*, because of the first. So is a loss
   that differs in one layout for no visible reason, when another layout has a root: mend that first, and run again.

Before all layouts stands the serial twin: where a rank's is wrong, its device or a library computes otherwise, and
whatever is wrong in the layouts follows. Unless the rank's draws differ too: they explain the twin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from doctor.engine.fact import Unreadable
from doctor.engine.result import Finding
from doctor.facts.smoke import SmokeStart, SmokeTraining
from doctor.smoke.model import Plan, SmokeRun
from doctor.smoke.numerics.defect import Defect, finding, merged
from doctor.smoke.numerics.finite import not_finite
from doctor.smoke.numerics.gradients import gradients_wrong
from doctor.smoke.numerics.layout_trace import Course, courses
from doctor.smoke.numerics.losses import losses_wrong
from doctor.smoke.numerics.masks import masks_wrong
from doctor.smoke.numerics.reference_outliers import Odd, odd_twins
from doctor.smoke.numerics.reference_run import LOSS, Twins, by_rank, twins
from doctor.smoke.numerics.replicas import replicas_wrong
from doctor.smoke.numerics.rng_draws import well_read
from doctor.smoke.numerics.rng_repeats import repeated
from doctor.smoke.numerics.shards import misread, shards_wrong
from doctor.smoke.numerics.updates import updates_missing

TWIN = "smoke-twin-differs"
_PHASES = (
    "smoke-shards-wrong",
    "smoke-mask-repeated",
    "smoke-mask-differs",
    "smoke-parameters-not-broadcast",
    "smoke-not-finite",
    "smoke-loss-differs",
    "smoke-gradient-not-synchronised",
    "smoke-gradient-summed",
    "smoke-update-missing",
    "smoke-parameters-diverge",
)
"""In the order of one step, for defects that are first seen in the same one."""


class Verdict(msgspec.Struct, frozen=True):
    """All that is wrong with the training."""

    courses: tuple[Course, ...]
    causes: tuple[Defect, ...]
    explained: tuple[tuple[Defect, str], ...]
    """Consequences, each with the check that holds the cause."""


def judge_training(plan: Plan, training: Mapping[str, SmokeTraining]) -> Verdict:
    """Causes and consequences in every layout that was trained. Raises: Unreadable when there is nothing to compare."""
    twin = twins(training)
    if twin is None:
        raise Unreadable("no rank told of its serial twin")
    trained = courses(plan, training)
    if not trained:
        raise Unreadable("no layout was trained")
    found = defects(trained, twin)
    causes: list[Defect] = []
    explained: list[tuple[Defect, str]] = []
    odd = any(one.share > LOSS for one in unexplained(odd_twins(plan, by_rank(training)), found))
    for course in trained:
        own = [one for one in found if one.course.number == course.number]
        leads = [one for one in own if one.root]
        if odd and not leads:
            explained += [(one, TWIN) for one in own]
            continue
        leads = leads or sorted(own, key=_when)[:1]
        causes += leads
        explained += [(one, leads[0].check) for one in own if one not in leads]
    rooted = next((one.check for one in causes if one.root), "")
    loose = [one for one in causes if rooted and one.check == "smoke-loss-differs"]
    causes = [one for one in causes if one not in loose]
    explained += [(one, rooted) for one in loose]
    return Verdict(tuple(trained), tuple(causes), tuple(explained))


def unexplained(odd: Sequence[Odd], found: Sequence[Defect]) -> list[Odd]:
    """Serial twins that differ, on ranks whose draws do not."""
    draws = {rank for one in found if one.check == "smoke-mask-differs" for rank in one.ranks or one.course.ranks}
    return [one for one in odd if not set(one.ranks) <= draws]


def odd_devices(
    plan: Plan, training: Mapping[str, SmokeTraining], started: Mapping[str, SmokeStart] | None
) -> tuple[list[Odd], bool]:
    """Serial twins that differ and stand for a device, and whether there are others, that the draws explain."""
    told = by_rank(training)
    names = {
        event.rank: f"{event.device.name} with torch {event.torch}"
        for fact in (started or {}).values()
        for event in fact.joined
    }
    odd = odd_twins(plan, told, names)
    twin = twins(training)
    if not odd or twin is None:
        return odd, False
    left = unexplained(odd, defects(courses(plan, training), twin))
    return left, len(left) < len(odd)


def defects(trained: Sequence[Course], twin: Twins) -> list[Defect]:
    """All that any rule has against any layout, causes and consequences alike."""
    found: list[Defect] = []
    for course in trained:
        wrong = misread(course, twin)
        steps = well_read(course, wrong)
        repeats = list(repeated(course, twin, steps))
        found += [*shards_wrong(course, twin, wrong), *repeats, *masks_wrong(course, twin, steps, repeats)]
        found += [*gradients_wrong(course, twin), *updates_missing(course, twin)]
        found += [*replicas_wrong(course), *not_finite(course)]
    return found + list(losses_wrong(trained, twin))


def _when(one: Defect) -> tuple[int, int]:
    # Where the gradient's norm alone is off, the reduction's own checks come first.
    late = one.check == "smoke-loss-differs" and one.kind.startswith("gradient")
    return one.step, _PHASES.index(one.check) if not late else _PHASES.index("smoke-gradient-summed") + 1


def findings(check: str, run: SmokeRun, training: Mapping[str, SmokeTraining]) -> Iterator[Finding]:
    """What one check has to say. Raises: Unreadable after that, where another check explains what it saw."""
    verdict = judge_training(run.plan, training)
    for group in merged(one for one in verdict.causes if one.check == check):
        yield finding(group, len(verdict.courses))
    hidden = [(one, cause) for one, cause in verdict.explained if one.check == check and cause != check]
    if hidden:
        cause = Counter(cause for _, cause in hidden).most_common(1)[0][0]
        layouts = ", ".join(dict.fromkeys(one.course.layout.name for one, _ in hidden))
        raise Unreadable(f"not as it should be in {layouts}; {cause} explains it", cause)
