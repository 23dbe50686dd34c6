"""The checks and playbooks that a command chooses from its catalog, and those that a saved run can be judged by."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from doctor.config.file import require_trusted_folder
from doctor.engine.catalog import DeferredCheck, deferred_checks, select_checks, with_root_cause_checks
from doctor.engine.check import BadCheck, Check
from doctor.engine.check_files import ROUND_AREAS
from doctor.engine.errors import InputError, UsageError
from doctor.engine.texts import filled, joined

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.check_files import HasAreaT
    from doctor.engine.fact import Fact
    from doctor.engine.record import Run
    from doctor.engine.result import Report
    from doctor.remedy.playbook import Playbook


@contextmanager
def load_errors_as_input_errors(folders: Sequence[Path]) -> Iterator[None]:
    """Around the loading of checks: a folder or file that breaks the rules becomes one line."""
    for folder in folders:
        require_trusted_folder("--checks", folder, ".py")
    try:
        yield
    except BadCheck as error:
        raise InputError(str(error)) from error


def load_playbook_catalog(folders: Sequence[Path], checks: Sequence[Path]) -> list[Playbook]:
    """Every playbook: ours and those of ``folders``, which may treat the checks of a site too. Raises: CommandError."""
    from doctor.remedy.catalog import PlaybookError, load_playbooks

    for folder in folders:
        require_trusted_folder("--playbooks", folder, ".toml")
    try:
        return load_playbooks(folders, checks)
    except PlaybookError as error:
        raise InputError(str(error)) from error


def load_catalog(folders: Sequence[Path]) -> list[Check]:
    """Every check; the files of bundled ones run when `choose_checks` chooses them. Raises: CommandError."""
    with load_errors_as_input_errors(folders):
        checks = deferred_checks(folders)
        for check in checks:
            if not isinstance(check, DeferredCheck):
                _ = check.needs
    return checks


def choose_checks(
    catalog: Sequence[HasAreaT],
    select: Sequence[str],
    ignore: Sequence[str] = (),
    roots: bool = False,
    listing: bool = False,
) -> list[HasAreaT]:
    """Those of ``catalog`` that the words choose, with the root cause checks if ``roots``. Raises: CommandError."""
    try:
        selected = select_checks(catalog, select, ignore, listing)
    except LookupError as error:
        raise UsageError(str(error.args[0])) from None
    if not selected:
        raise InputError("--select and --ignore leave no check to run")
    return with_root_cause_checks(selected, catalog, ignore) if roots else selected


def of_launch_alone(catalog: Sequence[Check], intents: Collection[type]) -> list[str]:
    """The names of checks that need nothing of a host, and of the job one of ``intents`` and no more."""
    return [
        check.name
        for check in catalog
        if all(need.optional or need.type in intents for need in check.needs)
        and any(need.type in intents for need in check.needs)
    ]


def made_rounds(smoke: bool, network: bool, watch: bool = False) -> list[str]:
    """The areas of checks that need a round of their own, where it is made: some of `ROUND_AREAS`."""
    return [area for area, is_made in zip(ROUND_AREAS, (smoke, network, watch), strict=True) if is_made]


def choose_with_rounds(
    catalog: list[Check],
    select: Sequence[str],
    ignore: Sequence[str],
    made: Sequence[str] = (),
    requested: Sequence[str] = (),
) -> list[Check]:
    """The checks of the words, and of every round that is made: ``made`` are its areas.

    The checks of a round that is not made run only if they are selected. ``requested``: names of checks that run beside
    them. Raises: CommandError.
    """
    left_out = [] if select else [area for area in ROUND_AREAS if area not in made]
    selected = choose_checks(catalog, [*select, *made] if select else [], [*ignore, *left_out], roots=True)
    chosen = {check.name: check for check in selected if check.name not in requested or not check.implied}
    return [chosen.get(check.name, check) for check in catalog if check.name in {*chosen, *requested}]


MAX_FACTS = 6
"""Facts that a note names."""


def checks_of_run(run: Run, checks: Iterable[Check]) -> list[Check]:
    """The checks that the run was made for, or whose facts were collected.

    A check that is newer than the run needs facts that were not read, and says nothing of its hosts.
    """
    return [check for check in checks if _was_requested(run, check)]


def with_note(report: Report, run: Run, omitted: Sequence[Check]) -> Report:
    """The report with one line about the checks that are not judged, and the facts that were not collected for them."""
    omitted = [check for check in omitted if check.area not in ROUND_AREAS]
    if not omitted:
        return report
    note = filled("not judged, since this run was recorded without: {0} checks", len(omitted))
    collected = {name for record in run.hosts.values() for name in record.outputs}
    facts = {fact.output_name() for check in omitted for fact in _first_round(check.facts)} - collected
    if facts and len(facts) <= MAX_FACTS:
        note = filled("{0}; not collected: {1}", note, joined(", ", sorted(facts)))
    elif facts:
        note = filled("{0}; {1} of their facts were not collected", note, len(facts))
    return msgspec.structs.replace(report, notes=(*report.notes, note))


def _was_requested(run: Run, check: Check) -> bool:
    """If the run does not record it and no host answered anything, every check is kept, and becomes unknown."""
    if run.checks:
        return check.name in run.checks
    if check.area == "smoke":
        return bool(run.smoke)
    if check.area == "network":
        return run.tried_network
    answered = [record for record in run.hosts.values() if record.outputs and not record.visit.failure]
    names = {fact.__name__ for fact in _first_round(check.facts)}
    return not answered or all(any(name in record.outputs for record in answered) for name in names)


def _first_round(facts: Iterable[type[Fact]]) -> Iterator[type[Fact]]:
    """The facts of the first round that these facts need."""
    for fact in facts:
        if fact.needs:
            yield from _first_round(fact.needs)
        elif fact.probe.kind not in ("visit", "smoke"):
            yield fact
