"""``python -m doctor.smoke`` on several real hosts, started on each as a launcher would, with networks that fail it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.fleet import INSIDE, Fleet
from tests.smoke.interpreter import visible_folders

pytestmark = [pytest.mark.torch, pytest.mark.hosts, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]
PORT = 29500
Done = subprocess.CompletedProcess[str]
NOBODY = "10.66.255.250"
EITHER = "have not, so that either side may be cut off"


@pytest.fixture(scope="module")
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(2, {"*": {"shows": visible_folders()}}, name="lnc", subnet="10.66.0.0/16")


def job(fleet: Fleet, ranks: list[tuple[str, Mapping[str, Any]]], *arguments: str) -> list[Done]:
    """Runs a process for each (host, variables), and says how each ended."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(lambda number: process(fleet, ranks, number, *arguments), range(len(ranks))))


def process(fleet: Fleet, ranks: list[tuple[str, Mapping[str, Any]]], number: int, *arguments: str) -> Done:
    argv = [sys.executable, "-m", "doctor.smoke", "--steps", "2", "--json", *arguments]
    host, own_values = ranks[number]
    shared = {"RANK": number, "WORLD_SIZE": len(ranks), "MASTER_ADDR": fleet.addresses[fleet.hosts[0]]}
    values = {"PYTHONPATH": ROOT, "MASTER_PORT": PORT, **shared, **own_values}
    env = INSIDE | {name: str(value) for name, value in values.items()}
    return fleet.enter(host, argv, check=False, env=env, timeout=120)


def trouble(done: list[Done]) -> dict[str, Any]:
    assert done[0].stdout, done[0].stderr
    failure: dict[str, Any] = json.loads(done[0].stdout)["smoke"]["failures"][0]
    assert failure["kind"] == "never-joined"
    return failure


def test_ranks_of_two_hosts_train_together(fleet: Fleet) -> None:
    done = job(fleet, [(host, {}) for host in fleet.hosts], "--layout", "dp=2")
    assert [(completed.returncode, completed.stderr) for completed in done] == [(0, "")] * 2
    report = json.loads(done[0].stdout)
    assert report["smoke"]["hosts"] == [{"host": host, "ranks": 1} for host in fleet.hosts]
    assert done[1].stdout == ""


def test_the_way_round_leads_by_a_sound_rank_of_the_same_host(fleet: Fleet) -> None:
    """The lost rank's host is not the leader's."""
    first, second = fleet.hosts
    done = job(fleet, [(first, {}), (second, {}), (second, {"MASTER_ADDR": NOBODY})])
    results = trouble(done)
    assert (results["culprit_ranks"], results["certainty"]) == ([2], "evidence")
    assert results["text"].startswith(f"MASTER_ADDR={NOBODY} ")
    assert results["seconds"] < 15
    assert len({completed.returncode for completed in done}) == 1


def test_a_host_that_is_led_elsewhere_says_so_itself_and_is_missed(fleet: Fleet) -> None:
    """Of two hosts either may be the cause, and the leader does not know which: it names what it misses, and nobody."""
    first, second = fleet.hosts
    done = job(fleet, [(first, {}), (second, {"MASTER_ADDR": NOBODY})], "--budget", "5")
    results = trouble(done)
    assert (results["culprit_ranks"], results["certainty"], results["limit"]) == ([], "timeout", 5.0)
    assert results["text"].startswith(f"rank 1 of 2 {EITHER}: no connection within 5 s")
    assert done[1].stderr.startswith(f"doctor: rank 1 cannot reach rank 0: MASTER_ADDR={NOBODY} ")
    assert done[1].returncode == 10


def test_a_firewall_on_the_leaders_host_is_not_held_against_those_it_keeps_out(fleet: Fleet) -> None:
    first, second = fleet.hosts
    drop = 'iifname != "lo" tcp dport 20000-29999 drop'
    with fleet.broken(
        first, nft=f"table inet shut {{\n chain in {{\n type filter hook input priority 0\n {drop}\n }}\n}}\n"
    ):
        done = job(fleet, [(first, {}), (first, {}), (second, {}), (second, {})], "--budget", "5")
    results = trouble(done)
    assert (results["culprit_ranks"], results["waiting_ranks"]) == ([], [0, 1, 2, 3])
    assert results["text"].startswith(f"ranks 2-3 of 4 {EITHER}: no connection within 5 s")
    (finding,) = next(
        outcome["findings"]
        for outcome in json.loads(done[0].stdout)["outcomes"]
        if outcome["check"] == "smoke-rank-never-joined"
    )
    assert (finding["hosts"], finding["message"]) == ([], f"not all ranks joined: {results['text']}")
    assert {completed.returncode for completed in done} == {10}


