"""Where plans and journals lie: ``~/.local/state/doctor/fix/ID/``, for their owner's eyes alone."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from doctor.config.atomic_write import write_whole
from doctor.config.paths import state_folder
from doctor.fix.plan import SCHEMA, Plan
from doctor.hosts.nodeset import shown

ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


class NoPlan(Exception):
    """One line: what is wrong with the plan or the folder that it lies in."""


def folder(environ: Mapping[str, str]) -> Path:
    """The folder of all plans. Raises: NoPlan."""
    found = state_folder(environ)
    if found is None:
        raise NoPlan("neither XDG_STATE_HOME nor HOME names a folder to keep plans in")
    return found / "fix"


def new_id() -> str:
    """When it was made, to 16 millionths of a second, so that names are in the order in which plans were made."""
    now = datetime.now(timezone.utc)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond * 65536 // 1_000_000:04x}"


def save(plan: Plan, environ: Mapping[str, str]) -> Path:
    """Its folder. Raises: NoPlan."""
    place = folder(environ) / plan.id
    try:
        for path in (place.parent.parent.parent, place.parent.parent, place.parent, place):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(place / "plan.json", msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
    except OSError as error:
        raise NoPlan(f"{shown(str(place), 200)}: {error.strerror}; expected a folder to keep the plan in") from None
    return place


def find(name: str, environ: Mapping[str, str]) -> Path:
    """The folder of the plan with this id. Raises: NoPlan."""
    place = folder(environ) / name
    if not ID.fullmatch(name) or not place.is_dir():
        raise NoPlan(f"no plan is named {shown(name)!r}; `doctor fix --list` names them")
    return place


def load(place: Path) -> Plan:
    """Raises: NoPlan."""
    path = place / "plan.json"
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise NoPlan(f"{shown(str(path), 200)}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise NoPlan(f"{shown(str(path), 200)}: not a saved plan: {shown(str(error), 200)}") from None
    if plan.schema != SCHEMA:
        raise NoPlan(f"{shown(str(path), 200)}: schema {shown(plan.schema)!r}; expected {SCHEMA!r}")
    return plan


@contextmanager
def held(place: Path) -> Iterator[None]:
    """Keeps others from applying or undoing this plan meanwhile. Raises: NoPlan."""
    handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise NoPlan(f"{place.name} is being applied or taken back just now") from None
        yield
    finally:
        os.close(handle)


def all_ids(environ: Mapping[str, str]) -> list[str]:
    """Oldest first. Raises: NoPlan."""
    try:
        return sorted(path.name for path in folder(environ).iterdir() if ID.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NoPlan(f"{shown(str(folder(environ)), 200)}: {error.strerror}") from None
