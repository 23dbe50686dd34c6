"""Evaluation is linear in the hosts: no check, and no fact, does again for each host what concerns all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.check import once_per_fleet
from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Output, PerHost, ProbeAnswer, Unreadable, Visit
from doctor.engine.record import load_run
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.job import JobPorts, agreed_blocks, find_blocks
from doctor.facts.firewall.routes import Master, find_routes
from doctor.facts.network import MAX_ADDRESSES, HostAddresses, InterfaceAddress
from doctor.session.replay import RunIntent, replay
from tests.bench.large_fleet import CLOSED, multiplied, sickened
from tests.checks import tables
from tests.hosts.fleet import Fleet

ROOT = Path(__file__).parents[1]
SIZES = (12, 24, 48)
MOST_GROWTH = 1.03
"""The second doubling may cost this much more than twice the first."""
MOST_CPU_GROWTH = 3.0
"""Of one check's CPU time at twice the hosts. The square would be 4."""
LEAST_SECONDS = 0.01
"""Of a check that is judged: in less, a busy machine shows nothing."""


def saved_run(fleet: Fleet, folder: Path) -> dict[str, Any]:
    path = folder / "two.json"
    arguments = ["check", "sb[0001-0002]", "-F", str(fleet.ssh_config), "--save", str(path), "-q"]
    subprocess.run(fleet.argv([sys.executable, "-m", "doctor", *arguments]), cwd=ROOT, timeout=100)
    return dict(json.loads(path.read_text()))


