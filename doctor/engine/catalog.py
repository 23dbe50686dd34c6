"""Finds and loads checks, by path: ours, and a site's own, through the same door."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from doctor.engine.areas import Named, One

if TYPE_CHECKING:
    from doctor.engine.check import Check

HERE = Path(__file__).resolve().parents[1]


def home(folder: str) -> Path:
    """Where ``checks`` or ``playbooks`` of this program lie: inside the package, or beside it in a clone.

    The current directory and ``sys.path`` play no part: a repository's own ``checks/`` is never taken for ours.
    """
    installed = HERE / folder
    return installed if installed.is_dir() else HERE.parent / folder


def load(path: Path, package: str = "doctor.checks") -> Check:
    """The check in one file. Raises: BadCheck when the file does not hold the check that its name says."""
    stem = path.stem
    name = f"{package}.{stem}"
    from doctor.engine.check import BadCheck, Check

    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadCheck(f"{path}: cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadCheck(f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, stem, None)
    if not callable(function) or "doctor" not in getattr(function, "__dict__", {}):
        raise BadCheck(f"{path}: expected a function {stem}() marked with @check")
    return Check(function, str(path))


def files(extra: Sequence[Path] = ()) -> Iterator[tuple[Path, str]]:
    """The files that checks are in, each with the package that it is loaded into."""
    for number, folder in enumerate([home("checks"), *extra]):
        for path in sorted(folder.glob("[a-z]*.py")):
            yield path, f"doctor.site{number}" if number else "doctor.checks"


def checks(extra: Sequence[Path] = ()) -> list[Check]:
    """All checks: those of this program, then those of the folders in ``extra``, sorted by name within each.

    Raises: BadCheck for a file that breaks the rules, or a name that is there twice.
    """
    return list(one_by_one(extra))


def one_by_one(extra: Sequence[Path] = ()) -> Iterator[Check]:
    """The same, each as it is loaded."""
    from doctor.engine.check import BadCheck

    found: dict[str, Check] = {}
    for path, package in files(extra):
        one = load(path, package)
        if one.name in found:
            raise BadCheck(f"{path}: the check {one.name} is already there, in {found[one.name].path}")
        found[one.name] = one
        yield one


def pick(all_checks: Iterable[One], select: Sequence[str] = (), ignore: Sequence[str] = ()) -> list[One]:
    """The checks to run: names or areas of ``select`` (all when empty), less those of ``ignore``.

    Raises: LookupError with one line that names the unknown name and the nearest known one.
    """
    everything = list(all_checks)
    for word in (*select, *ignore):
        if not any(word in (one.name, one.area) for one in everything):
            raise LookupError(f"no check or area is named {word!r}{_nearest(word, everything)}")

    def named(one: Named, words: Sequence[str]) -> bool:
        return one.name in words or one.area in words

    return [one for one in everything if (not select or named(one, select)) and not named(one, ignore)]


ROOTS = ("host-unreachable", "python3-missing")
"""What every other check's *not reached* is a consequence of."""


def with_roots(picked: Sequence[One], everything: Sequence[One], ignore: Sequence[str]) -> list[One]:
    """``picked``, and the checks that say why a host could not be looked at, unless they are ignored by name."""
    names = {one.name for one in picked}
    return [one for one in everything if one.name in names or (one.name in ROOTS and one.name not in ignore)]


def _nearest(word: str, everything: Sequence[Named]) -> str:
    import difflib

    near = difflib.get_close_matches(word, {name for one in everything for name in (one.name, one.area)}, 1)
    return f"; did you mean {near[0]}?" if near else "; `doctor list` names them all"
