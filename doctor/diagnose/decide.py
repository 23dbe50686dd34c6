"""The verdict: the rules in their order, over the processes of one job. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from doctor.diagnose.attempts import lacks_lines
from doctor.diagnose.case import Case, build_case
from doctor.diagnose.diagnosis import ONE_OF_TWO, RECORDER, Cause, Culprit, Diagnosis, Undecidable, Waiting, culprit_of
from doctor.diagnose.error_codes import title_of
from doctor.diagnose.events import Event, FileReading
from doctor.diagnose.exception_actions import described
from doctor.diagnose.launcher_reports import MSRUN_ROW, ended_itself, name_of_block
from doctor.diagnose.rules.cluster_reports import RULE as BY_CLUSTER
from doctor.diagnose.rules.cluster_reports import named_by_cluster
from doctor.diagnose.rules.collective_calls import different_calls, different_sizes, ring_neighbors
from doctor.diagnose.rules.deciding_lines import could_not_connect, deciding_line, timed_out_nodes
from doctor.diagnose.rules.fingerprints import all_in_one_call, different_fingerprints
from doctor.diagnose.rules.init_choices import odd_choice_of_waiting, odd_choices
from doctor.diagnose.rules.local_fault import first_fault, is_unspecific, local_faults, tells_only_the_end
from doctor.diagnose.rules.named import (
    named_by_launcher,
    named_by_library,
    processes_of,
    terminated,
    too_many_clients,
    truncated_messages,
)
from doctor.diagnose.rules.named_by_watch import named_by_watch, tells_no_reason
from doctor.diagnose.rules.ras import ras_reports
from doctor.diagnose.rules.recorder import SIGNATURE as RECORDED
from doctor.diagnose.rules.recorder import recorded
from doctor.diagnose.rules.scheduler_states import crashed_step, ended_from_outside, explains_all, named_by_scheduler
from doctor.diagnose.rules.silent_exits import exited_silently
from doctor.diagnose.rules.silent_ranks import (
    absent_ranks,
    own_connection,
    silence,
    silent_pair,
    silent_server,
    spawned,
)
from doctor.diagnose.rules.wait_chain import wait_chain
from doctor.diagnose.rules.waiting import (
    common_target,
    divergence,
    ended_by,
    gave_up_last,
    lateness,
    named_peer,
    unlike_calls,
)
from doctor.diagnose.signature import ERROR_ROLES, Signature
from doctor.engine.addresses import means_own_host
from doctor.engine.texts import beginning, filled, joined

_RULES: tuple[Callable[[Case], list[Cause] | Undecidable], ...] = (
    too_many_clients,
    ras_reports,
    recorded,
    timed_out_nodes,
    terminated,
    different_sizes,
    could_not_connect,
    different_fingerprints,
    different_calls,
    unlike_calls,
    silence,
    own_connection,
    deciding_line,
    divergence,
    lateness,
    wait_chain,
    ring_neighbors,
    gave_up_last,
    common_target,
    silent_server,
    spawned,
    silent_pair,
    absent_ranks,
    truncated_messages,
    odd_choice_of_waiting,
)
"""Over ranks that only waited; the first that names a cause counts."""
_ANNOUNCED = {
    "nccl-invalid-usage": (
        "NCCL reports an error, and no line of it says why: {0}",
        "the output of a run with NCCL_DEBUG=WARN, in which a line 'NCCL WARN' says why",
    ),
    "child-process-failed": (
        "a process reports the failure of another one, and not why: {0}",
        "the output of the process that it is about",
    ),
    "traceback-cut": ("the log ends within a traceback: {0}", "the lines behind it"),
    "error-unknown": ("doctor does not know the last error: {0}", ""),
}
"""Of lines that only announce a failure: what is known by them, and the output that would tell more."""
_LOST = "the logs show that the connection to {0} ended, and not why"
_ENDED_EARLY = "{0} ended early, most likely with exit code 0: the launcher reports no failure of it"
_NEIGHBOR = "another rank of the same host"
_OWN_OR_NOT = "{0}; whether the fault is of the process that shows it, or of another, no log tells"
_OF_DEVICE = frozenset({"runtime", "aicpu"})
"""Components whose lines are of one process and its device, and of no communication."""
_FAILED_ROLES = ERROR_ROLES | {"wrapper"}


def diagnose(
    readings: Sequence[FileReading], signatures: Mapping[str, Signature], unread: Sequence[str] = ()
) -> Diagnosis:
    """Names the cause of what the logs show. The order of the files makes no difference.

    ``unread``: which logs could not be read, and why; no rank is named because its log is not there.
    """
    ordered = sorted(readings, key=lambda reading: reading.summary.name)
    renumbered = [_renumbered(index, reading) for index, reading in enumerate(ordered)]
    case = build_case(renumbered, signatures, unread)
    causes, undecidable = _decide(case)
    waiting = _waiting(case, causes)
    failed = bool(causes or waiting or undecidable)
    return Diagnosis(
        causes=tuple(causes),
        waiting=tuple(waiting),
        undecidable=undecidable,
        files=tuple(reading.summary for reading in renumbered),
        world_size=case.world_size,
        processes=len(case.processes),
        clocks_comparable=case.clocks_comparable,
        ended_well=not failed and any(case.has_trait(event, "good-end") for event in (*case.events, *case.reports)),
    )


def _renumbered(index: int, reading: FileReading) -> FileReading:
    events = [msgspec.structs.replace(event, file=index) for event in reading.events]
    return FileReading(reading.summary, events, reading.recording)


def _decide(case: Case) -> tuple[list[Cause], Undecidable | None]:
    named = named_by_library(case)
    faults = _of_silent_rank(case, local_faults(case))
    of_launcher = named_by_launcher(case) or ([] if faults else exited_silently(case))
    reported = named_by_cluster(case)
    launches = [cause for cause in reported if case.signatures[cause.signature].is_of_launch]
    alone = not (of_launcher or faults)
    explained = {name for event in case.events for name in case.signatures[event.signature].explains}
    likely = [item for item in reported if alone and item.signature not in explained]
    certain = [item for item in reported if item not in launches and (item.confidence == "certain" or item in likely)]
    launched = [*of_launcher, *certain]
    launched += [cause for cause in launches if _is_not_outlived(case, cause, faults)]
    if named and not _outranked(case, named, [*faults, *of_launcher]):
        return [_with_local_fault(case, cause) for cause in named], None
    scheduled, ended = named_by_scheduler(case), ended_from_outside(case)
    if faults or launched or scheduled:
        return _joined(case, [*launched, *scheduled], faults), None
    watched = named_by_watch(case)
    reasons = watched if not all(map(tells_no_reason, watched)) else ended if explains_all(case, ended) else []
    if reasons:
        return reasons, None
    causes, undecidable = _of_waiting(case)
    outlived = case.of_outlived()
    if causes:
        return [_with_local_fault(outlived, cause) for cause in causes], None
    if watched or ended or (ended := crashed_step(case)):
        return watched or ended, None
    if undecidable:
        return [], undecidable
    if any(case.role(event) in _FAILED_ROLES for event in case.events) or _failed_reports(case):
        lone = _of_lone_process(case)
        return ([lone], None) if lone else ([], _not_decided(case))
    return [_outlived(cause) for cause in local_faults(outlived)] or odd_choices(case), None


def _of_silent_rank(case: Case, faults: list[Cause]) -> list[Cause]:
    """An error whose rank nothing shows is most likely that of the one rank that is silent while others wait."""
    if len(faults) != 1 or any(c != Culprit(log=c.log) for c in faults[0].culprits):
        return faults
    verdicts = silence(case)
    if isinstance(verdicts, Undecidable) or len(verdicts) != 1 or len(verdicts[0].culprits) != 1:
        return faults
    (fault,), (silent,) = faults, verdicts
    summary = filled("{0}; {1}", fault.summary, silent.summary)
    return [msgspec.structs.replace(fault, confidence="likely", culprits=silent.culprits, summary=summary)]


def _is_not_outlived(case: Case, launch: Cause, faults: list[Cause]) -> bool:
    """Whether no rank shows a fault of its own, for which it must have been started after all."""
    explained = case.signatures[launch.signature].explains
    return all(
        is_unspecific(case, fault.signature)
        or fault.signature in explained
        or "ends-all" in case.signatures[fault.signature].traits
        for fault in faults
    )


def _outlived(cause: Cause) -> Cause:
    summary = filled("{0}; the process went on after it", cause.summary)
    return msgspec.structs.replace(cause, confidence="possible", summary=summary)


def _of_waiting(case: Case) -> tuple[list[Cause], Undecidable | None]:
    """The first verdict over ranks that only waited. Of two ranks that one rule leaves, a later one may decide."""
    undecidable: Undecidable | None = None
    pair: list[Cause] = []
    for rule in _RULES:
        verdicts = rule(case)
        if isinstance(verdicts, Undecidable):
            undecidable = undecidable if undecidable or pair else verdicts
        elif verdicts and undecidable is None:
            (first, *others) = verdicts
            if first.rule == ONE_OF_TWO:
                pair = pair or verdicts
            elif not pair or (not others and len(first.culprits) == 1 and _is_among(first, pair[0])):
                return [_doubted(case, cause) for cause in verdicts], None
    return [_doubted(case, cause) for cause in pair], undecidable


def _is_among(cause: Cause, pair: Cause) -> bool:
    """Compares one of these two ranks with the others. That one of them is silent decides nothing between them, and
    of two whose dumps show that they called different things, that one of them is behind follows from that.
    """
    ranks = {culprit.rank for culprit in pair.culprits}
    compares = cause.rule in ("minority", "behind in sequence") and pair.signature != RECORDED
    return compares and cause.culprits[0].rank in ranks


def _doubted(case: Case, cause: Cause) -> Cause:
    """Where some logs could not be read, or lack lines around the evidence, it is the best of several explanations."""
    doubted = lacks_lines((*case.events, *case.reports), case.signatures, case.unread, cause.evidence)
    return msgspec.structs.replace(cause, confidence="possible") if doubted else cause


def _failed_reports(case: Case) -> bool:
    reports = (e for e in case.reports if not (case.signatures[e.signature].is_about_launch and case.went_on(e)))
    failed = (case.role(event) in _FAILED_ROLES or case.has_trait(event, "failure-report") for event in reports)
    return any(failed) or any(block.exit_code for block in case.failure_blocks)


def _outranked(case: Case, named: list[Cause], faults: list[Cause]) -> bool:
    """A fault of another rank before the library named this one: the named rank may be its victim."""
    culprits = [culprit for cause in named for culprit in cause.culprits]
    times = [event.time for cause in named for event in cause.evidence if event.time is not None]
    for fault in faults:
        event = fault.evidence[0]
        is_culprit = all(culprit in culprits for culprit in fault.culprits)
        same = any(fault.signature == cause.signature for cause in named)
        if (
            not is_unspecific(case, fault.signature)
            and not is_culprit
            and not same
            and (not times or event.time is None or event.time <= min(times))
        ):
            return True
    return False


def _with_local_fault(case: Case, cause: Cause) -> Cause:
    """The named rank's own fault, where its log shows one, says what happened there."""
    for process in processes_of(case, cause):
        fault = first_fault(case, process)
        if fault and len(cause.culprits) == 1:
            row = described(case.signatures, fault.event.signature, [fault.event])
            title = title_of(row, [fault.event])
            return msgspec.structs.replace(
                cause,
                signature=row.id,
                summary=filled("{0}; its own log shows: {1}", cause.summary, title),
                evidence=(fault.event, *cause.evidence)[:4],
            )
    return cause


