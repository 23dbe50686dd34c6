"""The files of `--baseline`, `--save-baseline` and `doctor baseline`: a path, or ``site`` for the one of this user."""

from __future__ import annotations

import os
from pathlib import Path

from doctor.engine.errors import InputError
from doctor.engine.smoke_summary import SmokeSummary
from doctor.engine.texts import filled
from doctor.smoke.model import Baseline
from doctor.smoke.speed.baseline import SITE, read_baseline, site_file, speeds_of, with_run, write_baseline


def baseline_path(option: str, path: Path) -> Path:
    """The path itself, or the file in the state folder. Raises: InputError."""
    try:
        return site_file(os.environ) if str(path) == SITE else path
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", option, path, error)) from None


def named_baseline(option: str, path: Path) -> Baseline:
    """The file's content. Raises: InputError."""
    place = baseline_path(option, path)
    try:
        return read_baseline(place)
    except OSError as error:
        raise InputError(
            filled("{0} {1}: {2}; expected a file of --save-baseline", option, place, error.strerror)
        ) from None
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", option, place, error)) from None


def baseline_or_empty(option: str, path: Path) -> Baseline:
    """The file's content; an empty one where there is no file yet. Raises: InputError."""
    return named_baseline(option, path) if os.path.lexists(baseline_path(option, path)) else Baseline()


def compared_baseline(path: Path | None, saved: Path | None) -> Baseline | None:
    """What ``--baseline`` names; the first run of those that ``--save-baseline`` adds to it has none to compare with.

    Raises: InputError.
    """
    if path is None:
        return None
    return (baseline_or_empty if path == saved else named_baseline)("--baseline", path)


def store_baseline(option: str, path: Path, baseline: Baseline) -> None:
    """Writes the file, and makes the state folder. Raises: InputError."""
    place = baseline_path(option, path)
    try:
        if str(path) == SITE:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_baseline(place, baseline)
    except OSError as error:
        raise InputError(filled("{0} {1}: {2}", option, path, error.strerror or error)) from None


def add_to_baseline(path: Path, summary: SmokeSummary | None) -> None:
    """Adds the speeds of a whole run. Raises: InputError."""
    option = "--save-baseline"
    try:
        if summary is None:
            raise ValueError("there was no run")
        baseline = with_run(baseline_or_empty(option, path), speeds_of(summary))
    except ValueError as error:
        raise InputError(filled("{0} {1}: {2}", option, path, error)) from None
    store_baseline(option, path, baseline)
