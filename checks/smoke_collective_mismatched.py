import re
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.results.trouble_findings import OTHER_CALL, failure_findings, own_program

WATCHED = (
    "Correct the program where the call of that rank differs from the others'. Of another size or type: give the "
    "tensor the same shape and dtype on every rank. Another operation: look for a condition on the rank, the data or "
    "the loss, an uneven last batch, an unused parameter. The call of that rank: {0} (innermost call first)."
)
STEP = re.compile(r"; step (\d+)")


@check(severity=ERROR, area="smoke")
def smoke_collective_mismatched(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """All ranks of a group call the same collective, of the same size, type and root.

    ## Why it matters
    All ranks of a group must make the same calls in the same order: collectives have no names, and are matched by
    their order alone. If one rank calls another operation, or with another size, type or root, the job hangs,
    aborts, or goes on with wrong numbers.

    ## What to do
    {look}

    ## Source
    Each rank writes every call into its flight recorder before it makes it; the same number in the same group must be
    the same call. Of two sides, the culprit is the one whose calls differ from its own previous step, else the
    minority. PyTorch and NCCL document that calls must match on all ranks.
    """
    for finding in failure_findings(run, _sentence, "mismatch"):
        finding.values["look"] = (
            filled(WATCHED, finding.values["frame"]) if run.watched else own_program(run, OTHER_CALL)
        )
        finding.values["step_here"], finding.values["step_there"] = _steps(**finding.values)
        yield finding


def _steps(doing: str, others: str, **_: object) -> tuple[str, str]:
    """The steps in which the two sides make their calls; empty where a call names none."""
    here, there = STEP.search(doing), STEP.search(others)
    return (here[1], there[1]) if here and there else ("", "")


def _is_same_call(failure: Failure) -> bool:
    """Whether the calls of both sides are the same, but for their steps."""
    return len({STEP.sub("", call) for call in failure.calls.values()}) == 1 < len(set(failure.calls.values()))


def _sentence(failure: Failure) -> str:
    if _is_same_call(failure) and not failure.culprits_differ:
        return "{who} is in step {step_here}, and the others are in step {step_there}, at the same call: {doing}"
    if failure.culprits_differ:
        return "{who} called different collectives {where}: {sides}"
    return "{who} called {doing} {where}; {others}"