def _joined(case: Case, launched: list[Cause], faults: list[Cause]) -> list[Cause]:
    """What the launcher reports of a rank and what the rank itself reports are one cause."""
    is_culprit: set[int] = {culprit.rank for cause in faults for culprit in cause.culprits if culprit.rank is not None}
    result = list(faults)
    for cause in launched:
        rank = cause.culprits[0].rank if cause.culprits else None
        if rank is not None and rank in is_culprit and not case.signatures[cause.signature].is_of_launch:
            continue
        generic = [f for f in result if is_unspecific(case, f.signature) or _is_same_crash(case, f, cause)]
        for fault in generic:
            result.remove(fault)
        result.insert(0, cause)
    return [cause for cause in result if not any(_follows(case, cause, other) for other in result)] or result


def _follows(case: Case, cause: Cause, other: Cause) -> bool:
    """What the cluster reports of several hosts was compared before, host by host."""
    of_cluster = cause.rule == other.rule == BY_CLUSTER
    return cause.signature in case.signatures[other.signature].explains and not of_cluster


def _is_same_crash(case: Case, fault: Cause, launched: Cause) -> bool:
    """A crash of a process of unknown rank, beside the rank that the launcher saw crash."""
    unknown = all(culprit.rank is None for culprit in fault.culprits)
    return unknown and tells_only_the_end(case, fault.signature) and launched.rule == "named by the launcher"