def test_a_fleet_that_is_cut_accuses_neither_part(make_fleet: Callable[..., Fleet]) -> None:
    """Two of five hosts reach none of the others, nor do these reach them: who is at fault is not known."""
    many = make_fleet(5, {"*": {"shows": visible_folders()}}, name="lnx", subnet="10.68.0.0/16")
    others = ", ".join(many.addresses[host] for host in many.hosts[:3])
    rules = f"table inet cut {{ chain in {{ type filter hook input priority 0; ip saddr {{ {others} }} drop; }}; }}"
    with many.broken(many.hosts[3], nft=rules), many.broken(many.hosts[4], nft=rules):
        done = job(many, [(host, {}) for host in many.hosts], "--budget", "5")
    results = trouble(done)
    assert (results["culprit_ranks"], results["certainty"]) == ([], "timeout")
    assert results["text"].startswith(f"ranks 3-4 of 5 {EITHER}: no connection within 5 s")
    outcomes = json.loads(done[0].stdout)["outcomes"]
    assert {host for outcome in outcomes for finding in outcome["findings"] for host in finding["hosts"]} == set()
    assert {completed.returncode for completed in done} == {10}


def test_a_host_that_lets_in_no_more_is_named_and_not_who_cannot_get_in(make_fleet: Callable[..., Fleet]) -> None:
    """As with a full connection table: three hosts have come, and the leader's answers no new connection any more."""
    many = make_fleet(4, {"*": {"shows": visible_folders()}}, name="lnf", subnet="10.65.0.0/16")
    ranks: list[tuple[str, Mapping[str, Any]]] = [(host, {}) for host in many.hosts]
    full = 'table inet full { chain in { type filter hook input priority 0; iifname != "lo" ct state new drop; }; }'
    members = "ss -Htn state established '( sport >= 20000 and sport < 29500 )' | wc -l"
    with ThreadPoolExecutor(4) as pool:
        begun = [pool.submit(process, many, ranks, number, "--budget", "20") for number in range(3)]
        many.enter(many.hosts[0], f"until [ $({members}) -ge 6 ]; do sleep 0.2; done; nft '{full}'", timeout=60)
        begun.append(pool.submit(process, many, ranks, 3, "--budget", "20"))
        done = [each.result() for each in begun]
    results = trouble(done)
    assert (results["culprit_ranks"], results["certainty"]) == ([0], "timeout")
    others = f"{many.hosts[1]}, {many.hosts[2]}"
    sentence = f"{many.hosts[0]} gives {others} no answer to a new connection, though they have come before"
    assert results["text"].startswith(sentence)
    outcomes = json.loads(done[0].stdout)["outcomes"]
    assert {host for each in outcomes for finding in each["findings"] for host in finding["hosts"]} == {many.hosts[0]}


def test_packets_that_are_dropped_are_told_from_a_host_that_refuses(fleet: Fleet) -> None:
    first, second = fleet.hosts
    rules = "table inet shut {\n chain in {\n type filter hook input priority 0\n tcp dport 20000-29999 drop\n }\n}\n"
    with fleet.broken(first, nft=rules):
        done = job(fleet, [(second, {"MASTER_ADDR": fleet.addresses[second]}), (second, {})], "--budget", "5")
        assert "does not answer: packets are dropped, or the host is down" in done[1].stderr
    done = job(fleet, [(second, {"MASTER_ADDR": fleet.addresses[second]}), (second, {})], "--budget", "5")
    assert "refuses connections: nothing of this job listens there" in done[1].stderr
    assert trouble(done)["text"].startswith(f"MASTER_ADDR={fleet.addresses[first]} refuses connections")


def blamed(done: list[Done]) -> dict[str, Any]:
    """The finding of the check of the job's environment, the only one."""
    assert len({completed.returncode for completed in done}) == 1 and done[0].stdout, done[0].stderr
    outcomes = json.loads(done[0].stdout)["outcomes"]
    failed = {outcome["check"]: outcome["findings"] for outcome in outcomes if outcome["status"] == "failed"}
    assert list(failed) == ["smoke-environment-fails"]
    (finding,) = failed["smoke-environment-fails"]
    return dict(finding)


