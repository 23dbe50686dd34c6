from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from doctor import ERROR, Finding, PerHost, check, joined
from doctor.engine.fact import Unreadable
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import filled
from doctor.facts.smoke.further_stages import NativeResult, SmokeNative
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokePlan, SmokeRun
from doctor.smoke.numerics.analyze import analyze_training
from doctor.smoke.numerics.defect import ranks_on
from doctor.smoke.numerics.reference_run import MajorityReference, majority_reference, relative_error


class NativeDeviation(msgspec.Struct, frozen=True):
    """A wrapper that differs from the reference run, from this step on."""

    api: str
    layout: str
    step: int
    observed: float | None
    """None: not finite."""
    expected: float | None
    ranks: tuple[int, ...]


@check(severity=ERROR, area="smoke")
def smoke_native_differs(
    run: SmokeRun, native: PerHost[SmokeNative], training: PerHost[SmokeTraining]
) -> Iterator[Finding]:
    """torch's own parallel wrappers train exactly as the same model does in one process.

    ## Why it matters
    The layouts of the smoke run are made of plain collectives. Jobs use DDP, FSDP2, DTensor and pipelines, which call
    others, in another order, on streams of their own. If those fail and the plain ones do not, the fault is in that
    wrapper, in its version, or in how it works with the backend.

    ## What to do
    The same layout ({layout}) made of plain collectives passes, so the fault is in {api}. Install the next release for
    the job's interpreter on all hosts, `python3 -m pip install --upgrade torch` (with NPUs the torch_npu that belongs
    to it), and try it: `doctor smoke {all_hosts} --native`. Or take away its options one by one (overlap, mixed
    precision, bucket sizes, `reshard_after_forward`), and compare the first three losses with those of one process.

    ## Source
    Same rows, same start and same optimizer as the reference run; losses compared at 1e-4 relative. On gloo all of them
    agree with it to 2e-7.
    """
    reference = majority_reference(training)
    if reference is None:
        raise Unreadable("no rank reported its reference run")
    causes = analyze_training(run.plan, training).causes
    for difference in native_deviations(run.plan, native, reference):
        finding = Finding(
            "{api} in {layout}: the loss of step {step} is {observed}, expected {expected} as in one process",
            hosts=run.hosts(difference.ranks),
            api=difference.api,
            layout=difference.layout,
            step=difference.step,
            observed=difference.observed,
            expected=difference.expected,
            ranks=list(difference.ranks),
        )
        yield finding.because_of(*(cause.check for cause in causes))
    absent_results = not_run(run.plan, native)
    if absent_results:
        raise Unreadable(joined("; ", absent_results))


def native_deviations(
    plan: SmokePlan, native: Mapping[str, SmokeNative], reference: MajorityReference
) -> Iterator[NativeDeviation]:
    """Wrappers that deviate, each with its first step and the ranks that report it."""
    for (layout, api), events in _runs(native).items():
        wrong: dict[int, tuple[int, float | None, float | None]] = {}
        for event in events:
            pairs = zip(event.losses, event.reference or reference.losses, strict=False)
            for step, (observed, expected) in enumerate(pairs):
                if relative_error(observed, expected) > reference.tolerance:
                    wrong[event.rank] = step, observed, expected
                    break
        if wrong:
            step, observed, expected = wrong[min(wrong, key=lambda rank: (wrong[rank][0], rank))]
            yield NativeDeviation(
                api, plan.layouts[layout].name, step, _rounded(observed), _rounded(expected), tuple(sorted(wrong))
            )


def _rounded(loss: float | None) -> float | None:
    return None if loss is None else float(f"{loss:.6g}")


def not_run(plan: SmokePlan, native: Mapping[str, SmokeNative]) -> list[str]:
    """Wrappers that came to no loss, and why."""
    reasons = []
    for (layout, api), events in _runs(native).items():
        texts = {event.rank: event.text for event in events if event.text}
        if texts:
            first = min(texts)
            ranks = ranks_on(plan, sorted(texts))
            reasons.append(filled("{0} in {1}, {2}: {3}", api, plan.layouts[layout].name, ranks, texts[first]))
    return reasons


def _runs(native: Mapping[str, SmokeNative]) -> dict[tuple[int, str], list[NativeResult]]:
    """The events of each wrapper in each layout."""
    runs = lists_by_key(((event.layout, event.api), event) for fact in native.values() for event in fact.native)
    return dict(sorted(runs.items()))
