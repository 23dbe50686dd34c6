"""Resolves the names of ``doctor fix NAME...``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from doctor.engine.catalog import ON_REQUEST
from doctor.engine.check_files import ROUND_AREAS, is_named
from doctor.engine.errors import did_you_mean
from doctor.engine.texts import beginning, filled
from doctor.remedy.playbook import Playbook

if TYPE_CHECKING:
    from doctor.engine.check_files import HasAreaT


class UnknownName(Exception):
    """One line: the word, and the nearest that is known."""


def checks_to_run(names: Sequence[str], checks: Sequence[HasAreaT], playbooks: Sequence[Playbook]) -> list[HasAreaT]:
    """The checks that have to be run: those named, of a named area, or that a named playbook treats; without names
    all but those of the smoke run and the network test, which are not made here, and those that run only when named.

    Raises: UnknownName.
    """
    playbooks_by_name = {playbook.name: playbook for playbook in playbooks}
    treated = {check for name in names if name in playbooks_by_name for check in playbooks_by_name[name].treats}
    known_names = [*playbooks_by_name, *(word for candidate in checks for word in (candidate.name, candidate.area))]
    for name in names:
        if name not in known_names:
            if hint := did_you_mean(name, known_names):
                raise UnknownName(
                    filled("no check, area or playbook is named {0}{1}", f"{beginning(name, 60)!r}", hint)
                )
            raise UnknownName(
                filled(
                    "no check, area or playbook is named {0}; `doctor list` lists the checks; pass hosts with -w",
                    f"{beginning(name, 60)!r}",
                )
            )
    selected = [
        candidate
        for candidate in checks
        if candidate.area not in ROUND_AREAS
        and (is_named(candidate, names) or candidate.name in treated if names else candidate.name not in ON_REQUEST)
    ]
    if not selected:
        raise UnknownName(
            "these checks need a smoke run, a network test or a watched program, which doctor fix does not start; "
            "use doctor smoke, doctor net or doctor watch"
        )
    return selected
