"""What site and job leave out of a verdict: ``doctor.toml`` and ``DOCTOR_SKIP``, for every command that judges."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.cli import Refused

if TYPE_CHECKING:
    from doctor.areas import Named
    from doctor.model import Report


def refuse_settings(config: Path | None, folders: Sequence[Path] = ()) -> None:
    """Raises: Refused for settings that cannot be followed, before anything is done."""
    from doctor.catalogue import files
    from doctor.waivers import BadSettings, refuse

    names = [path.stem.replace("_", "-") for path, _ in files(folders)]
    try:
        refuse(config, os.environ, names)
    except BadSettings as error:
        raise Refused(str(error)) from None


def settled(report: Report, config: Path | None, known: Sequence[Named]) -> Report:
    """``report`` with what is waived and left out set apart. Raises: Refused."""
    from doctor.waivers import BadSettings, settle, today

    try:
        return settle(report, config, os.environ, [one.name for one in known], today())
    except BadSettings as error:
        raise Refused(str(error)) from None
