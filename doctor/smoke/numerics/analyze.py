"""Diagnoses the training from the reports of all ranks: one cause, separated from its consequences. Pure.

In each layout `doctor.analysis.values` tells causes from consequences: the check of a consequence says *unknown*,
because of its cause. So is a loss that differs in one layout for no visible reason, when another layout has a root or
names a rank: fix that first, and run again.

The reference run comes before all layouts: if it is wrong on a rank, its device or a library computes differently, and
errors in the layouts follow from it. If the rank's random draws differ as well, they explain the reference run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from doctor.analysis.values.splits import first_makers, format_ranges
from doctor.analysis.values.value_defect import separate_causes
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.result import Finding
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled, joined
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.training import SmokeTraining, TrainingStep
from doctor.smoke.model import SmokePlan, SmokeRun
from doctor.smoke.numerics.collective_values import is_receivers, senders_to
from doctor.smoke.numerics.defect import CameBy, Defect, finding, merge_defects, ranks_on, sent_by
from doctor.smoke.numerics.gradients import gradient_defects
from doctor.smoke.numerics.layout_trace import LayoutTrace, layout_traces
from doctor.smoke.numerics.losses import DIFFERS, loss_defects, update_defects
from doctor.smoke.numerics.masks import correctly_read_steps, mask_defects, repeated_draws
from doctor.smoke.numerics.optimizer_shards import sharded_defects
from doctor.smoke.numerics.reference_outliers import Outlier, find_outliers
from doctor.smoke.numerics.reference_run import LOSS_TOLERANCE, MajorityReference, majority_reference, reference_events
from doctor.smoke.numerics.replicas import replica_defects
from doctor.smoke.numerics.shards import find_misread, shard_defects

OTHER_DATA = ("smoke-mask-differs", "smoke-shards-wrong")
"""Checks of what makes another reference run, without any other arithmetic."""
REFERENCE_CHECK, COLLECTIVE_CHECK = "smoke-reference-differs", "smoke-collective-wrong"


class TrainingVerdict(msgspec.Struct, frozen=True):
    """All that is wrong with the training."""

    traces: tuple[LayoutTrace, ...]
    causes: tuple[Defect, ...]
    consequences: tuple[tuple[Defect, str], ...]
    """Consequences, each with the check that holds the cause."""


class _Reports:
    """The reports of a run, told apart by identity: eleven checks ask for the same analysis, one after the other."""

    def __init__(self, plan: SmokePlan, training: Mapping[str, SmokeTraining]) -> None:
        self.plan, self.training = plan, training
        self._key = (id(plan), *((host, id(fact)) for host, fact in training.items()))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reports) and self._key == other._key


def analyze_training(plan: SmokePlan, training: Mapping[str, SmokeTraining]) -> TrainingVerdict:
    """Causes and consequences in every layout that was trained. Raises: Unreadable when there is nothing to compare."""
    return _analyze(_Reports(plan, training))


@lru_cache(maxsize=1)
def _analyze(reports: _Reports) -> TrainingVerdict:
    plan, training = reports.plan, reports.training
    reference = majority_reference(training)
    if reference is None:
        raise Unreadable("no rank reported its reference run")
    traces = layout_traces(plan, training)
    if not traces:
        raise Unreadable("no layout was trained")
    all_defects = defects(traces, reference)
    causes: list[Defect] = []
    explained: list[tuple[Defect, str]] = []
    outliers = unexplained(find_outliers(plan, reference_events(training)), all_defects)
    has_outlier = any(outlier.share > LOSS_TOLERANCE for outlier in outliers)
    for trace in traces:
        layout_defects = [defect for defect in all_defects if defect.trace.number == trace.number]
        if has_outlier and not any(defect.root for defect in layout_defects):
            explained += [(defect, REFERENCE_CHECK) for defect in layout_defects]
            continue
        layout_causes, consequences = separate_causes(layout_defects)
        causes += layout_causes
        explained += consequences
    # A defect that surely names a rank explains losses in another layout that name no rank, or the same ranks; and of
    # a sharded optimizer, where all hold what one rank made, all that names none. So does a rank that alone departs
    # from itself.
    rooted = [defect for defect in causes if defect.root or (defect.ranks and not defect.tie)]
    named = {rank for defect in rooted if defect.check != DIFFERS for rank in defect.ranks}
    by_itself = {rank for outlier in outliers if outlier.unrepeated for rank in outlier.ranks}
    surely = {rank for defect in rooted if not (defect.tie or defect.of_group) for rank in defect.ranks}
    loose = [
        defect
        for defect in causes
        if (rooted and defect.check == DIFFERS and named.issuperset(defect.ranks))
        or (defect.senders and (surely | by_itself).intersection(defect.ranks + defect.senders))
        or (not defect.ranks and (by_itself or (surely and defect.trace.layout.zero)))
        or (defect.came_by and by_itself.intersection(defect.ranks))
        or (defect.check == NOT_FINITE and (by_itself - set(defect.ranks)))  # by huge numbers, which overflow later
    ]
    causes = [defect for defect in causes if defect not in loose]
    explained += [(defect, REFERENCE_CHECK if by_itself else rooted[0].check) for defect in loose]
    return TrainingVerdict(tuple(traces), tuple(causes), tuple(explained))


def unexplained(outliers: Sequence[Outlier], all_defects: Sequence[Defect]) -> list[Outlier]:
    """Reference runs that differ, on ranks whose draws and data do not; without a majority, where those of none do."""
    others = {
        rank for defect in all_defects if defect.check in OTHER_DATA for rank in defect.ranks or defect.trace.ranks
    }
    return [
        outlier
        for outlier in outliers
        if not (others.intersection if outlier.agreeing == () else others.issuperset)(outlier.ranks)
    ]


def device_outliers(
    plan: SmokePlan, training: Mapping[str, SmokeTraining], started: Mapping[str, SmokeStart] | None
) -> list[tuple[Outlier, bool]]:
    """Reference runs that differ, each with whether other draws or data explain it; else it stands for a device."""
    events = reference_events(training)
    names = {
        event.rank: filled("{0} with torch {1}", event.device.name, event.torch)
        for fact in (started or {}).values()
        for event in fact.joined
    }
    outliers = find_outliers(plan, events, names)
    reference = majority_reference(training)
    if not outliers or reference is None:
        return [(outlier, False) for outlier in outliers]
    remaining = unexplained(outliers, defects(layout_traces(plan, training), reference))
    return [(outlier, outlier not in remaining) for outlier in outliers]


def defects(traces: Sequence[LayoutTrace], reference: MajorityReference) -> list[Defect]:
    """All that any rule has against any layout, causes and consequences alike."""
    result: list[Defect] = []
    for trace in traces:
        wrong = find_misread(trace, reference)
        steps = correctly_read_steps(trace, wrong)
        repeats = list(repeated_draws(trace, reference, steps))
        result += [*shard_defects(trace, reference, wrong), *repeats, *mask_defects(trace, reference, steps, repeats)]
        result += [*gradient_defects(trace, reference), *update_defects(trace, reference)]
        result += replica_defects(trace, reference.tolerance)
        # What one rank of a sharded optimizer made is everywhere behind the step.
        named = sharded_defects(trace)
        result += [defect for defect in not_finite_defects(trace) if not named or defect.kind in LOCAL_QUANTITIES]
    result += loss_defects(traces, reference)
    for message in filter(None, map(_changed_message, traces)):
        if all(defect.trace is not message.trace or defect.step < message.step for defect in result):
            result.append(message)
    return [_with_senders(traces, _narrowed(defect)) for defect in result]


def _with_senders(traces: Sequence[LayoutTrace], defect: Defect) -> Defect:
    """What came to its ranks from others, laid at those who sent it, too: it may have changed on its way.

    But for what came wrong to the same ranks alone so often that no sender's fault, which others get and pass on as
    well, would look like that; and for what changed in their memory behind a message.
    """
    trace, plan = defect.trace, defect.trace.plan
    step, altered = trace.altered_message or (0, ())
    if not defect.came_by or defect.tie or not defect.ranks:
        return defect
    if all(trace.changed_in_memory(rank, defect.step) for rank in defect.ranks):
        template = joined("", (defect.template, "; it changed there after it had come"))
        return msgspec.structs.replace(defect, template=template, came_by="")
    if (altered == defect.ranks and step <= defect.step) or _always_alone(traces, defect.ranks):
        return defect
    by_kind = {"message": trace.models, "all_reduce": trace.slices if trace.layout.dp == 1 else trace.replicas}
    groups = [group for group in by_kind.get(defect.came_by, trace.replicas) if set(group) & set(defect.ranks)]
    sent = {
        rank for group in groups for rank in senders_to(defect.ranks, defect.came_by, group, plan.backend, trace.parts)
    }
    template, values = joined("", (defect.template, "{sent}")), {**defect.values, "sent": sent_by(plan, sorted(sent))}
    changes = {"senders": tuple(sorted(sent)), "template": template, "values": values, "tie": True}
    return msgspec.structs.replace(defect, **changes) if sent else defect


def _always_alone(traces: Sequence[LayoutTrace], ranks: tuple[int, ...]) -> bool:
    """Whether sums and parameters that data-parallel ranks exchange came wrong to these ranks alone, and often."""
    times: Counter[int] = Counter()
    for trace in traces:
        bits, error = ("params", "params_error") if trace.layout.zero else ("grad_digest", "grad_error")
        for events in trace.steps:
            for group in trace.replicas:
                split = trace.differing(events, group, bits, error, LOSS_TOLERANCE)
                if split and not set(split.differing) <= set(ranks):
                    return False
                times[len(group)] += split is not None
    return any(is_receivers(size, count) for size, count in times.items())


def _narrowed(defect: Defect) -> Defect:
    """What can be any rank's, laid at those between which a message changed before: what follows has other input."""
    message = _changed_message(defect.trace)
    if not message or message.step > defect.step or not (defect.of_group or not defect.ranks) or defect.root:
        return defect
    values = {**defect.values, **message.values}
    template = defect.template if "likely" in defect.values else joined("", (defect.template, "; {likely}"))
    changes = {"ranks": message.ranks, "tie": message.tie, "vague": False}
    return msgspec.structs.replace(defect, template=template, values=values, **changes)


