"""Every check finds a fault that was put into a real host, and is silent when the host is healthy."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.smoke_failures import FAILURE_KINDS
from tests.faults import Prepared, Row
from tests.faults.connectivity import DROP_SSH, HIDE_PYTHON
from tests.faults.devices import NPU
from tests.faults.gpus import RDMA, element, gpu_row, logged
from tests.hosts.gpu import CAN_LOCK_ALL
from tests.smoke.proofs import proven
from tests.watch.proofs import TESTS as WATCH_TESTS

TABLES = sorted(path.stem for path in Path(__file__).with_name("faults").glob("[a-z]*.py"))
ROWS: list[Row] = [row for name in TABLES for row in importlib.import_module(f"tests.faults.{name}").ROWS]
KINDS = ("cpu", "a1", "a2", "a3", "a5", "gpu")
ROOT = Path(__file__).parents[1]
CATALOGUE = {entry.name: entry for entry in load_checks()}
SMOKE = {name for name, entry in CATALOGUE.items() if entry.area == "smoke"}
WATCH = {name for name, entry in CATALOGUE.items() if entry.area == "loss"}
LAUNCH = {name for name, entry in CATALOGUE.items() if entry.area == "training"}
"""Their faults lie in scripts and configurations, not in hosts: each has one in tests/lint/cases.py."""


def test_every_check_has_a_row_and_every_row_a_check() -> None:
    """A check that no fault has ever set off is not proven."""
    tried, expected = {row.check for row in ROWS}, set(CATALOGUE) - SMOKE - WATCH - LAUNCH
    assert expected - tried == set(), "add a row to tests/faults/AREA.py: the script that puts the fault into a host"
    assert tried - expected == set(), "tests/faults names a check that is not in checks/"


def test_every_check_of_the_smoke_run_has_a_real_run_that_sets_it_off() -> None:
    """Their faults lie in the programs of ranks, and are tried on real processes by the tests in tests/smoke."""
    absent = SMOKE - proven()
    assert absent == set(), (
        'mark a test in tests/smoke: @pytest.mark.proves("NAME"); of a failure: tests/smoke/faults.py'
    )
    assert proven() - SMOKE == set(), "a proof names a check that is not in checks/"


def test_every_kind_of_failure_of_a_smoke_run_is_found_by_a_rule() -> None:
    texts = [path.read_text("utf-8") for path in (ROOT / "doctor/smoke").rglob("*.py")]
    absent = {kind for kind in FAILURE_KINDS if not any(f'"{kind}"' in text for text in texts)}
    assert absent == set(), "FailureKind of doctor/engine/smoke_summary.py: expected a rule in doctor/smoke/hang/"


def test_every_check_of_a_watched_program_has_a_real_one_that_sets_it_off() -> None:
    """Their faults lie in programs of users, which the tests in tests/watch start."""
    assert set(WATCH_TESTS) == WATCH
    for name, where in WATCH_TESTS.items():
        file, _, test = where.partition("::")
        text = Path(__file__).with_name("watch").joinpath(file).read_text()
        assert f"def {test}(" in text and name in text


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Iterator[Any]:
    yield request.getfixturevalue(f"fleet_{request.param}")


OUT_OF_TIME = re.compile(r"no answer (in|within) \d|stayed busy")
"""Of an answer that a starved machine kept from coming; no fault of these tables hangs a tool."""


def check(fleet: Any, *arguments: str, environ: dict[str, str] | None = None) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON report of `doctor check` on the whole fleet, over SSH.

    What ran out of time is rightly unknown, and shows neither that a fault is found nor that a healthy host is silent:
    it is asked once more.
    """
    code, report = _check(fleet, *arguments, environ=environ)
    if OUT_OF_TIME.search(json.dumps([entry["unknown"] for entry in report["outcomes"]])):
        code, report = _check(fleet, *arguments, environ=environ)
    return code, report


def _check(fleet: Any, *arguments: str, environ: dict[str, str] | None) -> tuple[int, dict[str, Any]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "HCCL", "RANK"))}
    named = [] if "--hosts" in arguments else [",".join(fleet.hosts)]
    done = fleet.run(
        [sys.executable, "-m", "doctor", "check", *named, "-F", str(fleet.ssh_config), "--json", *arguments],
        env={**clean, **(environ or {})},
        text=False,
        cwd=Path(__file__).parents[1],
        timeout=250,
    )
    assert done.stdout, done.stderr.decode()
    return done.returncode, json.loads(done.stdout)


