"""Where plans and journals lie: ``~/.local/state/doctor/fix/ID/``, for their owner's eyes alone."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from doctor.config.atomic_write import write_atomic
from doctor.config.file import distrusted, state_folder
from doctor.engine.bounded_read import read_bounded
from doctor.engine.sanitize import file_name, printable_excerpt
from doctor.engine.texts import filled
from doctor.fix.plan import SCHEMA, FixPlan

MAX_PLAN_BYTES = 1 << 30
"""A plan for thousands of hosts has the files of all of them."""
PLAN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


class PlanStoreError(Exception):
    """One line: the error of a plan or of its folder."""


def folder(environ: Mapping[str, str]) -> Path:
    """The folder of all plans. Raises: NoPlan."""
    base = state_folder(environ)
    if base is None:
        raise PlanStoreError("no folder for plans: neither XDG_STATE_HOME nor HOME is set")
    return base / "fix"


def new_id() -> str:
    """When it was made, to 16 millionths of a second, so that names are in the order in which plans were made."""
    now = datetime.now(timezone.utc)
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond * 65536 // 1_000_000:04x}"


def save(plan: FixPlan, environ: Mapping[str, str]) -> Path:
    """Its folder. Raises: NoPlan."""
    plan_folder = folder(environ) / plan.id
    try:
        for path in (plan_folder.parent.parent.parent, plan_folder.parent.parent, plan_folder.parent, plan_folder):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(plan_folder / "plan.json", msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
    except OSError as error:
        raise PlanStoreError(
            filled("{0}: {1}; expected a writable folder for the plan", file_name(plan_folder), error.strerror)
        ) from None
    return plan_folder


def find(name: str, environ: Mapping[str, str]) -> Path:
    """The folder of the plan with this id. Raises: NoPlan."""
    plan_folder = folder(environ) / name
    if not PLAN_ID.fullmatch(name) or not plan_folder.is_dir():
        raise PlanStoreError(
            filled(
                "no plan is named {0} in {1}; plans stay with the machine and user that made them, and "
                "`doctor fix --list` lists those of this one",
                f"{printable_excerpt(name)!r}",
                printable_excerpt(str(plan_folder.parent), 200),
            )
        )
    require_private(plan_folder)
    return plan_folder


def require_private(plan_folder: Path) -> None:
    """What lies here is run as root on hosts, so no other user may have put it there: ssh requires the same.

    Raises: PlanStoreError for a folder or file of another user, a link, and one that others may write to.
    """
    try:
        inner = [plan_folder / name for name in sorted(os.listdir(plan_folder))]
        for path in (plan_folder.parent.parent, plan_folder.parent, plan_folder, *inner):
            status = path.lstat()
            is_irregular = path in inner and not stat.S_ISREG(status.st_mode)
            if problem := distrusted(status) or ("is not a regular file" if is_irregular else ""):
                raise PlanStoreError(filled("{0} {1}", file_name(path), problem))
    except OSError as error:
        raise PlanStoreError(filled("{0}: {1}", file_name(plan_folder), error.strerror)) from None


def load(plan_folder: Path) -> FixPlan:
    """Raises: NoPlan."""
    path = plan_folder / "plan.json"
    try:
        plan = msgspec.json.decode(read_bounded(path, MAX_PLAN_BYTES), type=FixPlan)
    except OSError as error:
        raise PlanStoreError(filled("{0}: {1}", file_name(path), error.strerror)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PlanStoreError(
            filled("{0}: not a saved plan: {1}", file_name(path), printable_excerpt(str(error), 200))
        ) from None
    if plan.schema != SCHEMA:
        raise PlanStoreError(
            filled(
                "{0}: schema {1}; expected {2}", file_name(path), f"{printable_excerpt(plan.schema)!r}", f"{SCHEMA!r}"
            )
        )
    return plan


@contextmanager
def lock_plan(plan_folder: Path) -> Iterator[None]:
    """Prevents other processes from applying or undoing this plan. Raises: NoPlan."""
    handle = os.open(plan_folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PlanStoreError(filled("another process applies or undoes {0}", plan_folder.name)) from None
        yield
    finally:
        os.close(handle)


def all_ids(environ: Mapping[str, str]) -> list[str]:
    """Oldest first. Raises: NoPlan."""
    try:
        return sorted(path.name for path in folder(environ).iterdir() if PLAN_ID.fullmatch(path.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise PlanStoreError(filled("{0}: {1}", printable_excerpt(str(folder(environ)), 200), error.strerror)) from None
