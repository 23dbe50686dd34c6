"""The parts of a saved run that have types of their own: its smoke run, its training, the program that was watched.

Loaded where a run has one of them, or a check wants one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Unreadable
from doctor.engine.record import BadRun, Run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.engine.watch_summary import WatchResult
from doctor.job.training import TrainingLaunch
from doctor.smoke.model import SmokeRun

NOT_STARTED = "not_started"
"""The key of `Run.smoke` that holds why a smoke run was not started."""


PARTS: Mapping[str, tuple[type, Absent, str]] = {
    "watch": (
        WatchResult,
        Absent("no program was watched; doctor watch does that"),
        "what was watched cannot be read: {0}",
    ),
    "training": (TrainingLaunch, TrainingLaunch.absent, "the launch cannot be read: {0}"),
    "smoke": (SmokeRun, SmokeRun.absent, "the smoke run cannot be read: {0}"),
}
"""By the field of `Run`: the part's type, why it may not be there, and what is said of one that cannot be read."""


def saved_part(saved: Mapping[str, Any], field: str) -> Any:
    """The part that a run keeps in ``field``, one of `PARTS`; where there is none, or it cannot be read, why."""
    kind, absent, unreadable = PARTS[field]
    if not saved:
        return absent
    if field == "smoke" and NOT_STARTED in saved:
        return Unreadable(filled("the smoke run was not started: {0}", saved[NOT_STARTED]))
    try:
        return msgspec.convert(saved, kind, str_keys=True)
    except msgspec.ValidationError as error:
        return Unreadable(filled(unreadable, error))


def smoke_run(saved: Mapping[str, Any]) -> SmokeRun | Absent:
    """The smoke run out of `Run.smoke`, or why there is none."""
    part: SmokeRun | Absent = saved_part(saved, "smoke")
    return part


def require_parts(run: Run, name: str) -> None:
    """Raises: BadRun, with the field, for a part that is not what it must be. ``name``: of the file."""
    for field, (kind, _, _) in PARTS.items():
        saved = getattr(run, field)
        with _naming_field(name, field):
            if saved:
                is_reason = field == "smoke" and NOT_STARTED in saved
                part: Any = msgspec.convert(saved, _NotStarted if is_reason else kind, str_keys=True)
                if isinstance(part, SmokeRun):
                    _check_ranks(part)


@contextmanager
def _naming_field(name: str, field: str) -> Iterator[None]:
    """Raises: BadRun, with ``field``, for what the code within refuses. ``name``: of the file."""
    try:
        yield
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        message = str(error).replace("`$", f"`$.{field}")
        place = "" if f"$.{field}" in message else f" - at `$.{field}`"
        raise BadRun(filled("{0}: not a saved run: {1}{2}", name, strip_control_chars(message, 300), place)) from None


class _NotStarted(msgspec.Struct, forbid_unknown_fields=True):
    not_started: str


def _check_ranks(smoke: SmokeRun) -> None:
    """Raises: ValueError where a rank is named that the plan does not have."""
    world = smoke.plan.world
    for number, place in enumerate(smoke.plan.places):
        if place.rank != number:
            raise ValueError(
                filled("rank {0}, expected {1} - at `$.plan.places[{2}].rank`", place.rank, number, number)
            )
    for index, failure in enumerate(smoke.failures):
        for field in ("culprit_ranks", "waiting_ranks"):
            _require_ranks(getattr(failure, field), world, f"$.failures[{index}].{field}")
    for group, (_, ranks) in smoke.groups.items():
        _require_ranks(ranks, world, f"$.groups[{group}]")


def _require_ranks(ranks: tuple[int, ...], world: int, path: str) -> None:
    for rank in ranks:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank}, expected 0 to {world - 1} - at `{path}`")
