"""Finds and loads checks, by path: ours, and a site's own, through the same door."""

from __future__ import annotations

import copy
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doctor.engine.check import BadCheck, Check, Need
from doctor.engine.check_files import bundled_check_paths, bundled_path, is_named, read_declaration
from doctor.engine.errors import did_you_mean
from doctor.engine.texts import filled

if TYPE_CHECKING:
    from doctor.engine.check_files import HasAreaT


def bundled_folder(folder: str) -> Path:
    """Where ``checks`` or ``playbooks`` of this program lie (`bundled_path`)."""
    return Path(bundled_path(folder))


def load_check(path: Path, package: str = "doctor.checks") -> Check:
    """The check in one file; one of this program is loaded once. Raises: BadCheck when the file is not what it must be.

    >>> one = load_check(bundled_folder("checks") / "disk_full.py")
    >>> one is load_check(bundled_folder("checks") / "disk_full.py")
    True
    """
    ours = package == "doctor.checks" and os.path.dirname(path) == bundled_path("checks")
    return (_load_once if ours else _load)(path, package)


def _load(path: Path, package: str) -> Check:
    """Raises: BadCheck when the file does not hold the check of its name."""
    stem = path.stem
    name = f"{package}.{stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadCheck(filled("{0}: cannot be loaded as Python", path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadCheck(f"{path}: {type(error).__name__}: {error}") from error
    function = getattr(module, stem, None)
    if not callable(function) or "doctor" not in getattr(function, "__dict__", {}):
        raise BadCheck(filled("{0}: expected a function {1}() marked with @check", path, stem))
    return Check(function, str(path))


_load_once = cache(_load)


def check_files(extra: Sequence[Path] = ()) -> Iterator[tuple[Path, str]]:
    """The files that checks are in, each with the package that it is loaded into."""
    for file in bundled_check_paths():
        yield Path(file), "doctor.checks"
    for number, folder in enumerate(extra, 1):
        for path in sorted(folder.glob("[a-z]*.py")):
            yield path, f"doctor.site{number}"


def load_checks(extra: Sequence[Path] = ()) -> list[Check]:
    """All checks: those of this program, then those of the folders in ``extra``, sorted by name within each.

    Raises: BadCheck for a file that breaks the rules, or a name that is there twice.
    """
    checks: dict[str, Check] = {}
    for path, package in check_files(extra):
        _add(checks, load_check(path, package))
    return list(checks.values())


def _add(checks: dict[str, Check], check: Check) -> None:
    if check.name in checks:
        raise BadCheck(
            filled("{0}: the check {1} is already defined in {2}", check.path, check.name, checks[check.name].path)
        )
    checks[check.name] = check


_read_once = cache(read_declaration)


class DeferredCheck(Check):
    """A check with name and area; its file runs when anything else of it is read. Raises then: BadCheck."""

    def __init__(self, path: Path, package: str, area: str) -> None:
        self.path, self._package = str(path), package
        self.name, self.area = path.stem.replace("_", "-"), area

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or "function" in self.__dict__:
            raise AttributeError(attribute)
        self.__dict__.update(self._loaded().__dict__)
        return getattr(self, attribute)

    def _loaded(self) -> Check:
        return load_check(Path(self.path), self._package)

    @cached_property
    def doc(self) -> str:
        return self._loaded().doc

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        return self._loaded().needs


def deferred_checks(folders: Sequence[Path] = ()) -> list[Check]:
    """All checks, as `doctor.engine.catalog.load_checks` lists them; the files of a site's own run at once.

    Raises: BadCheck for a file that breaks the rules, or a name that is there twice.
    """
    checks: dict[str, Check] = {}
    for path, package in check_files(folders):
        declaration = _read_once(path, path.stem) if package == "doctor.checks" else None
        check = DeferredCheck(path, package, declaration["area"]) if declaration else load_check(path, package)
        _add(checks, check)
    return list(checks.values())


ON_REQUEST = ("host-snapshot-differs", "job-path-differs")
"""Checks that read much of every host, and run only when they are named."""


def select_checks(
    all_checks: Iterable[HasAreaT], select: Sequence[str] = (), ignore: Sequence[str] = (), listing: bool = False
) -> list[HasAreaT]:
    """The checks to run: names or areas of ``select`` (all when empty), less those of ``ignore``.

    Those of `ON_REQUEST` are among them only when named, or with ``listing``.

    Raises: LookupError with one line that names the unknown name and the nearest known one.
    """
    everything = list(all_checks)
    for word in (*select, *ignore):
        if not any(word in (check.name, check.area) for check in everything):
            names = {name for check in everything for name in (check.name, check.area)}
            hint = did_you_mean(word, names) or "; `doctor list` lists all of them"
            raise LookupError(filled("no check or area is named {0}{1}", f"{word!r}", hint))

    return [
        check
        for check in everything
        if (not select or is_named(check, select))
        and not is_named(check, ignore)
        and (listing or check.name in select or check.name not in ON_REQUEST)
    ]


ROOT_CAUSE_CHECKS = ("host-unreachable", "python3-missing")
"""The check that explains why all others report an unreachable host."""


def with_root_cause_checks(
    picked: Sequence[HasAreaT], everything: Sequence[HasAreaT], ignore: Sequence[str]
) -> list[HasAreaT]:
    """``picked``, and the checks that explain an unreachable host, unless they are ignored by name."""
    names = {check.name for check in picked}
    return [
        check if check.name in names else _implied(check)
        for check in everything
        if check.name in names or (check.name in ROOT_CAUSE_CHECKS and check.name not in ignore)
    ]


def _implied(check: HasAreaT) -> HasAreaT:
    other = copy.copy(check)
    other.__dict__["implied"] = True
    return other
