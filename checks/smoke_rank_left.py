from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.results.trouble_findings import OTHER_CALL, failure_findings, own_program

WATCHED = (
    "Give every rank the same number of steps: `drop_last=True` and a DistributedSampler, an even number of batches a "
    "rank, or `torch.distributed.algorithms.join.Join`. Look in the program for what ends one rank early: `sys.exit`, "
    "`SystemExit`, `break`, `return`."
)


@check(severity=ERROR, area="smoke")
def smoke_rank_left(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """No rank leaves the loop while others wait for it.

    ## Why it matters
    A rank that ends normally, one step before the others, triggers no error handling: the others wait in their next
    collective until it times out.

    ## What to do
    {look}

    ## Source
    The rank's flight recorder shows that it is done, or it exited with status 0, while members of a group wait for it
    in a collective that it has not entered. Or it has finished a collective that most of its group cannot finish, while
    no connection loses or carries anything: a call that returned without its part, from a patched library, an error
    that was caught, or a stream that is not waited for. With as many ranks on either side both are named, and one of
    them is innocent. Or, where data does not arrive, its result of this or an earlier call is what lay there before,
    and no other rank has a wrong one. This verdict can be wrong where a library returns before it has received.
    """
    yield from failure_findings(run, _words, "left", look=WATCHED if run.watched else own_program(run, OTHER_CALL))


def _words(failure: Failure) -> str:
    if failure.waiting_ranks:
        return "{who} left {where} while {waiting} waited: {text}"
    if len(failure.culprit_ranks) > 1:
        return "one of {who} left {where}: {text}"
    return "{who} left {where}: {text}"
