"""The emulated npu-smi of every generation, read by the facts and judged by the checks, and fleets that mix them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.evaluate import FactCache, evaluate_check, read_fact
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord
from doctor.engine.result import Outcome
from doctor.facts.container import HostContainer
from doctor.facts.npu import NpuChips, NpuMemoryErrors, NpuStart
from doctor.facts.npu_health import NpuHealth
from doctor.facts.npu_table import NpuTable
from doctor.facts.processes import NpuProcesses
from doctor.job import LaunchConfig
from tests.hosts.smi import emulate

FACTS = (NpuTable, NpuChips, NpuStart, NpuHealth, NpuMemoryErrors)
GENERATIONS: dict[str, dict[str, Any]] = {
    "A1-21": {"family": "A1", "driver": "21.0.2", "chip": "910A"},
    "A1-22": {"family": "A1", "driver": "22.0.4.1"},
    "A2-24": {"family": "A2", "driver": "24.1.0"},
    "A2-26": {"family": "A2", "driver": "26.0.rc1", "chip": "910B3"},
    "A3-25": {"family": "A3", "driver": "25.5.2"},
    "A3-26": {"family": "A3", "driver": "26.1.0"},
    "A5-25": {"family": "A5", "driver": "25.7.rc1"},
}
CHECKS = {
    check.name: check
    for check in load_checks()
    if check.name in ("npu-unhealthy", "npu-health-warning", "npu-busy", "npu-hbm-low", "npu-memory-errors")
}
RECORDS: dict[str, HostRecord] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield tmp_path_factory.mktemp("npu-smi")


def healthy(folder: Path, generation: str) -> HostRecord:
    """The record of a healthy host, made once."""
    if generation not in RECORDS:
        RECORDS[generation] = emulate(folder / generation, *FACTS, **GENERATIONS[generation])
    return RECORDS[generation]


def judge(records: dict[str, HostRecord]) -> dict[str, Outcome]:
    """The outcomes of `CHECKS` on machines whose NPUs no program uses."""
    view = {"marks": [], "variables": {}, "cgroup": "0::/init.scope", "root": "ext4", "sources": [], "namespaces": {}}
    view |= {"read_only": [], "network_cards": 2, "devices": [], "files": [], "libraries": [], "capabilities": 0}
    answers = {HostContainer: {**view, "uid": 0, "named_user": True}, NpuProcesses: {"there": False, "holders": []}}
    more = {fact.__name__: {"": Output(out=json.dumps(answer))} for fact, answer in answers.items()}
    records = {host: HostRecord(Visit(), {**record.outputs, **more}) for host, record in records.items()}
    intent: dict[type, object] = {LaunchConfig: LaunchConfig.from_environment({})}
    return {name: evaluate_check(check, tuple(records), FactCache(records), intent) for name, check in CHECKS.items()}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_is_read(folder: Path, generation: str) -> None:
    record = healthy(folder, generation)
    table, chips, start = (read_fact(record, fact) for fact in (NpuTable, NpuChips, NpuStart))
    count = 16 if generation.startswith("A3") else 8
    assert [state.device for state in table.npus] == list(range(count))
    assert {chip.device for chip in chips.chips} == set(range(count)) and start.cards == 8
    assert {state.health for state in table.npus} == {"OK"} and table.unread == {}
    assert {report.health for report in read_fact(record, NpuHealth).chips} == {"OK"}
    assert ("lists no processes" in table.process_problem) == (generation in ("A1-21", "A1-22"))


@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_fleet_of_mixed_generations_is_silent(folder: Path, seed: int) -> None:
    chosen = random.Random(seed).choices(list(GENERATIONS), k=4)
    outcomes = judge({f"h{n}": healthy(folder, generation) for n, generation in enumerate(chosen)})
    assert {name: outcome.findings for name, outcome in outcomes.items() if outcome.findings} == {}
    old = {f"h{n}" for n, generation in enumerate(chosen) if generation in ("A1-21", "A1-22")}
    assert set(outcomes["npu-busy"].unknown) == old
    assert {name for name, outcome in outcomes.items() if outcome.unknown} <= {"npu-busy"}


FAULTS = {
    "npu-unhealthy": ({"6/health": "Alarm\n", "6/health_codes": "80E18402\n"}, 6),
    "npu-hbm-low": ({"5/hbm_total": "20000\n"}, 5),
    "npu-busy": ({"3/processes": "4242 python3 3400\n"}, 3),
}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_fault_is_found_in_every_generation_that_shows_it(tmp_path: Path, generation: str) -> None:
    files = {path: text for faults, _ in FAULTS.values() for path, text in faults.items()}
    outcomes = judge({"h": emulate(tmp_path, *FACTS, faults=files, **GENERATIONS[generation])})
    for name, (_, npu) in FAULTS.items():
        if name == "npu-busy" and generation in ("A1-21", "A1-22"):
            continue  # these list no processes, which is unknown
        if name == "npu-hbm-low" and generation.startswith("A5"):
            continue  # the rated memory of the 950 family is not public
        assert [finding.values["npu"] for finding in outcomes[name].findings] == [npu], name


@pytest.mark.parametrize("fault", ["silent", "unshown"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_card_that_does_not_answer_is_found_in_every_generation(tmp_path: Path, generation: str, fault: str) -> None:
    record = emulate(tmp_path, *FACTS, faults={f"2/{fault}": ""}, **GENERATIONS[generation])
    (finding,) = judge({"h": record})["npu-unhealthy"].findings
    assert finding.values["npu"] == 2