def test_a_variable_of_one_rank_is_named_with_its_host(fleet: Fleet) -> None:
    """gloo takes names of interfaces, and no list of those that it should not take, as NCCL does."""
    first, second = fleet.hosts
    done = job(fleet, [(first, {"NCCL_DEBUG": "WARN"}), (second, {"GLOO_SOCKET_IFNAME": "^lo,docker0"})])
    finding = blamed(done)
    assert finding["message"].endswith("it fails with GLOO_SOCKET_IFNAME=^lo,docker0")
    assert finding["hosts"] == [second]


@pytest.mark.full
def test_a_bridge_that_every_host_has(fleet: Fleet) -> None:
    bridge = "ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
    for host in fleet.hosts:
        fleet.enter(host, bridge)
    try:
        finding = blamed(job(fleet, [(host, {"GLOO_SOCKET_IFNAME": "docker0"}) for host in fleet.hosts]))
        assert (finding["hosts"], finding["values"]["variables"]) == ([], ["GLOO_SOCKET_IFNAME"])
        done = job(fleet, [(host, {"GLOO_SOCKET_IFNAME": "docker0"}) for host in fleet.hosts], "--env", "clean")
        assert done[0].returncode == 0
    finally:
        for host in fleet.hosts:
            fleet.enter(host, "ip link del docker0")


@pytest.mark.full
def test_the_port_of_the_rendezvous_is_one_of_the_variables(fleet: Fleet) -> None:
    rules = f"table inet shut {{ chain in {{ type filter hook input priority 0; tcp dport {PORT} drop; }}; }}"
    with fleet.broken(fleet.hosts[0], nft=rules):
        finding = blamed(job(fleet, [(host, {}) for host in fleet.hosts]))
    assert finding["values"]["variables"] == ["MASTER_PORT"]


def test_why_no_run_is_made_without_master_addr(fleet: Fleet) -> None:
    first, second = fleet.hosts
    done = job(fleet, [(first, {}), (second, {"MASTER_ADDR": NOBODY})], "--budget", "5")
    outcomes = {outcome["check"]: outcome for outcome in json.loads(done[0].stdout)["outcomes"]}
    (unknown,) = outcomes["smoke-environment-fails"]["unknown"]
    assert "did not find each other by MASTER_ADDR and MASTER_PORT" in unknown["reason"]


@pytest.mark.full  # four rounds of interpreters; the rounds themselves: `test_triage`, the parts: `test_parts`
@pytest.mark.proves("smoke-host-left-out")
def test_a_sick_host_of_a_launched_job_is_left_out_and_the_rest_trains(make_fleet: Callable[..., Fleet]) -> None:
    """A rank of it is killed at its fifth all_reduce, in each run that it takes part in."""
    many = make_fleet(5, {"*": {"shows": visible_folders()}}, name="lnt", subnet="10.67.0.0/16")
    sick = many.hosts[3]
    many.write(sick, "/root/hook/sitecustomize.py", (ROOT / "tests/smoke/outside_hook.py").read_text("utf-8"))
    fault = {"kind": "signal", "signal": "SIGKILL", "call": 5, "every": 1 << 30, "ranks": list(range(10))}
    many.write(sick, "/root/hook/fault.json", json.dumps(fault))
    ranks = [(host, {"PYTHONPATH": f"{ROOT}:/root/hook"} if host == sick else {}) for host in many.hosts for _ in "12"]
    done = job(many, ranks, "--cells", "2", "--budget", "60")
    report = json.loads(done[0].stdout)
    assert {completed.returncode for completed in done} == {10}, done
    found = {outcome["check"]: outcome["findings"] for outcome in report["outcomes"] if outcome["status"] == "failed"}
    assert list(found) == ["smoke-host-left-out"]
    (finding,) = found["smoke-host-left-out"]
    assert finding["hosts"] == [sick]
    assert f" ({sick}) dead in " in finding["message"]
    assert report["smoke"]["ended"] == "complete"
    assert [entry["host"] for entry in report["smoke"]["hosts"]] == [host for host in many.hosts if host != sick]
    (note,) = [note for note in report["smoke"]["notes"] if "numbered anew" in note]
    assert note.endswith("they are ranks 0-5, 8-9 of the job")
