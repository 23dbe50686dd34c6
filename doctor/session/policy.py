"""Waivers and skipped checks: ``doctor.toml`` and ``DOCTOR_SKIP``, for every command that evaluates."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.config.file import ConfigError, ConfigFile, find_config
from doctor.engine.catalog import check_files
from doctor.engine.check_files import PACKAGE_FOLDER
from doctor.engine.errors import InputError

if TYPE_CHECKING:
    from doctor.engine.check_files import HasArea
    from doctor.engine.result import Report


class KnownNames(Collection[str]):
    """What a waiver may name: these checks, and the signatures of `doctor diagnose`, which are read if need be."""

    def __init__(self, checks: Iterable[str]) -> None:
        self._checks = frozenset(checks)

    def __contains__(self, name: object) -> bool:
        return name in self._checks or name in _signature_names()

    def __iter__(self) -> Iterator[str]:
        return iter((*self._checks, *_signature_names()))

    def __len__(self) -> int:
        return len(self._checks) + len(_signature_names())


@cache
def _signature_names() -> frozenset[str]:
    folder = os.path.join(PACKAGE_FOLDER, "diagnose", "signatures")
    texts = (path.read_text("utf-8") for path in Path(folder).glob("*.toml"))
    return frozenset(name for text in texts for name in re.findall(r'^id = "([^"\n]+)"', text, re.M))


def validate_settings(config: Path | None, folders: Sequence[Path] = ()) -> None:
    """Raises: CommandError for settings that cannot be followed, before anything is done."""
    try:
        settings = find_config(config, os.environ)
        if _hides_findings(settings, os.environ):
            from doctor.config.waivers import validate_skips_and_waivers

            names = [path.stem.replace("_", "-") for path, _ in check_files(folders)]
            validate_skips_and_waivers(settings, os.environ, KnownNames(names))
    except ConfigError as error:
        raise InputError(str(error)) from None


def apply_policy(
    report: Report, config: Path | None, catalog: Sequence[HasArea], environ: Mapping[str, str] = os.environ
) -> Report:
    """``report`` with what is waived and left out set apart, and findings under their causes. Raises: CommandError."""
    try:
        settings = find_config(config, environ)
        if settings.notes or _hides_findings(settings, environ):
            from doctor.config.waivers import apply_skips_and_waivers, today

            names = KnownNames(check.name for check in catalog)
            report = apply_skips_and_waivers(report, settings, environ, names, today())
    except ConfigError as error:
        raise InputError(str(error)) from None
    if not any(
        outcome.findings or any(why.by_trial for why in outcome.unknown.values()) for outcome in report.outcomes
    ):
        return report
    from doctor.analysis.causes import resolve_causes

    return resolve_causes(report, catalog)


def _hides_findings(settings: ConfigFile, environ: Mapping[str, str]) -> bool:
    """Whether a file or DOCTOR_SKIP may waive or skip something."""
    return bool(settings.path or environ.get("DOCTOR_SKIP"))
