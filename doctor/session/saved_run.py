"""A saved run from a file: every field is checked here, so that nothing behind it meets a wrong type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Unreadable
from doctor.engine.record import BadRun, Run, load_run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.watch_summary import WatchResult
from doctor.facts.network_test import NetworkAnswer
from doctor.job.training import TrainingLaunch
from doctor.smoke.model import SmokeRun

NOT_STARTED = "not_started"
"""The key of `Run.smoke` that holds why a smoke run was not started."""


def load(data: bytes, name: str) -> Run:
    """The run in ``data``, its smoke run checked as well. Raises: BadRun, with the field, for what is not one."""
    run = load_run(data, name)
    if run.training:
        try:
            msgspec.convert(run.training, TrainingLaunch)
        except (msgspec.ValidationError, RecursionError) as error:
            message = str(error).replace("`$", "`$.training")
            field = "" if "$.training" in message else " - at `$.training`"
            raise BadRun(f"{name}: not a saved run: {strip_control_chars(message, 300)}{field}") from None
    if run.watch:
        try:
            _convert_watch(run.watch)
        except (msgspec.ValidationError, RecursionError) as error:
            message = str(error).replace("`$", "`$.watch")
            field = "" if "$.watch" in message else " - at `$.watch`"
            raise BadRun(f"{name}: not a saved run: {strip_control_chars(message, 300)}{field}") from None
    if not run.smoke:
        return run
    try:
        if NOT_STARTED in run.smoke:
            msgspec.convert(run.smoke, _NotStarted)
        else:
            _check_ranks(_convert(run.smoke))
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        message = str(error).replace("`$", "`$.smoke")
        field = "" if "$.smoke" in message else " - at `$.smoke`"
        raise BadRun(f"{name}: not a saved run: {strip_control_chars(message, 300)}{field}") from None
    return run


def has_network_test(run: Run) -> bool:
    """Whether the hosts tried their network."""
    return any(NetworkAnswer.__name__ in record.outputs for record in run.hosts.values())


def smoke_run(saved: Mapping[str, Any]) -> SmokeRun | Absent:
    """The smoke run out of `Run.smoke`, or why there is none."""
    if not saved:
        return Absent("no smoke run; run doctor smoke for one")
    if NOT_STARTED in saved:
        return Unreadable(f"the smoke run was not started: {saved[NOT_STARTED]}")
    try:
        return _convert(saved)
    except msgspec.ValidationError as error:
        return Unreadable(f"the smoke run cannot be read: {error}")


def training_launch(saved: Mapping[str, Any]) -> TrainingLaunch | Absent:
    """The training out of `Run.training`, or why there is none."""
    if not saved:
        return Absent("no launch line or configuration was given; doctor lint checks them")
    try:
        return msgspec.convert(saved, TrainingLaunch)
    except msgspec.ValidationError as error:
        return Unreadable(f"the launch cannot be read: {error}")


def watch_result(saved: Mapping[str, Any]) -> WatchResult | Absent:
    """What was seen of a watched program out of `Run.watch`, or why there is nothing."""
    if not saved:
        return Absent("no program was watched; doctor watch does that")
    try:
        return _convert_watch(saved)
    except msgspec.ValidationError as error:
        return Unreadable(f"what was watched cannot be read: {error}")


def _convert_watch(saved: Mapping[str, Any]) -> WatchResult:
    return msgspec.convert(saved, WatchResult, str_keys=True)


class _NotStarted(msgspec.Struct, forbid_unknown_fields=True):
    not_started: str


def _convert(saved: Mapping[str, Any]) -> SmokeRun:
    return msgspec.convert(saved, SmokeRun, str_keys=True)


def _check_ranks(smoke: SmokeRun) -> None:
    """Raises: ValueError where a rank is named that the plan does not have."""
    world = smoke.plan.world
    for number, place in enumerate(smoke.plan.places):
        if place.rank != number:
            raise ValueError(f"rank {place.rank}, expected {number} - at `$.plan.places[{number}].rank`")
    for index, failure in enumerate(smoke.failures):
        for field in ("culprit_ranks", "waiting_ranks"):
            _require_ranks(getattr(failure, field), world, f"$.failures[{index}].{field}")
    for group, (_, ranks) in smoke.groups.items():
        _require_ranks(ranks, world, f"$.groups[{group}]")


def _require_ranks(ranks: tuple[int, ...], world: int, path: str) -> None:
    for rank in ranks:
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank}, expected 0 to {world - 1} - at `{path}`")
