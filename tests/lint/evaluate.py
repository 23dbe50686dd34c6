"""Evaluates the launch checks on one case, without a process of its own."""

from __future__ import annotations

from pathlib import Path

from doctor.engine.catalog import load_checks
from doctor.engine.record import LaunchOptions
from doctor.engine.result import Outcome, Report
from doctor.environment.inventory import Inventory
from doctor.session.examine import examine
from doctor.session.examine_options import ExamineOptions
from doctor.session.training_files import read_training
from tests.lint.cases import Case

CHECKS = [check for check in load_checks() if check.area == "training"]


def report_of(case: Case, folder: Path) -> Report:
    """The report of a case whose files are written to ``folder``, the working folder."""
    for name, text in case.files.items():
        (folder / name).write_text(text)
    training = read_training(case.named, case.command.split(), {}, case.counts)
    options = ExamineOptions(launch=LaunchOptions(product=case.product), training=training)
    return examine(Inventory((), "no host was checked"), CHECKS, options, {}).report


def outcomes_of(case: Case, folder: Path) -> dict[str, Outcome]:
    """By check."""
    return {outcome.check: outcome for outcome in report_of(case, folder).outcomes}
