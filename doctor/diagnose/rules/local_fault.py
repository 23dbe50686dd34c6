"""Rule "local fault": a rank that reports a fault of its own outranks all that only waited."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, Confidence, culprit_of, first_evidence
from doctor.diagnose.error_codes import title_of
from doctor.diagnose.events import Event
from doctor.diagnose.exception_actions import described, remedy_of_events
from doctor.diagnose.excerpter.tracebacks import TRACEBACK_HEAD
from doctor.diagnose.launcher_reports import is_aftermath
from doctor.diagnose.process import Process
from doctor.diagnose.read.stamps import COPIED
from doctor.diagnose.rules.named import name_all
from doctor.engine.grouping import lists_by_key
from doctor.engine.texts import beginning, filled

_LOOPBACK = "nccl-loopback-iface"
_UNHANDLED = re.compile(rf"\[rank\d+\]: |{re.escape(TRACEBACK_HEAD)}|terminate called ")
"""In the line of an exception: that no code handled it. Torch labels what its hook for such exceptions prints."""
GRACE_S = 2.0
"""Seconds. A process prints what follows from an error within this time; the order of such lines shows nothing."""


class Fault(msgspec.Struct, frozen=True):
    """The fault of one process: the signature that explains its other ones."""

    process: Process
    event: Event


def local_faults(case: Case) -> list[Cause]:
    """One cause for each fault that no other explains, the earliest first."""
    faults = [fault for process in case.processes if (fault := first_fault(case, process))]
    faults = _unexplained(case, _near_job(case, _of_known_ranks(faults)))
    groups = lists_by_key((fault.event.signature, fault) for fault in faults)
    causes = [_cause(case, signature, members) for signature, members in groups.items()]
    return sorted(causes, key=lambda cause: _time(cause.evidence[0]))


def _of_known_ranks(faults: list[Fault]) -> list[Fault]:
    """Without what lines without a label show, as a kernel's assertion, where a rank reports the same in their file;
    nor the copy of a rank's line in the output of a launcher, as msrun shows the end of its workers' logs.
    """
    ranked = [fault.event for fault in faults if fault.process.rank is not None]
    alike = {(event.signature, place) for event in ranked for place in (event.file, COPIED.sub("", event.text))}
    return [
        fault
        for fault in faults
        if not _is_nobodys(fault.process)
        or alike.isdisjoint((fault.event.signature, place) for place in (fault.event.file, fault.event.text))
    ]


def _is_nobodys(process: Process) -> bool:
    return process.rank is None and process.device is None and not (process.host or process.pid)


def _near_job(case: Case, faults: list[Fault]) -> list[Fault]:
    """Beside faults of ranks, those that kernels report only on the hosts of these ranks."""
    of_ranks = [fault for fault in faults if not _only_of_kernel(case, fault)]
    hosts = {host for fault in of_ranks for host in (fault.process.host, fault.process.origin) if host}
    return [f for f in faults if f in of_ranks or not of_ranks or {f.process.host, f.process.origin} & hosts]


def _only_of_kernel(case: Case, fault: Fault) -> bool:
    """The kernel of the host reports it, and of no process of the job."""
    return case.files[fault.event.file].kernel and fault.process.rank is None


def first_fault(case: Case, process: Process) -> Fault | None:
    """The first fault of the process itself; None for a process that waited for others before it had one."""
    waited = next((event for event in process.events if case.role(event) in ("victim", "link")), None)
    faults = [
        event
        for event in process.events
        if (case.role(event) == "root" or (event.signature == _LOOPBACK and _divides_hosts(case, event)))
        and not (waited and _is_after(event, waited))
    ]
    launches = case.launch_failures
    faults = [e for e in faults if e.signature != "slurm-cancelled" or not is_aftermath(e, case.reports, launches)]
    others = [*case.waits(process), *case.with_role(process, "wrapper")]
    others += case.first_waits if _is_nobodys(process) else []
    faults = [event for event in faults if not _is_of_another(case, event, others)]
    if not faults:
        return None
    explained = {name for event in faults for name in case.signatures[event.signature].explains}
    first = [event for event in faults if event.signature not in explained] or faults
    telling = [event for event in first if not _is_generic(case, event)]
    generic_first = not telling or _time(first[0]) + 60 < (telling[0].time or 0.0)
    return Fault(process, first[0] if generic_first else telling[0])


def _is_of_another(case: Case, fault: Event, others: Sequence[Event]) -> bool:
    """Whether an exception of unknown kind is that of a known error beside it: one that it does not explain, or one
    that did not come later, as far as the logs show. What only announces an exception may stand before it.
    """
    explains = case.signatures[fault.signature].explains
    return case.has_trait(fault, "unspecific") and any(
        other.signature not in explains
        or (
            case.role(other) != "wrapper"
            and not (other.line > fault.line if other.file == fault.file else _is_after(other, fault))
        )
        for other in others
    )


def is_unspecific(case: Case, signature: str) -> bool:
    """Reports a failure without what failed."""
    return "unspecific" in case.signatures[signature].traits


def _is_generic(case: Case, event: Event) -> bool:
    """Says less than another fault of the same process."""
    return case.has_trait(event, "unspecific") or case.has_trait(event, "less-specific")


def _divides_hosts(case: Case, setting: Event) -> bool:
    """NCCL on the loopback interface is right on one host, and fails between hosts."""
    events = case.events
    hosts = {event.host for event in events if event.signature == setting.signature and event.host}
    return len(hosts) > 1 and any(event.signature in case.signatures[setting.signature].explains for event in events)


def tells_only_the_end(case: Case, signature: str) -> bool:
    """Reports that a process crashed, and nothing of why."""
    return "less-specific" in case.signatures[signature].traits and case.signatures[signature].phase == "exit"


def _is_after(event: Event, waited: Event) -> bool:
    """Whether a fault follows the process's own waiting error, and so is what the error led to."""
    if event.time is not None and waited.time is not None and not event.inferred_time and not waited.inferred_time:
        return event.time > waited.time + GRACE_S
    return event.file == waited.file and event.line > waited.line


