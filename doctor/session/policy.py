"""What site and job leave out of a verdict: ``doctor.toml`` and ``DOCTOR_SKIP``, for every command that judges."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.engine.errors import InputError

if TYPE_CHECKING:
    from doctor.engine.areas import Named
    from doctor.engine.result import Report


def refuse_settings(config: Path | None, folders: Sequence[Path] = ()) -> None:
    """Raises: CommandError for settings that cannot be followed, before anything is done."""
    from doctor.config.waivers import BadSettings, refuse
    from doctor.engine.catalog import files

    names = [path.stem.replace("_", "-") for path, _ in files(folders)]
    try:
        refuse(config, os.environ, names)
    except BadSettings as error:
        raise InputError(str(error)) from None


def settled(report: Report, config: Path | None, known: Sequence[Named]) -> Report:
    """``report`` with what is waived and left out set apart. Raises: CommandError."""
    from doctor.config.waivers import BadSettings, settle, today

    try:
        return settle(report, config, os.environ, [one.name for one in known], today())
    except BadSettings as error:
        raise InputError(str(error)) from None