ALONE = {"host-unreachable", "python3-missing", "npu-tools-missing", "npu-driver-not-loaded"}
"""Faults that keep the host, or its NPUs, from being read at all: they stand for what they hide."""


def batched(row: Row) -> bool:
    """The row can be found by a plain ``doctor check``, together with others."""
    return bool(row.fault) and not (row.prepare or row.environ or row.options) and row.check not in ALONE


HEALTHY: dict[Any, tuple[int, dict[str, Any]]] = {}
"""Exit code and report of the runs on healthy fleets: by the kind of the fleet, or by `healthy_command`."""


def healthy_command(row: Row) -> Any:
    """Equal for rows whose command on a healthy fleet is the same but for the selected checks."""
    prepare = row.prepare.func if isinstance(row.prepare, functools.partial) else row.prepare
    return row.fleet, prepare, tuple(row.options), tuple(row.environ.items())


def healthy(fleet: Any, row: Row, folder: Path) -> tuple[int, dict[str, Any]]:
    """The row's command before the fault; one run serves all rows with the same command.

    Where the whole catalogue has been run, that is the one without options: see `test_a_healthy_fleet_is_silent`.
    """
    if not (row.options or row.environ or row.prepare) and (row.fleet in HEALTHY or row in BATCHED):
        if row.fleet not in HEALTHY:
            HEALTHY[row.fleet] = check(fleet)
        return HEALTHY[row.fleet]
    command = healthy_command(row)
    if command not in HEALTHY:
        same = [other for other in ROWS if other.healthy_first and healthy_command(other) == command]
        checks = {other.check for other in same if other not in BATCHED}
        prepared = row.prepare(fleet, folder, True) if row.prepare else Prepared([])
        selected = [word for name in sorted(checks) for word in ("--select", name)]
        arguments = [*selected, *row.options, *prepared.arguments]
        HEALTHY[command] = check(fleet, *arguments, environ={**row.environ, **prepared.environ})
    return HEALTHY[command]


def is_part(expected: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return all(values.get(name) == value for name, value in expected.items())


def of_machine(outcome: dict[str, Any]) -> bool:
    """A finding that is true of the machine itself, which hides it from no test host."""
    return outcome["check"] == "locked-memory-limit-low" and not CAN_LOCK_ALL


def outcome(report: dict[str, Any], name: str) -> dict[str, Any]:
    return next(entry for entry in report["outcomes"] if entry["check"] == name)


def hosts_of(fleet: Any, row: Row) -> set[str]:
    """The hosts that the row's finding must name."""
    return {fleet.hosts[number] for number in ([row.host] if row.blamed is None else row.blamed)}


def found_by(fleet: Any, row: Row, report: dict[str, Any], others: Iterable[str] = ()) -> None:
    """The row's check failed, with the message, the values and the hosts that the row names.

    ``others`` are hosts that other faults give to the same check.
    """
    failed = outcome(report, row.check)
    assert failed["status"] == "failed", (failed["unknown"], failed)
    blamed = hosts_of(fleet, row)
    matching = [
        finding
        for finding in failed["findings"]
        if row.says in finding["message"] and is_part(row.values, finding["values"])
    ]
    assert matching, failed["findings"]
    if blamed:
        assert {name for entry in matching for name in entry["hosts"]} >= blamed
        assert {name for finding in failed["findings"] for name in finding["hosts"]} <= blamed | set(others)


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("kind", "fleet"),
    [pytest.param(kind, kind, marks=[pytest.mark.every] * (kind in ("cpu", "a2")), id=kind) for kind in KINDS],
    indirect=["fleet"],
)
def test_a_healthy_fleet_is_silent(kind: str, fleet: Any) -> None:
    """The whole catalogue finds nothing, and nothing is unknown."""
    if kind not in HEALTHY:
        HEALTHY[kind] = check(fleet)
    code, report = HEALTHY[kind]
    assert [
        (entry["check"], entry["findings"])
        for entry in report["outcomes"]
        if entry["findings"] and not of_machine(entry)
    ] == []
    assert [(entry["check"], entry["unknown"]) for entry in report["outcomes"] if entry["unknown"]] == []
    assert [(entry["check"], entry["crashed"]) for entry in report["outcomes"] if entry["crashed"]] == []
    assert code == 0