def _not_decided(case: Case) -> Undecidable:
    if not case.processes:
        return Undecidable("the scheduler shows that the job failed, and not why", ("the output of the job",))
    needed = _needed_logs(case)
    unreached = (event for event in case.events if case.role(event) in ("ambiguous", "link"))
    peers = {peer.name for event in unreached if (peer := named_peer(case, event)) is not None}
    if len(peers) == 1:
        reason = filled("the logs show that {0} was not reached, and not why", peers.pop())
    elif len(lost := _logless_peers(case)) == 1:
        failed = {block.rank for block in case.failure_blocks}
        reported = failed <= {process.rank for process in case.processes if case.with_role(process, "victim")}
        reason = filled(_ENDED_EARLY if lost == {_NEIGHBOR} and failed and reported else _LOST, *lost)
        needed = [filled("the logs of {0}", *lost), *needed[: len(case.unread)]]
    elif verdict := all_in_one_call(case):
        reason, needed = verdict.reason, [*case.unread[:8], *verdict.needed]
    elif waits := [event for process in case.processes for event in case.waits(process)]:
        alike = len({event.signature for event in waits}) == 1 and case.role(waits[0]) == "ambiguous"
        reason = _own_or_not(case, waits) if alike else "the logs show who waited, and not for whom"
    else:
        reason, output = _without_reason(case)
        needed = [*output, *needed[: len(case.unread)]] if output else needed
    timeout = ended_by(case)
    return Undecidable(joined("; ", (reason, timeout)) if timeout else reason, tuple(needed))


