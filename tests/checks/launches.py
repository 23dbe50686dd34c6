"""Launches with configurations and programs, and the way to put them before a check."""

from __future__ import annotations

from typing import Any

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.result import Outcome
from doctor.job import LaunchConfig
from doctor.job.training import Configuration, Setting, TrainingJob, TrainingLaunch
from doctor.job.training.python_code import read_python
from tests.checks.tables import check

UNDECIDED = object()
"""A value that only a run would show."""


def setting(name: str, value: Any, line: int) -> Setting:
    """A value at a line of ``run.sh``."""
    if isinstance(value, Setting):
        return value
    if value is UNDECIDED:
        return Setting(f"--{name}", None, f"run.sh:{line}", f"${name.upper()}")
    return Setting(f"--{name}", value, f"run.sh:{line}")


def launched(**counts: Any) -> dict[str, Setting]:
    """The counts of a launch: 2 hosts of 8 ranks, unless others are given."""
    merged = {"launcher": "torchrun", "nodes": 2, "ranks_per_node": 8, "world_size": 16, **counts}
    return {name: setting(name, value, 2) for name, value in merged.items()}


def run_check(
    name: str, framework: str = "", counts: dict[str, Any] | None = None, product: str = "", **settings: Any
) -> Outcome:
    """The outcome of a check on one configuration of a framework, with such a launch."""
    values = {key: setting(key, value, line) for line, (key, value) in enumerate(settings.items(), 3)}
    configurations = (Configuration(framework, "run.sh", values),) if framework else ()
    return evaluated(name, TrainingJob(launched(**(counts or {})), configurations), product)


def judged_program(name: str, text: str, counts: dict[str, Any] | None = None, product: str = "") -> Outcome:
    """The outcome of a check on one program, with such a launch."""
    return evaluated(name, TrainingJob(launched(**(counts or {})), (), (read_python(text, "train.py"),)), product)


def evaluated(name: str, job: TrainingJob, product: str = "") -> Outcome:
    """The outcome of a check on one job."""
    launch = LaunchConfig.from_environment({}, product=product)
    return evaluate_check(
        check(name), (), FactCache({}), {TrainingLaunch: TrainingLaunch((job,)), LaunchConfig: launch}
    )
