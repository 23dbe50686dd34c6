"""Rule "named by the launcher": a worker that ended with an exit code, and whose output shows no error."""

from __future__ import annotations

from doctor.diagnose.attempts import TORCHRUN_ROW
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Culprit, culprit_of_rank
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.launcher_reports import FailureBlock, lone_local_failure, may_have_given_up, name_of_block
from doctor.diagnose.read.scan import CHILD_FAILED
from doctor.diagnose.rules.named import rank_list
from doctor.diagnose.signature import ERROR_ROLES
from doctor.engine.texts import filled

ABORTED = -6
"""The exit code of SIGABRT."""


def exited_silently(case: Case) -> list[Cause]:
    """A rank that its launcher saw end with an exit code, and that reports no error itself, while others do."""
    if _of_unknown_rank(case) or _without_label(case):
        return []
    codes = _exit_codes(case)
    if not codes:
        return _exited_by_local_rank(case)
    silent = {}
    for rank, grouped in codes.items():
        process = case.process_of_rank(rank)
        errors = [e for e in process.events if case.role(e) not in ("evidence", "benign")] if process else []
        if not errors:
            silent[rank] = grouped
        elif all(event.signature == CHILD_FAILED for event in errors):
            silent[rank] = (grouped[0], errors[0], grouped[2])
    if not silent or (len(silent) == len(codes) and len(codes) > 1):
        return []
    causes = []
    for rank, (code, event, host) in sorted(silent.items()):
        culprit = culprit_of_rank(case, rank, host)
        summary = filled("{0} ended with exit code {1} and reports no error", culprit.name, code)
        signature = "torch-signal-segv" if code == str(ABORTED) else "worker-exited"
        if event.signature == CHILD_FAILED:
            signature, summary = CHILD_FAILED, filled("{0} ended because a process of its own failed", culprit.name)
        causes.append(Cause(signature, "named by the launcher", "likely", (culprit,), summary, (event,)))
    return causes


def _exit_codes(case: Case) -> dict[int, tuple[str, Event, str]]:
    """By rank: the code with which launchers say that it ended, where they say it, and its host."""
    codes = {
        block.rank: (str(block.exit_code), block.event, block.host)
        for block in case.failure_blocks
        if block.rank is not None and _is_own_end(case, block) and not may_have_given_up(block)
    }
    for event in case.reports:
        if event.signature == "slurm-task-exited" and event.values.get("exit_code"):
            for rank in rank_list(event.values.get("ended_ranks", "")):
                codes.setdefault(rank, (event.values["exit_code"], event, event.values.get("task_host", "")))
        elif "first_rank" in event.values:
            first = small_number(event.values["first_rank"])
            codes |= {first: ("other than 0", event, "")} if first is not None else {}
    return codes


def _is_own_end(case: Case, block: FailureBlock) -> bool:
    """It ended with an exit code; or is the only one that aborted, while others lost it."""
    if block.exit_code != ABORTED:
        return (block.exit_code or 0) > 0
    is_alone = block.first and sum(other.exit_code == ABORTED for other in case.failure_blocks) == 1
    return is_alone and not case.aborts_on_others and any(map(case.waits, case.processes))


def _exited_by_local_rank(case: Case) -> list[Cause]:
    """The only worker that torchrun saw end, where no list shows its rank and no log an error. Not one that aborted
    itself: it may have done so over another, in output that is missing.
    """
    block = lone_local_failure(case.reports)
    if block is None or block.exit_code == ABORTED:
        return []
    above = (e for e in case.events if e.file == block.event.file and e.line < block.event.line)
    if any(case.role(e) in ERROR_ROLES for e in case.events) or any(case.role(e) == "wrapper" for e in above):
        return []
    culprit = Culprit(host=block.host, label=name_of_block(block))
    summary = filled("{0} ended with exit code {1} and reports no error", culprit.name, str(block.exit_code))
    return [Cause("worker-exited", "named by the launcher", "likely", (culprit,), summary, (block.event,))]


def _of_unknown_rank(case: Case) -> bool:
    """Some error is of a process whose rank no line shows."""
    unplaced = [process for process in case.processes if process.rank is None]
    return any(case.with_role(item, *ERROR_ROLES, "wrapper" if item.host else "root") for item in unplaced)


def _without_label(case: Case) -> bool:
    """A launcher's file, in which torch labels errors with ranks, has one without: as before a rank knows its own."""
    of_launcher = {event.file for event in case.reports if event.signature == TORCHRUN_ROW}
    ranks = {event.rank for event in case.events if event.file in of_launcher} - {None}
    return bool(ranks) and any(
        event.rank is None and event.file in of_launcher and case.role(event) in ("root", "ambiguous")
        for event in case.events
    )