def _of_lone_process(case: Case) -> Cause | None:
    """What the only process that the logs show reports of its device, where no line is of a communication: the logs
    show no other rank whose fault it could follow from.
    """
    failed = (event for event in case.events if case.role(event) in _FAILED_ROLES)
    events = [e for e in failed if case.role(e) != "root" or not case.has_trait(e, "unspecific")]
    signatures = [case.signatures[event.signature] for event in events]
    others = case.world_size not in (None, 1) or case.labels or case.reports or len(case.processes) != 1
    waited = any(row.role not in ("ambiguous", "wrapper") or row.timeout for row in signatures)
    if others or waited or case.processes[0].rank or not any(_OF_DEVICE & {*row.components} for row in signatures):
        return None
    telling = min(events, key=lambda e: (case.role(e) == "wrapper", case.has_trait(e, "unspecific"), e.line))
    culprit = culprit_of(case.processes[0])
    summary = filled("{0}: {1}", culprit.name, title_of(case.signatures[telling.signature], [telling]))
    return Cause(telling.signature, "lone process", "possible", (culprit,), summary, (telling,))


def _needed_logs(case: Case) -> list[str]:
    """The logs, and the settings of the next run, that would tell more; what could not be read first."""
    needed = list(case.unread[:8])
    logged_ranks = {process.rank for process in case.processes if process.rank is not None}
    size = case.world_size or (0 if _shares_a_file(case) else max(logged_ranks, default=-1) + 1)
    absent = [str(rank) for rank in range(min(size, 100_000)) if rank not in logged_ranks]
    unnamed = sum(process.rank is None for process in case.processes)
    lacks_rank_numbers = unnamed > 1 and (0 < len(absent) <= unnamed if size else not logged_ranks)
    if lacks_rank_numbers:  # the ranks that wrote them are not known; more logs are not there to be asked for
        needed.append("logs of known ranks: name each file after its rank, such as rank_0.log")
    elif absent:
        listed = joined(
            "", (", ".join(absent[:8]), filled(" and {0} more", len(absent) - 8) if len(absent) > 8 else "")
        )
        needed.append(filled("the logs of ranks {0}", listed))
    elif len(logged_ranks) < 2:
        needed.append("the logs of all other ranks")
    printers = [case.signatures[event.signature].components for event in case.events]
    if any("hccl" in names and "nccl" not in names for names in printers):
        needed.append(
            "the plogs of the next run, with CANN 8.2 or later, and HCCL_DFS_CONFIG without cluster_heartbeat:off and"
            " stuck_detection:off"
        )
    elif _lacks_recordings(case):
        needed.append(RECORDER)
    return needed


