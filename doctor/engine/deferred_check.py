"""Checks whose files run only when they are needed: most commands name a few of some hundred."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from doctor.engine.catalog import check_files, load_check
from doctor.engine.check import BadCheck, Check, Need
from doctor.engine.declaration import read_declaration
from doctor.engine.texts import filled

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
        if check.name in checks:
            raise BadCheck(
                filled("{0}: the check {1} is already defined in {2}", path, check.name, checks[check.name].path)
            )
        checks[check.name] = check
    return list(checks.values())
