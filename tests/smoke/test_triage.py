"""Screening of large fleets: simulated up to 4,096 hosts, and real runs in cells on test hosts."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from doctor.smoke.model import Failure, SmokeResult, SmokeRun
from doctor.smoke.plan import PlanHost, SmokeOptions, build_plan
from doctor.smoke.triage.conduct import run_healthy, run_together, screen
from doctor.smoke.triage.screening import MOST_ROUNDS, Cell, CellResult, Screening
from tests.hosts.fleet import Fleet
from tests.smoke.interpreter import visible_folders
from tests.smoke.test_hosts import CLEAN, ROOT, failed, messages


class SimulatedFleet:
    """Hosts some of which fail whatever they run in, and links some of which carry nothing."""

    def __init__(self, count: int, rng: Random, sick: int = 0, links: int = 0, names: float = 0.8) -> None:
        self.hosts = [f"w{number:04d}" for number in range(count)]
        self.sick = set(rng.sample(self.hosts, sick))
        healthy = [host for host in self.hosts if host not in self.sick]
        self.links = {tuple(sorted(rng.sample(healthy, 2))) for _ in range(links)}
        self.rng, self.names = rng, names
        self.ran_with: dict[str, set[str]] = {host: set() for host in self.hosts}

    def run(self, cell: Cell) -> CellResult:
        """The first fault ends a run, and is named or not."""
        for host in cell:
            self.ran_with[host].update(cell)
        faults: list[tuple[str, ...]] = [(host,) for host in cell if host in self.sick]
        faults += [link for link in self.links if set(link) <= set(cell)]
        if not faults:
            return CellResult("passed")
        fault = self.rng.choice(faults)
        is_named = self.rng.random() < self.names
        return CellResult("failed", fault if is_named else (), len(fault) == 1, "smoke-rank-died", "it died")

    def smoke_result(self, cell: Cell, ended: bool = True) -> SmokeResult:
        """The same as a run, which names whom it has found."""
        plan = build_plan({host: PlanHost(slots=1) for host in cell}, SmokeOptions(backend="gloo"))
        sick = [number for number, host in enumerate(cell) if host in self.sick]
        if not ended:
            failure, state = Failure("budget", (), ()), "budget"
        elif sick:
            failure, state = Failure("dead", (sick[0],), ()), "trouble"
        else:
            return SmokeResult(SmokeRun(plan, ended="complete"), {})
        return SmokeResult(SmokeRun(plan, failures=(failure,), ended=state), {})

    def screened(self, cell_size: int = 16) -> Screening:
        screening = Screening(self.hosts, cell_size)
        while cells := screening.next_round():
            together = [host for cell in cells for host in cell]
            assert len(together) == len(set(together)), "a host is in one cell at a time"
            assert max(map(len, cells)) <= cell_size + 1
            for cell in cells:
                screening.note(cell, self.run(cell))
        return screening


@pytest.mark.parametrize("count", [33, 64, 100, 512, 1000, 4096])
def test_all_sick_hosts_of_a_fleet_are_found_and_no_other(count: int) -> None:
    rng = Random(count)
    for sick in (0, 1, 3, 8):
        fleet = SimulatedFleet(count, rng, sick)
        screening = fleet.screened()
        assert set(screening.left_out) == fleet.sick
        assert (screening.links, screening.undecided) == ({}, set())
        assert screening.healthy == tuple(host for host in fleet.hosts if host not in fleet.sick)
        assert screening.rounds <= screening.phases + 16 * (sick > 0)
        assert screening.rounds < MOST_ROUNDS


def test_a_failure_that_names_nobody_is_found_by_halves() -> None:
    for seed in range(30):
        fleet = SimulatedFleet(128, Random(seed), sick=3, names=0.0)
        screening = fleet.screened()
        assert set(screening.left_out) == fleet.sick and not screening.undecided


def test_a_link_between_healthy_hosts_is_no_hosts_fault() -> None:
    links = 0
    for seed in range(40):
        fleet = SimulatedFleet(256, Random(seed), sick=1, links=4, names=0.5)
        screening = fleet.screened()
        assert set(screening.left_out) == fleet.sick
        assert {tuple(sorted(pair)) for pair in screening.links} <= fleet.links
        links += len(screening.links)
    assert links > 5


@pytest.mark.parametrize("sizes", [(32, 32), (30, 34), (24, 40), (32, 32, 32), (64, 64)])
def test_a_fleet_that_is_cut_leaves_nobody_out(sizes: Sequence[int]) -> None:
    """Of a cell the smaller part is named, which differs from cell to cell: the run of all hosts has to tell."""
    parts = [part for part, size in enumerate(sizes) for _ in range(size)]
    for seed in range(6):
        if seed:
            Random(seed).shuffle(parts)
        part_of = {f"w{number:04d}": part for number, part in enumerate(parts)}
        screening = Screening([*part_of])
        while cells := screening.next_round():
            for cell in cells:
                ordered = Counter(part_of[host] for host in cell).most_common()
                is_most = 2 * ordered[0][1] > len(cell)
                named = tuple(host for host in cell if is_most and part_of[host] != ordered[0][0])
                state = "passed" if len(ordered) == 1 else "failed"
                screening.note(cell, CellResult(state, named, is_most, "smoke-rank-never-joined", "no answer"))
        assert screening.left_out == {}


def test_every_host_runs_with_hosts_of_all_parts_of_the_fleet() -> None:
    fleet = SimulatedFleet(512, Random(1))
    screening = fleet.screened()
    assert screening.rounds == screening.phases == 3
    for number, host in enumerate(fleet.hosts):
        others = {int(other[1:]) for other in fleet.ran_with[host]} - {number}
        assert {other // 16 for other in others} > {number // 16} and len(others) >= 30


@pytest.mark.parametrize("names", [True, False])
def test_what_fails_everywhere_is_no_matter_of_hosts(names: bool) -> None:
    """An interpreter without torch: all hosts run together once more, and that run says why."""
    screening = Screening([f"w{number}" for number in range(64)], 8)
    while cells := screening.next_round():
        for cell in cells:
            named = cell if names else ()
            screening.note(cell, CellResult("failed", named, names, "smoke-rank-not-started", "no torch"))
    assert screening.rounds == 1 and screening.abandoned
    assert (screening.left_out, screening.undecided, len(screening.healthy)) == ({}, set(), 64)


def test_a_screening_whose_time_is_over_leaves_the_rest_undecided() -> None:
    screening = Screening([f"w{number}" for number in range(64)], 8)
    first, *others = screening.next_round()
    for cell in others:
        screening.note(cell, CellResult("passed"))
    screening.note(first, CellResult("failed", (), False, "smoke-network-silent", "nothing"))
    screening.give_up()
    assert screening.undecided == set(first) and not screening.left_out


def test_runs_that_did_not_end_in_time_run_once_more_and_in_parts_and_say_nothing() -> None:
    screening = Screening([f"w{number}" for number in range(40)], 8)
    while cells := screening.next_round():
        for cell in cells:
            screening.note(cell, CellResult("unfinished"))
    screening.give_up()
    assert not screening.left_out and screening.rounds == 5 * screening.phases
    assert screening.undecided == set(screening.hosts)


@pytest.mark.parametrize("unfinished", [1, 8])
def test_sick_hosts_are_found_where_the_first_runs_of_their_cells_do_not_end(unfinished: int) -> None:
    """As where the controller has too few CPUs: half as many cells run at once, then."""
    fleet, batches = SimulatedFleet(64, Random(7), sick=3, names=0.0), list[int]()

    def run_cells(cells: Sequence[Cell], _: SmokeOptions) -> list[SmokeResult]:
        batches.append(len(cells))
        first = len(batches) == 1
        return [fleet.smoke_result(cell, not first or number >= unfinished) for number, cell in enumerate(cells)]

    screening = screen(fleet.hosts, SmokeOptions(cell_size=8), run_cells, lambda *_: None)
    assert set(screening.left_out) == fleet.sick and not screening.undecided
    assert batches[0] == 8 and max(batches[1:]) <= 4


def test_a_host_that_no_run_with_it_ends_hides_nobody() -> None:
    """Such as one that the controller loses each time, in the cell of two sick hosts."""
    fleet = SimulatedFleet(64, Random(5))
    fleet.sick = {fleet.hosts[1], fleet.hosts[6]}
    screening, lost = Screening(fleet.hosts, 8), fleet.hosts[3]
    while cells := screening.next_round():
        for cell in cells:
            screening.note(cell, CellResult("unfinished") if lost in cell else fleet.run(cell))
    screening.give_up()
    assert set(screening.left_out) == fleet.sick and screening.undecided == {lost}


def test_who_fails_the_run_of_all_healthy_hosts_is_left_out_of_the_next() -> None:
    """A fault that shows in a large world alone, on two hosts, one after the other."""
    fleet = SimulatedFleet(40, Random(3), sick=2)
    screening, runs = Screening(fleet.hosts, 8), list[int]()
    screening.rounds = 2

    def run(hosts: Cell, _: SmokeOptions) -> SmokeResult:
        runs.append(len(hosts))
        return fleet.smoke_result(hosts)

    result = run_healthy(SmokeOptions(), screening, run)
    assert (runs, result.run.ended, set(screening.left_out)) == ([40, 39, 38], "complete", fleet.sick)


def test_a_cell_that_blames_most_of_itself_is_tried_in_parts() -> None:
    """Where most of a cell died, what they have in common is more likely than so many sick hosts."""
    screening = Screening([f"w{number}" for number in range(32)], 16)
    first, second = screening.next_round()
    screening.note(first, CellResult("failed", first[:12], True, "smoke-rank-died", "died"))
    screening.note(second, CellResult("passed"))
    assert not screening.left_out
    assert [len(cell) for cell in screening.next_round()] == [8, 8]


def test_an_interrupt_does_not_wait_for_cells() -> None:
    began = time.monotonic()

    def run(cell: Cell) -> Any:
        if cell == ("b",):
            raise KeyboardInterrupt
        time.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        run_together([("a",), ("b",)], run)
    assert time.monotonic() - began < 10


# ---- real runs in cells, on test hosts

SICK = """
import os as _os
import socket as _socket

