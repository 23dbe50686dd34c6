"""Workers that torchrun lists as ended by a signal, with the rank that they have."""

from __future__ import annotations

from doctor.diagnose.attempts import TORCHRUN_HEADING, TORCHRUN_ROW
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Culprit
from doctor.diagnose.events import small_number
from doctor.diagnose.launcher_reports import FailureBlock, name_of_block
from doctor.engine.texts import filled

FATAL_SIGNALS = {
    -9: "SIGKILL",
    -11: "SIGSEGV",
    -7: "SIGBUS",
    -4: "SIGILL",
    -8: "SIGFPE",
    -24: "SIGXCPU",
    -25: "SIGXFSZ",
}
"""The signals with which a process does not end others, by exit code."""
_MAX_LOCAL_RANKS = 8
"""Ranks of one host: where the logs show higher ones, there may be several."""


def cause_of_block(case: Case, block: FailureBlock) -> Cause:
    """The worker that its launcher saw end by a signal."""
    signal = FATAL_SIGNALS[block.exit_code or 0]
    processes = [item for item in case.processes if block.pid and item.pid == block.pid]
    process = processes[0] if len(processes) == 1 else None
    rank = block.rank if block.rank is not None else process.rank if process else None
    host = block.host or (process.host if process else "")
    summary, confidence = "", "certain"
    if rank is None and block.local_rank is not None:
        summary = filled(
            "the worker with local rank {0} and pid {1} was ended by {2}", block.local_rank, block.pid, signal
        )
        if _is_only_agent(case, block):
            rank, confidence = block.local_rank, "likely"
    label = name_of_block(block) if block.local_rank is None else ""
    culprit = Culprit(rank, host, process.device if process else None, label=label if rank is None else "")
    summary = summary or filled("{0} was ended by {1}", culprit.name, signal)
    signature = signature_of_signal(block.exit_code or 0)
    return Cause(signature, "named by the launcher", confidence, (culprit,), summary, (block.event,))  # type: ignore[arg-type]


def _is_only_agent(case: Case, block: FailureBlock) -> bool:
    """Whether the logs show one host: then the ranks of its workers are their local ranks."""
    files = {event.file for event in case.reports if event.signature in (TORCHRUN_ROW, TORCHRUN_HEADING)}
    hosts = {item.host or item.origin for item in case.processes} | {event.host for event in case.reports}
    apart = (item for item in case.processes if item.rank is not None and item.local_rank not in (None, item.rank))
    sizes = {case.world_size or 0, *(item.rank + 1 for item in case.processes if item.rank is not None)}
    several = any((small_number(event.values.get("nodes", "")) or 0) > 1 for event in (*case.events, *case.reports))
    alone = len(files) <= 1 and len(hosts - {""}) <= 1 and not several
    return alone and max(sizes) <= _MAX_LOCAL_RANKS and not any(apart)


def signature_of_signal(code: int) -> str:
    """The signature of a worker that this signal, as a negative exit code, ended."""
    rows = {-9: "torchrun-sigkill", -7: "torch-signal-bus", -24: "cpu-time-limited", -25: "file-size-limited"}
    return rows.get(code, "torch-signal-segv")


def signature_of_exit(code: str) -> str:
    """That of the signal which a launcher's exit code tells: its name, its negative number or, as shells count, that
    behind 128; else empty.
    """
    number = next((number for number, name in FATAL_SIGNALS.items() if name == code), small_number(code))
    signal = 128 - number if number and number > 128 else number
    return signature_of_signal(signal) if signal in FATAL_SIGNALS else ""
