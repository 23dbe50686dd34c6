"""The report of `doctor lint` on files of a folder, made in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from doctor.engine.check import Check
from doctor.engine.record import LaunchOptions
from doctor.engine.result import NO_HOST, Outcome, Report
from doctor.environment.inventory import Inventory
from doctor.session.examine import examine
from doctor.session.examine_options import ExamineOptions
from doctor.session.lint_files import launches_of, lint_rules
from doctor.session.select_checks import choose_checks, load_catalog
from doctor.session.training_files import read_training
from tests.lint.line_mistakes import Planted


@cache
def launch_checks() -> Sequence[Check]:
    """All that `doctor lint` runs."""
    catalog = load_catalog([])
    return tuple(choose_checks(catalog, lint_rules(catalog)))


def lint_report(paths: Sequence[str]) -> Report:
    """Of scripts by their paths, with an empty environment."""
    (first, *others), _ = launches_of(paths, [], LaunchOptions(), {})
    options = ExamineOptions(
        launch=msgspec.structs.replace(first, others=tuple(others)), training=read_training(paths, [], {})
    )
    return examine(Inventory((), NO_HOST), launch_checks(), options, {}).report


def write_files(folder: Path, mistake: Planted) -> None:
    """The script and its files, without the marks."""
    for name, text in {"run.sh": mistake.script, **mistake.files}.items():
        (folder / name).write_text(text.replace(" #@", ""))


def naming(outcome: Outcome, place: str) -> bool:
    """Whether a finding names a file and line."""
    return any(place in repr((str(finding), finding.values)) for finding in outcome.findings)
