"""Finds and loads playbooks: ours, and a site's own, through the same door."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from doctor.engine.catalog import files, home
from doctor.remedy.parse import BadPlaybook as BadPlaybook
from doctor.remedy.parse import file_name
from doctor.remedy.parse import read as read
from doctor.remedy.playbook import Playbook


def load(folders: Sequence[Path] = (), checks: Sequence[Path] = ()) -> list[Playbook]:
    """All playbooks: those of this program, then those of ``folders``, by name within each.

    ``checks`` are the folders with a site's own checks, which playbooks may treat as well.

    Raises: BadPlaybook for a file that breaks the rules, or a name that is there twice.
    """
    known = known_checks(checks)
    found: dict[str, Playbook] = {}
    for path in (path for folder in (home("playbooks"), *folders) for path in _within(folder)):
        one = read(path, known)
        if one.name in found:
            there = file_name(Path(found[one.name].path))
            raise BadPlaybook(f"{file_name(path)}:1: {one.name} is already there, in {there}")
        found[one.name] = one
    return list(found.values())


def _within(folder: Path) -> list[Path]:
    """The playbooks of a folder; one that cannot be looked into is not an empty one."""
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise BadPlaybook(f"{file_name(folder)}: {error.strerror}; expected a folder with playbooks") from None
    return [folder / name for name in sorted(names) if name.endswith(".toml") and not name.startswith(".")]


def known_checks(folders: Sequence[Path] = ()) -> dict[str, Path]:
    """The file of every check, by its name."""
    return {path.stem.replace("_", "-"): path for path, _ in files(folders)}


def treating(playbooks: Iterable[Playbook], check: str) -> list[Playbook]:
    """Those that treat a check."""
    return [one for one in playbooks if check in one.treats]