MOST, FEWEST = 30, 3
"""Faults in one batch; a smaller one is found alone in every run, at a third of the cost of the whole catalogue."""


PLACE = re.compile(r"/(?:run|sys|usr/local/Ascend)/[\w./-]+|/etc/hccn.conf|/dev/shm|/dev/davinci\d")


def places(row: Row) -> set[str]:
    """The files of a host that the fault changes; copies that its script keeps do not count."""
    home = re.search(r"^cd (/run/npu/\d+)$", row.fault, re.MULTILINE)
    paths = {path for path in PLACE.findall(row.fault) if "/kept" not in path}
    if not home:
        return paths
    names = re.findall(r">>?(\w+)", row.fault)
    names += [name for line in re.findall(r"^rm ([\w ]+)$", row.fault, re.MULTILINE) for name in line.split()]
    return paths - {home[1]} | {f"{home[1]}/{name}" for name in names}


def overlap(paths: set[str], others: set[str]) -> bool:
    """Both change one file, or one of them takes away the NPU of the other."""
    removed = {path.removesuffix("gone") for path in paths | others if path.endswith("/gone")}
    return bool(paths & others) or any(
        path.startswith(npu) and other.startswith(npu) for npu in removed for path in paths for other in others
    )


def compatible(row: Row, batch: Sequence[Row]) -> bool:
    """No other row of the batch is for the same check on the same host, changes the same file, or hides this one."""
    for other in batch:
        if "*" in row.apart or "*" in other.apart:
            return False
        if row.host == other.host and (row.check == other.check or overlap(places(row), places(other))):
            return False
        if row.host == other.host and (row.check in other.also or other.check in row.also):
            return False
        if row.check == other.check and (row.blamed is not None or other.blamed is not None):
            return False
        if {other.check, *other.also} & {*row.apart} or {row.check, *row.also} & {*other.apart}:
            return False
    return True


def batches() -> list[list[Row]]:
    """Every row that can be found together with others, in batches of one kind of fleet."""
    rows: list[list[Row]] = []
    for kind in KINDS:
        own_rows: list[list[Row]] = []
        for row in (row for row in ROWS if row.fleet == kind and batched(row)):
            fits = [batch for batch in own_rows if len(batch) < MOST and compatible(row, batch)]
            if fits:
                fits[0].append(row)
            else:
                own_rows.append([row])
        rows += own_rows
    return rows


NEEDS_LUCK = {"net-packets-lost"}
"""Of four hosts, a direction that loses some packets is told from chance in most runs only: with --full."""
BATCHES = batches()
BATCHED = [row for batch in BATCHES if len(batch) >= FEWEST for row in batch]
"""The rows that every run finds together."""


XID = "NVRM: Xid (PCI:0000:{0}:00): {1}, pid=1122, {2}"
LINK_DOWN = Row("device-link-down", f"echo DOWN >{NPU}/1/link", values={"npus": [1]}, also=("device-unreachable",))
SHORT_QUEUE = next(row for row in ROWS if row.check == "listen-queue-short" and row.fleet == "cpu")
TOGETHER = [
    # Of one host: two devices by one check, or one device by two, which no batch has.
    [gpu_row("gpu-ecc-errors", element(n, "dram_uncorrectable", "0", "7"), gpu=n, observed=7) for n in (0, 3)],
    [
        gpu_row("gpu-ecc-errors", element(2, "dram_uncorrectable", "0", "7"), gpu=2, observed=7),
        gpu_row("gpu-reset-needed", element(2, "remapped_row_pending", "No", "Yes"), gpu=2),
    ],
    [
        gpu_row("rdma-port-down", f"cd {RDMA}/mlx5_{n}/ports/1; echo '1: DOWN' >state", port=f"mlx5_{n}:1")
        for n in (0, 1)
    ],
    [
        gpu_row("gpu-xid-logged", logged(XID.format("01", 48, "An uncorrectable double bit error")), code=48),
        gpu_row("gpu-xid-logged", logged(XID.format("03", 95, "Uncontained: LTC TAG")), code=95),
    ],
    [
        Row("npu-unhealthy", f"echo {word} >{NPU}/{npu}/health", values={"npu": npu, "observed": word})
        for npu, word in ((3, "Warning"), (6, "Alarm"))
    ],
    [LINK_DOWN, Row("npu-unhealthy", f"echo Alarm >{NPU}/1/health", values={"npu": 1, "observed": "Alarm"})],
    # Of two hosts: the one can tell nothing.
    [SHORT_QUEUE, Row("host-unreachable", DROP_SSH, fleet="cpu", host=3, values={"trouble": "dropped"})],
    [SHORT_QUEUE, Row("python3-missing", HIDE_PYTHON, fleet="cpu", host=2)],
]
"""Two faults at once, of which the one might hide the other."""


