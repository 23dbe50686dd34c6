"""A saved run from a file: every field is checked here, so that nothing behind it meets a wrong type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from doctor.engine.fact import Absent, Unreadable
from doctor.engine.record import BadRun, Run, load_run
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.engine.watch_summary import WatchResult
from doctor.facts.network_test import NetworkAnswer


def load(data: bytes, name: str) -> Run:
    """The run in ``data``, its smoke run checked as well. Raises: BadRun, with the field, for what is not one."""
    run = load_run(data, name)
    if run.watch:
        with _naming_field(name, "watch"):
            _convert_watch(run.watch)
    if run.training or run.smoke:
        from doctor.session.saved_parts import require_smoke, require_training

        with _naming_field(name, "training"):
            require_training(run.training)
        with _naming_field(name, "smoke"):
            if run.smoke:
                require_smoke(run.smoke)
    return run


@contextmanager
def _naming_field(name: str, field: str) -> Iterator[None]:
    """Raises: BadRun, with ``field``, for what the code within refuses. ``name``: of the file."""
    try:
        yield
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        message = str(error).replace("`$", f"`$.{field}")
        place = "" if f"$.{field}" in message else f" - at `$.{field}`"
        raise BadRun(filled("{0}: not a saved run: {1}{2}", name, strip_control_chars(message, 300), place)) from None


def has_network_test(run: Run) -> bool:
    """Whether the hosts tried their network."""
    return any(NetworkAnswer.__name__ in record.outputs for record in run.hosts.values())


def watch_result(saved: Mapping[str, Any]) -> WatchResult | Absent:
    """What was seen of a watched program out of `Run.watch`, or why there is nothing."""
    if not saved:
        return Absent("no program was watched; doctor watch does that")
    try:
        return _convert_watch(saved)
    except msgspec.ValidationError as error:
        return Unreadable(filled("what was watched cannot be read: {0}", error))


def _convert_watch(saved: Mapping[str, Any]) -> WatchResult:
    return msgspec.convert(saved, WatchResult, str_keys=True)