def _changed_message(trace: LayoutTrace) -> Defect | None:
    """The first message between pipeline stages that changed, even where no loss shows it."""
    if not trace.altered_message:
        return None
    step, ranks = trace.altered_message
    text = "a message between pipeline stages changed in step {1} in the memory of {0}"
    if len(ranks) > 1:
        text = "a message between pipeline stages changed in step {1} between the memory of {0}"
    values = {"likely": filled(text, ranks_on(trace.plan, ranks), step)}
    return Defect(DIFFERS, "message", step, ranks, "{likely}", values, tie=len(ranks) > 1, trace=trace)


def findings(check: str, run: SmokeRun, training: Mapping[str, SmokeTraining]) -> Iterator[Finding]:
    """The findings of one check; those that another check explains say so."""
    verdict = analyze_training(run.plan, training)
    for group in merge_defects(defect for defect in verdict.causes if defect.check == check):
        reported = finding(group, len(verdict.traces))
        # What tells of no single host, or came from others, as a number that overflows: the collectives do, where they
        # were wrong by themselves.
        first = group[0]
        shared = (
            check == NOT_FINITE
            or first.of_group
            or first.came_by
            or first.tie
            or len(set(map(run.plan.host_of, first.ranks))) != 1
        )
        yield reported.because_of(COLLECTIVE_CHECK) if shared else reported
    by_cause = lists_by_key((cause, defect) for defect, cause in verdict.consequences if defect.check == check != cause)
    for cause, defects in by_cause.items():
        yield from (finding(group, len(verdict.traces)).because_of(cause) for group in merge_defects(defects))


