"""Waivers and skipped checks: ``doctor.toml`` and ``DOCTOR_SKIP``, for every command that evaluates."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.engine.errors import InputError

if TYPE_CHECKING:
    from doctor.engine.areas import HasArea
    from doctor.engine.result import Report


def validate_settings(config: Path | None, folders: Sequence[Path] = ()) -> None:
    """Raises: CommandError for settings that cannot be followed, before anything is done."""
    from doctor.config.waivers import ConfigError, validate_skips_and_waivers
    from doctor.engine.catalog import check_files

    names = [path.stem.replace("_", "-") for path, _ in check_files(folders)]
    try:
        validate_skips_and_waivers(config, os.environ, names)
    except ConfigError as error:
        raise InputError(str(error)) from None


def apply_policy(report: Report, config: Path | None, catalog: Sequence[HasArea]) -> Report:
    """``report`` with what is waived and left out set apart, and findings under their causes. Raises: CommandError."""
    from doctor.analysis.causes import resolve_causes
    from doctor.config.waivers import ConfigError, apply_skips_and_waivers, today

    try:
        report = apply_skips_and_waivers(report, config, os.environ, [check.name for check in catalog], today())
    except ConfigError as error:
        raise InputError(str(error)) from None
    return resolve_causes(report, catalog)
