"""Rules over what a line itself shows: why a connection failed, or which nodes of a cluster timed out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set

from doctor.analysis.collectives.calls import few_silent
from doctor.analysis.collectives.waits import most_awaited
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import (
    Cause,
    Culprit,
    culprit_of,
    culprit_of_rank,
    first_evidence,
    names_of,
    others_wait,
    sorted_culprits,
)
from doctor.diagnose.error_codes import title_of
from doctor.diagnose.events import Event, small_number
from doctor.diagnose.process import Process
from doctor.diagnose.rules.named import count_ranks
from doctor.diagnose.rules.silent_ranks import known_ranks
from doctor.diagnose.rules.waiting import Proof, link_ends, named_peer
from doctor.engine.texts import filled

_TRIED_AGAIN = re.compile(r"\[W(?:\d{3,4})? ")
"""The level at which c10d prints a connection that it tries again."""
DECIDING_LINE = "deciding line"
_NOT_JOINED = frozenset({"torch-store-clients", "torch-store-lost"})
"""What ranks print at whose rendezvous another did not arrive."""
_NODES = "ms-node-timed-out"
_NEAR_LINES = 12
"""An error of gRPC and what it was called for take a few lines."""


def could_not_connect(case: Case) -> list[Cause]:
    """Ranks that could not connect to the store, while others are connected to it and wait for them; and why, where
    the last line of each shows the same reason.
    """
    unconnected, connected = [], []
    for process in case.processes:
        names = {event.signature for event in case.waits(process)}
        if "torch-client-socket-timeout" in names:
            unconnected.append(process)
        elif names & _NOT_JOINED:
            connected.append(process)
    ranks = {item.rank for item in (*unconnected, *connected)}
    if None in ranks or not few_silent(unconnected, len(connected)):
        return []
    if not any(event.values.get("joined") for item in connected for event in item.events):
        return []
    culprits = tuple(culprit_of(item) for item in unconnected)
    events = [e for item in unconnected for e in item.events if e.signature == "torch-client-socket-timeout"]
    target = next((f" {e.values['host_name']}:{e.values['port']}" for e in events if e.values.get("port")), "")
    who = count_ranks(culprit.rank for culprit in culprits if culprit.rank is not None)
    summary = filled("{0} could not connect to the store{1}; {2} there", who, target, others_wait(len(connected)))
    proof = first_evidence([*events[:2], *(case.waits(item)[0] for item in connected)])
    reasons = {event.signature for item in unconnected for event in _last_of(case, item)}
    signature = reasons.pop() if len(reasons) == 1 else "torch-client-socket-timeout"
    return [Cause(signature, "not joined", "likely", culprits, summary, proof)]


def deciding_line(case: Case) -> list[Cause]:
    """Why connections failed, as the last such line of most processes shows. A connection that was tried again, and
    did not fail in the end, shows nothing.
    """
    failed = {event.signature for process in case.processes for event in case.waits(process)}
    lines = [Proof(process, event) for process in case.processes for event in _last_of(case, process, failed)]
    chosen = most_awaited(event.signature for _, event in lines)
    if chosen is None:
        return []
    signature = case.signatures[chosen]
    members = [line for line in lines if line.event.signature == chosen]
    culprits, is_sure = _culprits(case, signature.decides, members)
    title = title_of(signature, (event for _, event in members))
    summary = filled("{0}: {1}", names_of(culprits), title) if culprits else title
    evidence = first_evidence(event for _, event in members)
    return [Cause(chosen, DECIDING_LINE, "likely" if is_sure else "possible", culprits, summary, evidence)]


def _culprits(case: Case, place: str, lines: Sequence[Proof]) -> tuple[tuple[Culprit, ...], bool]:
    """Who is named, and whether that is likely. What is wrong with a whole job shows on several hosts only."""
    if place == "link":
        return link_ends(case, lines)
    if place == "job":
        return (), len({process.host or process.origin for process, _ in lines} - {""}) > 1
    if place == "own":
        return sorted_culprits({culprit_of(process) for process, _ in lines}), True
    peers = {peer for _, event in lines if (peer := named_peer(case, event)) is not None}
    return sorted_culprits(peers), True


def _last_of(case: Case, process: Process, of_job: Set[str] = frozenset()) -> Iterator[Event]:
    """The last line that decides why the process failed to connect, if it did; or any did, of one about the job."""
    failed = {event.signature for event in case.waits(process) if not _TRIED_AGAIN.search(event.text)}
    why = {"job": failed | of_job}
    deciding = [
        event
        for event in process.events
        if (row := case.signatures[event.signature]).decides
        and (
            why.get(row.decides, failed) & {*row.explains} or any(decides_report(case, event, x) for x in case.reports)
        )
    ]
    yield from deciding[-1:]


def decides_report(case: Case, event: Event, report: Event) -> bool:
    """Whether a line says why what is reported beside it failed."""
    is_near = report.file == event.file and abs(report.line - event.line) <= _NEAR_LINES
    return is_near and report.signature in case.signatures[event.signature].explains


def timed_out_nodes(case: Case) -> list[Cause]:
    """The workers that MindSpore's scheduler no longer heard, where they are the smaller part.

    Its "first one timed out" is the first key of a sorted map, and says nothing of time. Not after a launcher saw a
    worker fail: it ends the others then, and they are the ones that are no longer heard.
    """
    events = [event for event in case.reports if event.signature == _NODES and event.values.get("culprit_nodes")]
    first_timeout = min((event.time for event in events if event.time is not None), default=float("inf"))
    if any(block.first and (block.event.time or 0.0) < first_timeout for block in case.failure_blocks):
        return []
    phrases = {word for event in events for word in re.findall(r"[\w.-]+", event.values["culprit_nodes"])}
    ranks = sorted({rank for word in phrases if (rank := small_number(word)) is not None and rank >= 0})
    if not few_silent(ranks, len(known_ranks(case) - {*ranks})):
        return []
    culprits = tuple(culprit_of_rank(case, rank) for rank in ranks)
    summary = filled("MindSpore's scheduler no longer heard {0}", count_ranks(ranks))
    return [Cause(_NODES, "named by the library", "likely", culprits, summary, first_evidence(events))]
