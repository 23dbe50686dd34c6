"""Finds and loads playbooks: ours, and a site's own, through the same door."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from doctor.engine.catalog import bundled_folder, check_files
from doctor.engine.texts import filled
from doctor.engine.toml_compat import toml_files
from doctor.remedy.parse import PlaybookError as PlaybookError
from doctor.remedy.parse import file_name
from doctor.remedy.parse import read_playbook as read_playbook
from doctor.remedy.playbook import Playbook


def load_playbooks(folders: Sequence[Path] = (), checks: Sequence[Path] = ()) -> list[Playbook]:
    """All playbooks: those of this program, then those of ``folders``, by name within each.

    ``checks`` are the folders with a site's own checks, which playbooks may treat as well. That a bundled playbook
    needs no value that a bundled check does not supply is a matter of the tests: taking the source of all checks apart
    takes longer than all else that a command does.

    Raises: PlaybookError for a file that breaks the rules, or a name that is there twice.
    """
    read = _read_bundled if checks else _read_bundled_once
    playbooks = {playbook.name: playbook for playbook in read(bundled_folder("playbooks"), tuple(checks))}
    checks_by_name = check_files_by_name(checks) if folders else {}
    for path in (path for folder in folders for path in _playbook_files(folder)):
        playbook = read_playbook(path, checks_by_name)
        if playbook.name in playbooks:
            first_path = file_name(Path(playbooks[playbook.name].path))
            raise PlaybookError(
                filled("{0}:1: {1} is already defined in {2}", file_name(path), playbook.name, first_path)
            )
        playbooks[playbook.name] = playbook
    return list(playbooks.values())


def _read_bundled(folder: Path, checks: tuple[Path, ...]) -> tuple[Playbook, ...]:
    """Those of this program. Raises: PlaybookError."""
    checks_by_name, bundled_checks = check_files_by_name(checks), check_files_by_name()
    return tuple(read_playbook(path, checks_by_name, bundled_checks) for path in _playbook_files(folder))


_read_bundled_once = cache(_read_bundled)


def _playbook_files(folder: Path) -> list[Path]:
    """The playbooks of a folder; one that cannot be listed is an error, not an empty one."""
    try:
        return toml_files(folder)
    except OSError as error:
        raise PlaybookError(
            filled("{0}: {1}; expected a folder with playbooks", file_name(folder), error.strerror)
        ) from None


def check_files_by_name(folders: Sequence[Path] = ()) -> dict[str, Path]:
    """The file of every check, by its name."""
    return {path.stem.replace("_", "-"): path for path, _ in check_files(folders)}


def playbooks_for(playbooks: Iterable[Playbook], check: str) -> list[Playbook]:
    """Those that treat a check."""
    return [playbook for playbook in playbooks if check in playbook.treats]
