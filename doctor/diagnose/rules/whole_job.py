"""Rule "named by the library", for what lies with the job as a whole: no rank that prints it is at fault."""

from __future__ import annotations

from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Cause, first_evidence
from doctor.diagnose.events import small_number
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled


def too_many_clients(case: Case) -> list[Cause]:
    """The job as a whole: its store has processes of another start, so that all ranks are there and none is at fault.

    torch counts joined processes in the store. A file of ``init_method=file://`` that was left over, ranks that were
    started again against a store that lives on, and two jobs with one MASTER_PORT make it count more than there are.
    """
    events = [
        event
        for event in case.events_of("torch-store-clients")
        if (small_number(event.values.get("joined", "")) or 0) > (small_number(event.values.get("world_size", "")) or 0)
        and event.values.get("world_size")
    ]
    if not events:
        return []
    joined = small_number(events[0].values["joined"]) or 0
    size = count_noun(small_number(events[0].values["world_size"]) or 0, "rank")
    summary = filled("{0} processes joined the store of a job of {1}: it holds those of another start", joined, size)
    return [Cause("torch-store-too-many", "named by the library", "certain", (), summary, first_evidence(events))]


def truncated_messages(case: Case) -> list[Cause]:
    """Ranks disagree on the size of a message, and the one that prints it may be the one that is right."""
    events = case.events_of("nccl-truncated")
    if not events:
        return []
    summary = "ranks disagree on the size of a message: their settings, versions or collectives differ"
    return [Cause("nccl-truncated", "named by the library", "likely", (), summary, first_evidence(events))]