def marks(row: Row) -> list[pytest.MarkDecorator]:
    """Every run finds one row of each check, in a batch or alone; its further ones that no batch finds take turns."""
    if row in BATCHED or row.check in NEEDS_LUCK:
        return [pytest.mark.full]
    first = next(other for other in [*BATCHED, *ROWS] if other.check == row.check)
    return [] if row == first else [pytest.mark.sample]


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("fleet", "row"),
    [pytest.param(row.fleet, row, marks=marks(row), id=f"{row.fleet}-{row}") for row in ROWS],
    indirect=["fleet"],
)
def test_the_fault_is_found(fleet: Any, row: Row, tmp_path: Path) -> None:
    arguments = ["--select", ",".join((row.check, *row.also)), *row.options]
    if row.healthy_first:
        code, report = healthy(fleet, row, tmp_path)
        assert outcome(report, row.check)["status"] == "passed", outcome(report, row.check)
        assert code == 0
    host = fleet.hosts[row.host]
    prepared = row.prepare(fleet, tmp_path, False) if row.prepare else Prepared([])
    with fleet.broken(host, row.fault) if row.fault else nullcontext():
        code, report = check(fleet, *arguments, *prepared.arguments, environ={**row.environ, **prepared.environ})
    found_by(fleet, row, report)
    for other in report["outcomes"]:
        if other["findings"] and row.check in CATALOGUE[other["check"]].follows_from:
            assert row.check in {finding["follows_from"] for finding in other["findings"]}, other
    findings = [finding for other in report["outcomes"] for finding in other["findings"]]
    assert code == (10 if any(finding["severity"] == "error" for finding in findings) else 0)


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("fleet", "batch"),
    [
        pytest.param(
            batch[0].fleet,
            batch,
            marks=[pytest.mark.full if len(batch) < FEWEST else pytest.mark.every],
            id=f"{batch[0].fleet}-{'+'.join(row.check for row in batch)}",
        )
        for batch in [*BATCHES, *TOGETHER]
    ],
    indirect=["fleet"],
)
def test_faults_are_found_together(fleet: Any, batch: list[Row]) -> None:
    """One run of the whole catalogue finds every fault of a batch, and finds nothing else."""
    with ExitStack() as stack:
        for number in sorted({row.host for row in batch}):
            faults = [row.fault for row in batch if row.host == number]
            stack.enter_context(fleet.broken(fleet.hosts[number], "\n".join(f"(\n{fault}\n)" for fault in faults)))
        code, report = check(fleet)
    blamed: dict[str, set[str]] = {}
    for row in batch:
        for name in (row.check, *row.also):
            blamed.setdefault(name, set()).update(hosts_of(fleet, row) or fleet.hosts)
    for row in batch:
        found_by(fleet, row, report, blamed[row.check])
    for other in report["outcomes"]:
        assert not other["crashed"], other
        for finding in other["findings"] if not of_machine(other) else ():
            assert other["check"] in blamed, finding
            assert not blamed[other["check"]] or set(finding["hosts"]) <= blamed[other["check"]], finding
    findings = [finding for other in report["outcomes"] for finding in other["findings"]]
    assert code == (10 if any(finding["severity"] == "error" for finding in findings) else 0)
