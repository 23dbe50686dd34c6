"""The tables of launchers and schedulers: what comes of each row's sample."""

from __future__ import annotations

import pytest

from doctor.environment.job_context import choose_scope
from doctor.environment.launchers import launchers
from doctor.environment.schedulers import find_allocation, schedulers
from doctor.environment.variables import EnvironmentVariables
from doctor.remote.runtime import rank_variables
from doctor.watch.attach.inspector.rank_finder import named_rank
from tests.environment.contexts import context, fields, launcher_examples, scheduler_examples


def names(row: object) -> str:
    return str(getattr(row, "name", row))


@pytest.mark.parametrize("launcher", [launcher for launcher in launchers() if launcher.sample], ids=names)
def test_the_sample_of_a_launcher(launcher) -> None:
    detected = context(dict(launcher_examples())[launcher.name])
    assert fields(detected, {**launcher.expected, "launcher": ""}) == {**launcher.expected, "launcher": launcher.name}
    assert detected.problems == ()
    assert {"rank", "world_size"} <= launcher.expected.keys(), "`expected` of the row in launchers.toml: both"


@pytest.mark.parametrize("launcher", [launcher for launcher in launchers() if launcher.sample], ids=names)
def test_whoever_finds_a_rank_on_a_host_finds_that_of_each_launcher(launcher) -> None:
    environ = dict(launcher_examples())[launcher.name]
    rank, size, _ = named_rank(environ)
    assert rank == launcher.expected["rank"]
    assert size in (0, launcher.expected["world_size"])


def test_the_scheduler_of_mindspore_is_no_rank_though_it_inherits_the_number_of_a_worker() -> None:
    worker = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": "7", "MS_WORKER_NUM": "8", "RANK_ID": "7", "RANK_SIZE": "8"}
    assert named_rank(worker)[:2] == (7, 8)
    assert named_rank({**worker, "MS_ROLE": "MS_SCHED"}) is None


def test_the_recorder_in_a_job_knows_the_same_ranks() -> None:
    from doctor.watch.hook import channel  # which imports torch

    assert tuple(rank for rank, _, _ in rank_variables.RANK_VARIABLES) == channel.RANK_VARIABLES


@pytest.mark.parametrize("scheduler", schedulers(), ids=names)
def test_the_sample_of_a_scheduler(scheduler) -> None:
    expected = {key: tuple(text) if isinstance(text, list) else text for key, text in scheduler.expected.items()}
    environ = dict(scheduler_examples())[scheduler.name]
    detected = context(environ, scheduler.sample_files, scheduler.sample_files)
    assert fields(detected, {**expected, "scheduler": ""}) == {**expected, "scheduler": scheduler.name}
    assert (detected.hosts_error, detected.conflicts) == ("", ())
    assert (detected.hosts_unknown == "") is ("hosts" in expected)
    assert choose_scope(detected) == ("local" if expected.get("node_rank") else "cluster")
    assert "tag" in expected


@pytest.mark.parametrize("rows", [launchers(), schedulers()], ids=["launchers", "schedulers"])
def test_names_are_unique_and_each_row_has_a_source(rows) -> None:
    assert len({row.name for row in rows}) == len(rows)
    assert all(row.source.strip() for row in rows)


def test_every_scheduler_recognises_its_sample_and_takes_no_variable_of_another() -> None:
    for name, environ in scheduler_examples():
        allocation = find_allocation(EnvironmentVariables(environ), None)
        assert allocation and allocation.scheduler.name == name
    assert find_allocation(EnvironmentVariables({"PATH": "/bin", "HOSTNAME": "n1"}), None) is None
