"""Where all ranks are in one collective that none has ended: no rank holds up the others, as far as they know."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.analysis.collectives.calls import Call, common_call
from doctor.diagnose.case import Case
from doctor.diagnose.diagnosis import Undecidable
from doctor.diagnose.rules.collective_calls import world
from doctor.diagnose.rules.recorder import recorded_calls
from doctor.diagnose.rules.waiting import last_calls
from doctor.engine.texts import filled


def all_in_one_call(case: Case) -> Undecidable | None:
    """The verdict where all ranks have entered the same collective, of the same size, and none has ended it.

    A call is entered when its kernel is queued: whether that runs, or waits behind another kernel of its device, or for
    a message, no rank writes down. So one of the devices or links may be the cause, and the logs are the same for each.
    """
    call = next((call for calls, size in _calls(case) if (call := common_call(calls, size))), None)
    if call is None:
        return None
    reason = filled(
        "all ranks that the logs show are in {0}, collective {1}, and none has ended it: a device, or the network"
        " between them, does not do its part, and which one no rank knows",
        call.operation,
        call.sequence,
    )
    needed = (
        "the state of the devices and of the network between them: doctor check and doctor net on the hosts of the job",
        "which device works and which waits, when it hangs again: doctor watch --attach on the hosts of the job",
    )
    return Undecidable(reason, needed)


def _calls(case: Case) -> Iterator[tuple[list[Call], int]]:  # type: ignore[type-arg]
    """What dumps show, then what lines show; with the number of ranks that have to be in the call."""
    yield from recorded_calls(case)
    for _, calls in sorted(last_calls(case).items()):
        yield calls, world(case) or 0