def _unexplained(case: Case, faults: list[Fault]) -> list[Fault]:
    """Without those that follow from an earlier fault of another process."""
    times: dict[str, list[float]] = {}
    for fault in sorted(faults, key=lambda fault: _time(fault.event)):
        times.setdefault(fault.event.signature, []).append(_time(fault.event))

    def follows(event: Event) -> bool:
        latest = _time(event) + GRACE_S if case.clocks_comparable else float("inf")
        return any(
            bisect_right(earlier, latest) > (name == event.signature)
            for name, earlier in times.items()
            if event.signature in case.signatures[name].explains
        )

    kept = [fault for fault in faults if not follows(fault.event)]
    return _without_generic(case, kept or faults)


def _without_generic(case: Case, faults: list[Fault]) -> list[Fault]:
    """An exception of unknown kind, later than a telling fault elsewhere, most likely follows from it."""
    telling = [fault for fault in faults if not _is_generic(case, fault.event)]
    if not telling:
        first = min(_time(fault.event) for fault in faults) if faults else 0.0
        return [fault for fault in faults if _time(fault.event) <= first + 1.0 or _same(fault, faults[0])]
    first = min(_time(fault.event) for fault in telling)
    return [fault for fault in faults if not _is_generic(case, fault.event) or _time(fault.event) < first - GRACE_S]


def _same(fault: Fault, other: Fault) -> bool:
    alike = all(fault.event.values.get(name) == other.event.values.get(name) for name in ("exception", "message"))
    return fault.event.signature == other.event.signature and alike


def _cause(case: Case, signature: str, faults: list[Fault]) -> Cause:
    faults = sorted(faults, key=lambda fault: _time(fault.event))
    culprits = tuple(culprit_of(fault.process) for fault in faults)
    row = described(case.signatures, signature, [fault.event for fault in faults])
    title = title_of(row, (fault.event for fault in faults))
    lines = ([f.event, *(e for e in f.process.events if e.signature == signature)][:3] for f in faults)
    events = first_evidence(event for of_fault in lines for event in of_fault)
    if "ends-all" in case.signatures[signature].traits:
        return Cause(signature, "local fault", "certain", (), title, events)
    summary = _with_others(case, faults, filled("{0}: {1}", name_all(culprits), title))
    doubted = "has-other-ways" in row.traits
    doubted = doubted or all(
        _only_of_kernel(case, fault) or _is_of_outside(case, fault) or _is_bare(case, fault) for fault in faults
    )
    confidence: Confidence = "likely" if doubted else "certain"
    if row.phase == "connect" and "has-other-ways" in row.traits and len(culprits) > 1:
        confidence = "possible"  # several reach one host no more: it may be that host
    return Cause(row.id, "local fault", confidence, culprits, summary, events)


def _is_of_outside(case: Case, fault: Fault) -> bool:
    """An exception over what is not of the process, such as a service, the system or a device: it ended by it, and what
    is at fault may be there.
    """
    signature = case.signatures[fault.event.signature]
    return bool(signature.action) and not remedy_of_events(signature, [fault.event])


def _is_bare(case: Case, fault: Fault) -> bool:
    """A line in the form of an exception without a traceback, where nothing says that a process failed: the program may
    have printed what it handled.
    """
    event = fault.event
    is_shown = event.values.get("place") or _UNHANDLED.search(event.text) or case.shows_failed_process
    return not is_shown and (is_unspecific(case, event.signature) or case.has_trait(event, "quoted"))


def _with_others(case: Case, faults: list[Fault], summary: str) -> str:
    """Of one process whose log shows several faults, another too: the program may have been started again."""
    (fault, *others) = faults
    chosen, process = fault.event, fault.process
    if others or process.rank is not None or process.pid:
        return summary
    explained = {chosen.signature, *case.signatures[chosen.signature].explains}
    unknown = is_unspecific(case, chosen.signature)
    faulty = [item for item in process.events if case.role(item) == "root" and item.text != chosen.text]
    before = [item for item in faulty if item.line < chosen.line and is_unspecific(case, item.signature)]
    later = [
        item
        for item in faulty
        if item.line > chosen.line
        if item.signature not in explained or (unknown and is_unspecific(case, item.signature))
    ]
    if later:
        return filled("{0}; another error stands behind it: {1}", summary, beginning(later[-1].text, 200))
    if not before:
        return summary
    return filled("{0}; another error stands before it: {1}", summary, beginning(before[0].text, 200))


def _time(event: Event) -> float:
    return event.time if event.time is not None else float("inf")
