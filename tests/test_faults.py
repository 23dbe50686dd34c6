"""Every check finds a fault that was put into a real host, and is silent when the host is healthy."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.catalog import load_checks
from tests.faults import Prepared, Row
from tests.smoke.proofs import TESTS, proven

TABLES = sorted(path.stem for path in Path(__file__).with_name("faults").glob("[a-z]*.py"))
ROWS: list[Row] = [row for name in TABLES for row in importlib.import_module(f"tests.faults.{name}").ROWS]
KINDS = ("cpu", "a1", "a2", "a3")
CATALOGUE = {one.name: one for one in load_checks()}
SMOKE = {name for name, one in CATALOGUE.items() if one.area == "smoke"}


def test_every_check_has_a_row_and_every_row_a_check() -> None:
    """A check that no fault has ever set off is not proven."""
    assert {row.check for row in ROWS} == set(CATALOGUE) - SMOKE


def test_every_check_of_the_smoke_run_has_a_real_run_that_sets_it_off() -> None:
    """Their faults lie in the programs of ranks, and are tried on real processes by the tests in tests/smoke."""
    assert proven() == SMOKE
    for name, where in TESTS.items():
        file, _, test = where.partition("::")
        assert f"def {test}(" in Path(__file__).with_name("smoke").joinpath(file).read_text(), name


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield request.getfixturevalue(f"fleet_{request.param}")


def check(fleet: Any, *words: str, environ: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON report of `doctor check` on the whole fleet, over SSH."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    named = [] if "--hosts" in words else [",".join(fleet.hosts)]
    done = fleet.run(
        [sys.executable, "-m", "doctor", "check", *named, "-F", str(fleet.ssh_config), "--json", *words],
        env={**clean, **(environ or {})},
        text=False,
        cwd=Path(__file__).parents[1],
        timeout=100,
    )
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


HEALTHY: dict[str, tuple[int, dict[str, Any]]] = {}


def healthy(fleet: Any, row: Row, words: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    """What the row's command says before the fault; one run of the whole catalogue serves all rows of a fleet."""
    if row.options or row.environ or row.prepare:
        prepared = row.prepare(fleet, folder, True) if row.prepare else Prepared([])
        return check(fleet, *words, *prepared.words, environ={**row.environ, **prepared.environ})
    if row.fleet not in HEALTHY:
        HEALTHY[row.fleet] = check(fleet)
    return HEALTHY[row.fleet]


def is_part(wanted: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(values.get(name) == value for name, value in wanted.items())


def outcome(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in report["outcomes"] if one["check"] == name)


@pytest.mark.hosts
@pytest.mark.parametrize(("kind", "fleet"), [(kind, kind) for kind in KINDS], indirect=["fleet"], ids=KINDS)
def test_a_healthy_fleet_is_silent(kind: str, fleet: Any) -> None:
    """The whole catalogue finds nothing, and nothing is unknown."""
    code, report = HEALTHY.setdefault(kind, check(fleet))
    assert [(one["check"], one["findings"]) for one in report["outcomes"] if one["findings"]] == []
    assert [(one["check"], one["unknown"]) for one in report["outcomes"] if one["unknown"]] == []
    assert [(one["check"], one["crashed"]) for one in report["outcomes"] if one["crashed"]] == []
    assert code == 0


@pytest.mark.hosts
@pytest.mark.parametrize(("fleet", "row"), [(row.fleet, row) for row in ROWS], ids=str, indirect=["fleet"])
def test_the_fault_is_found(fleet: Any, row: Row, tmp_path: Path) -> None:
    words = ["--select", row.check, *row.options]
    if row.healthy_first:
        code, report = healthy(fleet, row, words, tmp_path)
        assert outcome(report, row.check)["status"] == "passed", outcome(report, row.check)
        assert code == 0
    host = fleet.hosts[row.host]
    prepared = row.prepare(fleet, tmp_path, False) if row.prepare else Prepared([])
    with fleet.broken(host, row.fault) if row.fault else nullcontext():
        code, report = check(fleet, *words, *prepared.words, environ={**row.environ, **prepared.environ})
    said = outcome(report, row.check)
    assert said["status"] == "failed", said
    blamed = {fleet.hosts[number] for number in ([row.host] if row.blamed is None else row.blamed)}
    matching = [one for one in said["findings"] if row.says in one["message"] and is_part(row.values, one["values"])]
    assert matching, said["findings"]
    if blamed:
        assert {name for one in matching for name in one["hosts"]} >= blamed
        assert {name for one in said["findings"] for name in one["hosts"]} <= blamed
    assert code == (10 if CATALOGUE[row.check].severity.value == "error" else 0)


ALONE = {"host-unreachable", "python3-missing", "npu-tools-missing", "npu-driver-not-loaded"}
"""Faults that keep the host, or its NPUs, from being read at all: they stand for what they hide."""


def pairs() -> list[tuple[Row, Row]]:
    """Faults of one kind of fleet two by two: every row once, on the hosts that it names."""
    plain = [row for row in ROWS if row.fault and not row.prepare and not row.environ and row.check not in ALONE]
    found = []
    for kind in KINDS:
        rows = [row for row in plain if row.fleet == kind]
        half = len(rows) // 2
        found += [(one, two) for one, two in zip(rows[:half], rows[half:], strict=False) if one.check != two.check]
    return found


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("fleet", "pair"),
    [(one.fleet, (one, two)) for one, two in pairs()],
    ids=lambda value: f"{value[0].check}+{value[1].check}" if isinstance(value, tuple) else "",
    indirect=["fleet"],
)
def test_two_faults_at_a_time_are_both_found(fleet: Any, pair: tuple[Row, Row]) -> None:
    """On different hosts where the rows allow it; neither hides the other."""
    one, two = pair
    hosts = [fleet.hosts[one.host], fleet.hosts[two.host]]
    words = [word for row in pair for word in ("--select", row.check, *row.options)]
    with ExitStack() as stack:
        if hosts[0] == hosts[1]:
            stack.enter_context(fleet.broken(hosts[0], f"{one.fault}\n{two.fault}"))
        else:
            for host, row in zip(hosts, pair, strict=True):
                stack.enter_context(fleet.broken(host, row.fault))
        _, report = check(fleet, *words)
    assert {row.check: outcome(report, row.check)["status"] for row in pair} == dict.fromkeys(
        (one.check, two.check), "failed"
    )