_run = run_rank

def run_rank(orders, rank, events, recorder):
    if _socket.gethostname() in ({0}):
        STAGE_FUNCTIONS["pairs"] = lambda ctx: _os.kill(_os.getpid(), 9)
    return _run(orders, rank, events, recorder)
"""


LIGHT = """
for _name in ("collectives", "training", "learning", "loader", "pace", "soak"):
    STAGE_FUNCTIONS[_name] = lambda ctx: None
"""
"""Ranks that meet and exchange data in pairs, and train nothing: of 64 that do all, two CPUs are busy for minutes."""


class RealRun(NamedTuple):
    name: str
    hosts: int
    cells: int
    ranks: int
    sick: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    change: str = ""
    """Of all ranks' program."""


SMALL = RealRun("tri", 6, 2, 1, ("tri0002", "tri0005"), ("--layout", "dp=6"))
LARGE = RealRun("all", 8, 4, 8, ("all0002", "all0003", "all0007"), ("--layout", "dp=64", "--budget", "400"), LIGHT)
"""Two of the sick hosts are in one cell, whose first run one of them ends."""


@pytest.mark.proves("smoke-host-left-out")
@pytest.mark.torch
@pytest.mark.hosts
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("real", [SMALL, pytest.param(LARGE, marks=pytest.mark.full)], ids=["6 ranks", "64 ranks"])
def test_all_sick_hosts_are_found_in_one_run_and_the_rest_trains(
    make_fleet: Callable[..., Fleet], tmp_path: Path, real: RealRun
) -> None:
    fleet = make_fleet(real.hosts, {"*": {"shows": visible_folders()}}, name=real.name)
    hosts = fleet.hosts[: real.hosts]
    faults = tmp_path / "faults.py"
    faults.write_text(real.change + SICK.format(", ".join(map(repr, real.sick))))
    argv = [sys.executable, "-m", "tests.smoke.faulty", str(faults), "smoke", ",".join(hosts)]
    argv += ["--cells", str(real.cells), "-F", str(fleet.ssh_config), "--python", sys.executable, "--json"]
    argv += ["--ranks-per-host", str(real.ranks), *real.arguments]
    done = fleet.run(argv, env=CLEAN, cwd=ROOT, timeout=1700)
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == 10, messages(report)
    assert failed(report) == {"smoke-host-left-out": list(real.sick)}
    assert report["smoke"]["ended"] == "complete"
    healthy = [host for host in hosts if host not in real.sick]
    assert [entry["host"] for entry in report["smoke"]["hosts"]] == healthy
    assert any(f"screened {real.hosts} hosts" in note for note in report["smoke"]["notes"])
    assert any("those that fit the remaining hosts ran" in note for note in report["smoke"]["notes"])
    for host in hosts:
        left = fleet.enter(host, "ls -d /dev/shm/torch_* /tmp/pymp-* 2>&-; pgrep -f '[d]octor' || true").stdout
        assert not left.strip(), (host, left)
