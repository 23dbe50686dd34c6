"""What the words of ``doctor fix NAME...`` stand for. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.config.file import nearest
from doctor.engine.areas import Named, One
from doctor.remedy.playbook import Playbook


class Unknown(Exception):
    """One line: the word, and the nearest that is known."""


def wanted(names: Sequence[str], checks: Sequence[One], playbooks: Sequence[Playbook]) -> list[One]:
    """The checks that have to be run: those named, of a named area, or that a named playbook treats; without names
    all but those of the smoke run, which is not made here.

    Raises: Unknown.
    """
    books = {one.name: one for one in playbooks}
    treated = {check for name in names if name in books for check in books[name].treats}
    known = [*books, *(word for one in checks for word in (one.name, one.area))]
    for name in names:
        if name not in known:
            hint = nearest(name, known) or "; `doctor list` names the checks; hosts are named with -w"
            raise Unknown(f"no check, area or playbook is named {name[:60]!r}{hint}")
    found = [one for one in checks if one.area != "smoke" and (not names or _is(one, names) or one.name in treated)]
    if not found:
        raise Unknown("these checks need a smoke run, and doctor fix makes none; doctor smoke does")
    return found


def _is(one: Named, names: Sequence[str]) -> bool:
    return one.name in names or one.area in names
