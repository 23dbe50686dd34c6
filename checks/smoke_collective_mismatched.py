from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeStart
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.results.trouble_findings import OWN_PROGRAM, failure_findings

WATCHED = (
    "Correct the program where the call of that rank differs from the others'. Of another size or type: give the "
    "tensor the same shape and dtype on every rank. Another operation: look for a condition on the rank, the data or "
    "the loss, an uneven last batch, an unused parameter."
)


@check(severity=ERROR, area="smoke")
def smoke_collective_mismatched(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """All ranks of a group call the same collective, of the same size, type and root.

    ## Why it matters
    Collectives carry no name: call number 3 of a rank in a group is matched with call number 3 of the others, and so
    on. If one rank calls another operation, or with another size, type or root, the job hangs, aborts, or goes on with
    wrong numbers.

    ## What to do
    {look}
    The culprit rank called it in {frame} (innermost call first). Both sides: {sides}.

    ## Source
    Each rank writes every call into its flight recorder before it makes it; the same number in the same group must be
    the same call. Of two sides, the culprit is the one whose calls differ from its own previous step, else the
    minority. PyTorch and NCCL document that calls must match on all ranks.
    """
    yield from failure_findings(run, _sentence, "mismatch", look=WATCHED if run.watched else OWN_PROGRAM)


def _sentence(failure: Failure) -> str:
    if failure.culprits_differ:
        return "{who} called different collectives {where}: {sides}"
    return "{who} called {doing} {where}; {others}"
