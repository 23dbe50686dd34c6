"""The parts of a saved run that have types of their own: its smoke run, its training, the program that was watched.

Loaded where a run has one of them, or a check wants one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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


def smoke_run(saved: Mapping[str, Any]) -> SmokeRun | Absent:
    """The smoke run out of `Run.smoke`, or why there is none."""
    if not saved:
        return SmokeRun.absent
    if NOT_STARTED in saved:
        return Unreadable(filled("the smoke run was not started: {0}", saved[NOT_STARTED]))
    try:
        return _convert(saved)
    except msgspec.ValidationError as error:
        return Unreadable(filled("the smoke run cannot be read: {0}", error))


def training_launch(saved: Mapping[str, Any]) -> TrainingLaunch | Absent:
    """The training out of `Run.training`, or why there is none."""
    if not saved:
        return TrainingLaunch.absent
    try:
        return msgspec.convert(saved, TrainingLaunch)
    except msgspec.ValidationError as error:
        return Unreadable(filled("the launch cannot be read: {0}", error))


def watch_result(saved: Mapping[str, Any]) -> WatchResult | Absent:
    """What was seen of a watched program out of `Run.watch`, or why there is nothing."""
    if not saved:
        return Absent("no program was watched; doctor watch does that")
    try:
        return _convert_watch(saved)
    except msgspec.ValidationError as error:
        return Unreadable(filled("what was watched cannot be read: {0}", error))


def require_parts(run: Run, name: str) -> None:
    """Raises: BadRun, with the field, for a part that is not what it must be. ``name``: of the file."""
    for field, require in (("watch", require_watch), ("training", require_training), ("smoke", require_smoke)):
        with _naming_field(name, field):
            require(getattr(run, field))


@contextmanager
def _naming_field(name: str, field: str) -> Iterator[None]:
    """Raises: BadRun, with ``field``, for what the code within refuses. ``name``: of the file."""
    try:
        yield
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        message = str(error).replace("`$", f"`$.{field}")
        place = "" if f"$.{field}" in message else f" - at `$.{field}`"
        raise BadRun(filled("{0}: not a saved run: {1}{2}", name, strip_control_chars(message, 300), place)) from None


def require_watch(saved: Mapping[str, Any]) -> None:
    """Raises: msgspec.ValidationError, RecursionError for what no watched program left."""
    if saved:
        _convert_watch(saved)


def require_training(saved: Mapping[str, Any]) -> None:
    """Raises: msgspec.ValidationError, RecursionError for what is no training."""
    msgspec.convert(saved, TrainingLaunch)


def require_smoke(saved: Mapping[str, Any]) -> None:
    """Raises: msgspec.ValidationError, ValueError, RecursionError for what is no smoke run."""
    if NOT_STARTED in saved:
        msgspec.convert(saved, _NotStarted)
    elif saved:
        _check_ranks(_convert(saved))


class _NotStarted(msgspec.Struct, forbid_unknown_fields=True):
    not_started: str


def _convert_watch(saved: Mapping[str, Any]) -> WatchResult:
    return msgspec.convert(saved, WatchResult, str_keys=True)


def _convert(saved: Mapping[str, Any]) -> SmokeRun:
    return msgspec.convert(saved, SmokeRun, str_keys=True)


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


READERS: dict[str, Callable[[Mapping[str, Any]], object]] = {
    "smoke": smoke_run,
    "training": training_launch,
    "watch": watch_result,
}
"""By the field of `Run`."""