NOT_FINITE = "smoke-not-finite"
LOCAL_QUANTITIES = ("activations", "loss", "gradient")
"""What a rank can make bad out of good by itself, in the order in which a step comes by it."""
_ORDER = {quantity: place for place, quantity in enumerate(LOCAL_QUANTITIES)}


def _order(event: TrainingStep) -> tuple[int, ...]:
    """By this, ranks that were given a number that is not finite stand in the order in which it came to them.

    What a rank made by itself comes before, and what its parameters became behind the step's reduction after.
    """
    if event.bad != "input":
        return (_ORDER.get(event.bad, len(_ORDER) + 1),)
    return len(_ORDER), *(event.bad_at or ())


def not_finite_defects(trace: LayoutTrace) -> Iterator[Defect]:
    """The ranks that made the first bad number out of good ones; ranks that received it are not reported."""
    for step, events in enumerate(trace.steps):
        bad = {rank: event.bad for rank, event in sorted(events.items()) if event.bad}
        if not bad:
            continue
        ranks, rest = first_makers({rank: _order(events[rank]) for rank in bad})
        kind = bad[ranks[0]]
        template = "{who} turned finite numbers into NaN or Inf: the {what} of step {step}, before any reduction"
        if kind == "input":
            template = "{who} held NaN or Inf before any other rank did, in step {step}: a collective brought it there"
        elif kind == "parameters":
            template = "the {what} of {who} are NaN or Inf after step {step}: all local gradients were finite before"
        follow = filled("; it spread from there to {0}", count_noun(len(rest), "other rank")) if rest else ""
        values = {"what": kind, "follow": follow, "victims": format_ranges(rest)}
        everybody = len(ranks) == trace.layout.world
        came_by: CameBy = "message" if kind == "input" else ""
        if kind == "parameters" and trace.layout.dp > 1 and any(events[rank].grad is None for rank in ranks):
            came_by = "all_reduce"
        yield Defect(
            NOT_FINITE, kind, step, () if everybody else ranks, template + "{follow}", values,
            root=True, came_by=came_by, trace=trace,
        )  # fmt: skip
        return