@pytest.fixture(scope="module")
def saved(fleet_a2: Fleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The saved run of two real hosts with NPUs."""
    return saved_run(fleet_a2, tmp_path_factory.mktemp("npus"))


@pytest.fixture(scope="module")
def saved_gpus(fleet_gpu: Fleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The saved run of two real hosts with GPUs, and a kernel log that may be read."""
    return saved_run(fleet_gpu, tmp_path_factory.mktemp("gpus"))


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs; each turn of a loop counts."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    return count


@pytest.mark.timeout(400)  # what counts is lines and CPU time, on a busy machine too
@pytest.mark.parametrize("fleet", ["npus", "gpus", "npus with master and rank table"])
def test_twice_the_hosts_are_twice_the_work(request: pytest.FixtureRequest, fleet: str) -> None:
    checks, counts = load_checks(), []
    two_hosts = request.getfixturevalue("saved_gpus" if fleet == "gpus" else "saved")
    for size in SIZES:
        run = multiplied(two_hosts, size, names_each=8)
        if "rank table" in fleet:
            run["launch"] = {**run["launch"], "master_addr": "sb00001", "master_port": 29500, "framework": "torch"}
            run["rank_table"] = {"path": "/t", "text": json.dumps(tables.a2(size, 8))}
        loaded = load_run(msgspec.json.encode(run), "run")
        replay(loaded, checks)
        counts.append(lines_run(lambda loaded=loaded: replay(loaded, checks)))
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    assert second <= 2 * MOST_GROWTH * first, counts


def seconds_of_checks(run: dict[str, Any], names: Collection[str] = ()) -> dict[str, float]:
    """CPU seconds of each check, or of those of these names: the least of two evaluations of facts that are read."""
    loaded = load_run(msgspec.json.encode(run), "run")
    intent = RunIntent(loaded)
    checks = [check for check in load_checks() if check.name in names or not names]
    hosts, facts = tuple(loaded.hosts), FactCache(loaded.hosts)
    for check in checks:
        evaluate_check(check, hosts, facts, intent)
    seconds: dict[str, float] = {}
    for _ in range(2):
        fresh = FactCache(loaded.hosts)  # what a check keeps of a fleet is of the fleet's own objects
        fresh._values = facts._values
        for check in checks:
            began = time.thread_time()
            evaluate_check(check, hosts, fresh, intent)
            seconds[check.name] = min(time.thread_time() - began, seconds.get(check.name, float("inf")))
    return seconds


@pytest.mark.timeout(400)
@pytest.mark.parametrize("devices", ["saved", "saved_gpus"], ids=["npus", "gpus"])
@pytest.mark.parametrize("kind", [pytest.param("healthy", marks=pytest.mark.full), "sick"])
def test_twice_the_hosts_are_twice_the_cpu_of_every_check(
    request: pytest.FixtureRequest, kind: str, devices: str
) -> None:
    """Each by itself, with what runs inside of calls: one that takes the median of all NPUs for each hides in a sum."""
    two_hosts = request.getfixturevalue(devices)

    def growth(count: int, names: Collection[str] = ()) -> dict[str, float]:
        runs = (multiplied(two_hosts, size, names_each=8) for size in (count, 2 * count))
        few, many = (seconds_of_checks(run if kind == "healthy" else sickened(run), names) for run in runs)
        return {name: many[name] / few[name] for name in many if many[name] > LEAST_SECONDS}

    suspected = {name for name, ratio in growth(150).items() if ratio > MOST_CPU_GROWTH}
    for _ in range(2):
        measured = growth(300, suspected) if suspected else {}
        suspected = {name for name, ratio in measured.items() if ratio > MOST_CPU_GROWTH}
    assert not suspected, measured


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("devices", ["saved", "saved_gpus"], ids=["npus", "gpus"])
def test_numbers_that_contradict_each_other_crash_no_check(
    request: pytest.FixtureRequest, devices: str, share: float
) -> None:
    run = sickened(multiplied(request.getfixturevalue(devices), 40, names_each=8), share)
    report = replay(load_run(msgspec.json.encode(run), "run"), load_checks())
    assert {outcome.check: outcome.crashed for outcome in report.outcomes if outcome.crashed} == {}


def test_a_host_with_too_many_addresses_is_unknown_itself() -> None:
    own_entries = [["lo", "127.0.0.1", 8], ["eth0", "10.0.0.1", 16]]
    veths = [[f"veth{number}", f"fe80::{number:x}", 64] for number in range(1, 3000)]
    many = [["eth0", f"10.1.{number >> 8}.{number & 255}", 32] for number in range(MAX_ADDRESSES)]
    assert len(read(own_entries + veths).interfaces) == 3001
    with pytest.raises(Unreadable, match="it has 513 addresses; expected at most 512"):
        read(own_entries + many)


def read(entries: list[list[Any]]) -> HostAddresses:
    return HostAddresses.read(ProbeAnswer({"": Output(out=json.dumps(entries))}, "", Visit()))


def test_hosts_in_networks_of_their_own_cost_no_more_than_those_in_one() -> None:
    """Racks: the ways out of each network are found once, not once for each host."""

    def lines(count: int) -> int:
        hosts = {
            f"h{number}": HostAddresses(
                interfaces=(InterfaceAddress("eth0", f"10.{number % 8}.0.{number // 8 + 1}", 24),)
            )
            for number in range(count)
        }
        fleet = PerHost(hosts)
        return lines_run(lambda: [find_routes(host, fleet, Master()) for host in hosts.values()])

    assert lines(400) <= 2.3 * lines(200)


def test_addresses_with_gaps_between_cost_no_more_than_one_range() -> None:
    """All that a firewall blocks is told of the fleet once, and of a host without its own address."""
    dump = {"legacy": {"ip": ["filter"], "ip6": []}, "outputs": {"iptables-legacy": {"out": CLOSED}}, "tables": []}
    dump |= {"local": ["10.0.0.1"], "bridges": [], "refused": False, "error": "", "root": True}
    rules = FirewallRules.read(ProbeAnswer({"": Output(out=json.dumps(dump))}, "", Visit()))
    ports = JobPorts((), ((29500, 29500),), ((32768, 60999),), ((32768, 60999),))

    def lines(count: int) -> int:
        addresses = [f"10.0.{number // 100}.{2 * (number % 100) + 1}" for number in range(count)]
        fleet = PerHost({text: HostAddresses(interfaces=(InterfaceAddress("eth0", text, 8),)) for text in addresses})

        def judge() -> None:
            for text, host in fleet.items():
                own = msgspec.structs.replace(rules, local_addresses=(text,))
                (block,) = find_blocks(own, find_routes(host, fleet, Master()), ports, "")
                assert agreed_blocks([block], addresses) == [block]
                assert block.peers == "every other host"

        return lines_run(judge)

    assert lines(400) <= 2.3 * lines(200)


def test_what_is_kept_is_of_the_same_objects() -> None:
    calls: list[object] = []
    keep = once_per_fleet(lambda *args, **more: calls.append(args) or len(calls))
    first, other = [1], [1]
    assert [keep(first), keep(first), keep(other), keep(first, x=1), keep(first, x=1), keep(first)] == [
        1,
        1,
        2,
        3,
        3,
        4,
    ]
