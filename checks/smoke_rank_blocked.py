from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.analysis.file_waits import FILE_WAITS
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import Failure, SmokeRun
from doctor.smoke.results.trouble_findings import PROGRAM_LINE, awaited_call, failure_findings, own_program

HEARTBEAT = (
    (
        r"^HCCL's heartbeat names\b",
        (
            "The log tells the device, and not its rank: on its host read the log of the process that holds it "
            "(`npu-smi info` names the process), and look there for an error before the heartbeat's. "
            "`doctor explain hccl-heartbeat-exception` says what else may be behind it."
        ),
    ),
)
NO_STACK = (
    (
        r"^the others gave up waiting\b",
        (
            "The job's own time limit ended it before its stack was read. Run it again with a longer `timeout=` of "
            "init_process_group: the report then names the line at which the rank stays."
        ),
    ),
)


@check(severity=ERROR, area="smoke")
def smoke_rank_blocked(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """Every rank enters each collective in its usual time.

    ## Why it matters
    A rank that is stuck in a lock, a file system, a download or an endless loop never enters the next collective.
    All the others time out there, after half an hour, and none of their messages names it.

    ## What to do
    {remedy}

    If it sleeps, its state names what it sleeps in, and so does `for p in $(pgrep python); do echo $p $(cat
    /proc/$p/wchan); done` on {host} while it hangs: check that file system, lock or server from there. If it
    computes: an endless loop, or work that only this rank does (a checkpoint, an evaluation, a compile). Let
    the others know, or use a barrier with a longer timeout.

    ## Source
    Others wait in a collective that this rank has not entered, for longer than ten times the longest normal phase and
    at least 60 s (four fifths of the groups' own limit), in time that does not count waiting for a CPU: a job goes on
    after a pause. Sleeping and computing are distinguished by the CPU time of its main thread. Or all ranks have
    entered it, no connection carries anything, and this rank alone is in a file that is not torch's, by its stack, or
    is still in a call that all others have finished. This verdict can be wrong for a rank whose CPU time is not shown
    by the kernel (/proc/PID/schedstat).
    """
    stacks = [failure.stacks.get(rank) for failure in run.failures for rank in failure.culprit_ranks]
    remedies = (*HEARTBEAT, *FILE_WAITS) if any(stacks) else (*HEARTBEAT, *FILE_WAITS, *NO_STACK)
    for finding in failure_findings(run, _sentence, "blocked", "busy", remedies=remedies):
        finding.values["remedy"] = finding.values["remedy"] or (
            _place(**finding.values) if run.watched else own_program(run)
        )
        yield finding


def _place(frame: str, state: str, **_: object) -> str:
    """What to correct, where the rank is, and in which state, as far as that is known."""
    stack = filled("Its stack, innermost call first, names the line of the program to correct: {0}.", frame)
    if place := PROGRAM_LINE.search(frame):
        stack = filled(
            "The line of the program to correct: `vi +{0} {1}`; its stack, innermost call first: {2}.",
            place[2],
            place[1],
            frame,
        )
    return filled("{0} Its state: {1}.", stack, state) if state else stack


def _sentence(failure: Failure) -> str:
    has_others = failure.waiting_ranks or len(failure.culprit_ranks) < 2
    if has_others and (failure.op or awaited_call(failure)):
        return "{who} keeps the others waiting in {call}: {text}"
    if failure.waiting_ranks:
        return "{who} keeps {waiting} waiting: {text}"
    is_alone = len(failure.culprit_ranks) < 2
    return "{who} keeps the others waiting: {text}" if is_alone else "{who} make no progress: {text}"