def _own_or_not(case: Case, events: Sequence[Event]) -> str:
    """What the lines of one signature say, and the name of the process where it is known."""
    first = events[0].signature
    title = title_of(case.signatures[first], [event for event in events if event.signature == first])
    culprits = {culprit_of(item) for item in case.processes if any(event.signature == first for event in item.events)}
    names = [culprit.name for culprit in culprits if culprit.rank is not None or culprit.label]
    return filled(_OWN_OR_NOT, filled("{0}: {1}", *names, title) if len(names) == len(culprits) == 1 else title)


def _logless_peers(case: Case) -> set[str]:
    """The peers without a log whose connections ended, as the lines of those that lost them name them."""
    lost = (event for event in case.events if case.role(event) == "victim")
    peers = set(filter(None, (named_peer(case, event) for event in lost))).difference(map(culprit_of, case.processes))
    return {_NEIGHBOR if means_own_host(peer.host) else peer.name for peer in peers}


def _without_reason(case: Case) -> tuple[str, list[str]]:
    """What is not known where no rank waited, and the output that would tell it."""
    failed = [block for block in case.failure_blocks if ended_itself(block.exit_code)]
    first = min((item for item in failed if item.first), key=lambda item: item.seconds, default=None)
    block = first or (failed[0] if len(failed) == 1 else None)
    names = [name for item in ([block] if block else failed) if (name := name_of_block(item))]
    if not names or case.events_of("nccl-invalid-usage"):
        return _only_announced(case)
    name = joined(", ", names[:4])
    output = filled("the output of {0}: torchrun --log-dir DIR --redirects 3 keeps that of each rank", name)
    if all(item.event.signature == MSRUN_ROW for item in failed):
        output = filled("the output of {0}: worker_*.log in the folder that msrun's --log_dir names", name)
    if not block:
        return filled("the launcher saw {0} fail, and no log shows why", name), [output]
    reason = filled("the launcher saw {0} fail first, with exit code {1}, and no log shows why", name, block.exit_code)
    return reason, [output]


def _only_announced(case: Case) -> tuple[str, list[str]]:
    """Nothing but a line that tells of a failure in words of the program, or of that of another process."""
    if text := next((text for event in case.events if (text := event.values.get("reason"))), ""):
        return filled(_ANNOUNCED["error-unknown"][0], text), []
    wrappers = [e for e in case.events if case.role(e) == "wrapper"]
    of_library = [e for e in wrappers if {"hccl", "torch_npu"} & {*case.signatures[e.signature].components}]
    for signature, (reason, output) in _ANNOUNCED.items():
        event = next(iter(case.events_of(signature)), None)
        if event and not (signature == "traceback-cut" and of_library):
            return filled(reason, beginning(event.text.strip(), 200)), [output] if output else []
    if report := next((event for event in case.reports if case.has_trait(event, "failure-report")), None):
        reason, output = _ANNOUNCED["child-process-failed"]
        return filled(reason, beginning(report.text.strip(), 200)), [output]
    wrappers = sorted(of_library, key=lambda event: (event.file, event.line)) or wrappers
    return _own_or_not(case, wrappers) if wrappers else "the logs show that something failed, and not why", []


def _shares_a_file(case: Case) -> bool:
    """Several ranks write to one file: it may hold the output of those that print nothing as well."""
    counts = Counter(index for process in case.processes if process.rank is not None for index in process.files)
    return any(count > 1 for count in counts.values())


def _lacks_recordings(case: Case) -> bool:
    """Whether torch's flight recorder would show more (it has NCCL's collectives, once the ranks met), and none did."""
    reported = (case.signatures[event.signature] for event in case.events)
    layers = [{"torch", "gloo", "nccl"}.intersection(row.components) for row in reported if row.phase != "init"]
    recorded = any("torch" in layer and layer != {"torch", "gloo"} for layer in layers)
    return recorded and not any(process.recording for process in case.processes)


def _waiting(case: Case, causes: list[Cause]) -> list[Waiting]:
    """The ranks that only report a consequence, by signature; the culprits are not among them."""
    culprits = {culprit for cause in causes for culprit in cause.culprits}
    groups: dict[str, list[tuple[Event, Culprit]]] = {}
    for process in case.processes:
        culprit = culprit_of(process)
        events = [*case.waits(process), *case.with_role(process, "wrapper")]
        if events and culprit not in culprits:
            groups.setdefault(events[0].signature, []).append((events[0], culprit))
    waiting = [
        Waiting(signature, tuple(culprit for _, culprit in rows), rows[0][0]) for signature, rows in groups.items()
    ]
    return sorted(waiting, key=lambda item: (-len(item.culprits), item.signature))
