from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.remote.runtime.stack_frames import is_of_program
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.results.trouble_findings import failure_findings, innermost_frames

SAME_LINE = (
    "All ranks wait in the same line, {0}, with different groups: the `group` of that call depends on the rank. Give "
    "it the same group on all ranks. Where a loop takes the groups in turns there, give them one order on all ranks. "
    "The job does not recover: end it with Ctrl-C or `scancel`, and start it again afterwards."
)


@check(severity=ERROR, area="smoke")
def smoke_collective_order(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """All ranks call the collectives of different groups in orders that cannot deadlock.

    ## Why it matters
    Two groups that share ranks must be used in an order that all agree on. If rank A is in the first group's call
    and waits for B, and B is in the second's and waits for A, both wait for ever. No timeout names the order.

    ## What to do
    Where each rank waited: {sides}. Give the calls one order on all ranks, such as tensor parallel before data
    parallel; check {frame}. With NCCL, HCCL and side streams the order of enqueuing counts.

    ## Source
    The ranks' waits form a graph: a rank in a collective waits for each member that has not entered it. A cycle in that
    graph cannot resolve itself, so it is reported without any timeout.
    """
    yield from failure_findings(run, _sentence, "order", remedies=_of_one_line)


def _of_one_line(failure: Failure) -> str:
    """Where all ranks wait in the same call of their program, it is its group that differs, and no order."""
    frames = {innermost_frames(failure.stacks.get(rank, "")) for rank in failure.calls}
    (frame, *others) = frames or {""}
    known = frame.startswith("File") and is_of_program(frame.split('"')[1])
    return filled(SAME_LINE, frame) if known and not others else ""


def _sentence(failure: Failure) -> str:
    if failure.culprits_differ and not failure.waiting_ranks:
        return "{who} wait for each other in a cycle {where}: {sides}"
    return "{who} and others wait for each other in a cycle {where}: {sides}"
