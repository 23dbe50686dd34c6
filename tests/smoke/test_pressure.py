"""What keeps ranks from running is evidence, and a starved rank is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from doctor.smoke.hang.host_pressure import (
    full_tables,
    idle_cpu_sentences,
    inferred_losses,
    of_own_ranks,
    pressure_sentences,
    quota_use,
    sentences_by_host,
    starved_ranks,
)
from doctor.smoke.model import CpuSpin, Failure, QuotaUse
from doctor.smoke.plan import PlanHost, SmokeOptions, build_plan
from doctor.smoke.programs.agent import pressure as pressure_module
from doctor.smoke.programs.agent.pressure import Pressure
from doctor.smoke.protocol import HostPressure
from doctor.smoke.results.slow_rank_findings import quota_findings
from doctor.smoke.run.failure_evidence import _with_full_tables, read_pressure
from doctor.smoke.speed.cpu_quotas import held_back_ranks
from tests.checks.smoke import ran
from tests.smoke.scripted import Line, alive, done, life
from tests.smoke.test_launch import WISH, agent, play

CGROUP = Path("/sys/fs/cgroup/cpu")
STARVED = {"ranks": {"2": [100, 98, 9.7, 0.1, 9.0], "3": [0, 0, 0.0, 4.0, 0.1]}}


def test_a_quiet_host_has_nothing_to_say() -> None:
    quiet = HostPressure({0: (0, 0, 0.0, 5.0, 0.1), 1: (100, 2, 0.1, 5.0, 0.2)}, 0.01, {"cpu": 12.0, "io": 1.0})
    assert pressure_sentences("w1", quiet) == ()
    assert starved_ranks({"w1": quiet}) == {}


def test_every_kind_of_pressure_is_a_sentence() -> None:
    pressed = HostPressure({0: (100, 20, 1.5, 5.0, 0.1), 1: (0, 0, 0.0, 3.0, 2.0)}, 0.12, {"memory": 30.0})
    quota, cpu, steal, memory = pressure_sentences("w1", pressed)
    assert quota == "Rank 0 was held back by the CPU quota of its control group for 1.5 s, in 20% of its periods."
    assert "Rank 1 waited for a CPU for 40%" in cpu
    assert "12% of its CPU time (steal)" in steal
    assert "waited for memory in 30%" in memory


def test_a_full_table_of_neighbours_is_said() -> None:
    full, roomy = HostPressure({0: (0, 0, 0.0, 5.0, 0.1)}, neighbours=(1024, 7)), HostPressure(neighbours=(1024, 0))
    (sentence,) = pressure_sentences("w1", full)
    assert "w1: the kernel's table of neighbours (ARP), of 1024 entries" in sentence and "7 times" in sentence
    assert pressure_sentences("w1", roomy) == ()
    assert full_tables({"w1": full, "w2": roomy}) == {"w1": sentence}


PLAN = build_plan({name: PlanHost(slots=1) for name in "abcde"}, SmokeOptions(backend="gloo"))


@pytest.mark.parametrize(
    ("full", "links", "named"),
    [
        ("", [("a", "b")], None),
        ("ab", [("a", "b")], (0, 1)),
        ("abcde", [("a", "b")], ()),
        ("cd", [("a", "b")], None),
        ("d", [], (3,)),
    ],
    ids=["none is full", "theirs", "one kernel of all", "others'", "one, and no link"],
)
def test_a_link_whose_hosts_had_no_room_for_a_neighbour_is_not_the_cause(
    full: str, links: Sequence[tuple[str, str]], named: tuple[int, ...] | None
) -> None:
    failure = Failure("network", (), (), links=tuple(links), text="")
    after = _with_full_tables(failure, {host: f"{host}: no room" for host in full}, PLAN)
    if named is None:
        assert after == failure
    else:
        assert (after.culprit_ranks, after.links, after.text) == (named, (), f"{full[0]}: no room")


def test_entries_that_the_kernel_had_no_room_for_are_counted_from_the_agents_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = iter([(1024, 900), (1024, 905)])
    monkeypatch.setattr(pressure_module, "neighbour_table", lambda: next(counts))
    assert Pressure().report({})["neighbours"] == [1024, 5]


def test_hosts_that_are_short_of_cpus_alike_are_no_evidence_against_one() -> None:
    """One sentence for all; a host that waits far longer, and what is its own besides, is still said.

    Of a host that does not answer nothing is said: 300 kbit/s at its interface held the answer up in a real run.
    """
    busy = [HostPressure({rank: (0, 0, 0.0, 1.0, 9.0)}, stalls={"cpu": 88.0}) for rank in range(3)]
    alike = "All 3 hosts are short of CPUs alike: tasks waited for one for 90% of the time or more."
    assert sentences_by_host(dict(zip("abc", busy, strict=True))) == dict.fromkeys("abc", (alike,))
    assert sentences_by_host(dict(zip("abc", busy, strict=True)), 3)["a"] == (alike,)
    of_some = (
        "The 3 of 4 hosts that answered are short of CPUs alike: tasks waited for one for 90% of the time or more."
    )
    assert sentences_by_host(dict(zip("abc", busy, strict=True)), 4) == dict.fromkeys("abc", (of_some,))
    robbed = HostPressure({2: (0, 0, 0.0, 1.0, 9.0)}, 0.3)
    assert sentences_by_host({"a": busy[0], "c": robbed})["c"][1] == (
        "c: the hypervisor took 30% of its CPU time (steal)."
    )
    a_little = HostPressure({1: (0, 0, 0.0, 7.0, 2.5)})
    named = sentences_by_host({"a": busy[0], "b": a_little})
    assert named["a"] == ("Rank 0 waited for a CPU for 90% of its time.",)
    assert sentences_by_host({"a": busy[0], "b": HostPressure()}) == {"a": named["a"], "b": ()}
    assert sentences_by_host({"a": busy[0]}) == {"a": named["a"]}


def test_a_wait_for_a_cpu_beside_idle_ones_is_a_quota_that_is_not_shown() -> None:
    """A container without cgroupfs: neither periods nor seconds, and the kernel counts the rank as waiting."""
    waited = {0: (0, 0, 0.0, 1.0, 19.0), 1: (0, 0, 0.0, 9.0, 1.0)}
    hidden, busy = HostPressure(waited, idle={0: 0.7}), HostPressure(waited, idle={0: 0.1, 1: 0.9})
    (sentence,) = idle_cpu_sentences("w1", hidden)
    assert sentence.startswith("w1: rank 0 waited for a CPU most of the time, although CPUs had nothing to do for 70%")
    assert held_back_ranks(quota_use({"w1": hidden})) == {0: 0.1}
    assert idle_cpu_sentences("w1", busy) == [] and held_back_ranks(quota_use({"w1": busy})) == {}


@pytest.mark.parametrize(("waited", "held"), [(0.64, {}), (0.77, {1: 27 / 136})], ids=["equal", "smaller"])
def test_of_equal_quotas_none_holds_a_rank_back_more(waited: float, held: dict[int, float]) -> None:
    """Measured on busy hosts: the other rank waits for CPUs, and so uses up less of a quota that is the same."""
    use = {0: QuotaUse(136, 27, 0.4, 0.15, 0.43), 1: QuotaUse(135, 66, 1.2, 0.35, waited)}
    assert held_back_ranks(use) == held


@pytest.mark.parametrize("peer", [7.0, 4.5])
def test_a_rank_that_waited_a_little_longer_than_its_peers_is_held_by_no_quota(peer: float) -> None:
    """They are compared as they are, and not by whether each is over the limit."""
    seconds = {0: (0, 0, 0.0, 1.9, 8.1), **dict.fromkeys((1, 2, 3), (0, 0, 0.0, 10 - peer, peer))}
    assert held_back_ranks(quota_use({"w1": HostPressure(seconds, idle=dict.fromkeys(seconds, 0.5))})) == {}


def test_cpus_count_as_idle_only_while_a_rank_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is busy as the ranks begin, when this one waits, and has nothing to do for the rest of the run."""
    readings = iter([(0, 0, 0), (0, 0, 0), (0, 0, 400), (0, 20, 800), (0, 400, 1200)])
    monkeypatch.setattr(pressure_module, "cpu_ticks", lambda: next(readings, (0, 800, 1600)))
    pressure = Pressure()
    for number, waited in enumerate((1, 4, 5, 5)):
        pressure.watch((), 1e9 * number)
        pressure.observe(2, 0, f"900000000 {waited}000000000 9")
    assert pressure.report({})["idle"] == {"2": 0.275}


BUSY = {
    "w1": [[0.0177, 0.6824, [455.0434, 455.1438, 455.2502, 455.3463, 455.4468, 455.5539, 455.6434]],
           [0.0196, 0.6708, [466.1467, 466.2434, 466.3434, 466.4434, 466.5499, 466.6434, 466.7441]],
           [0.0196, 0.682, [476.6434, 476.744, 476.768, 476.9434, 477.0438, 477.1481, 477.2647]]],
    "w2": [[0.0752, 0.6557, [466.2001, 466.2296, 466.316, 466.3821, 466.4601, 466.5418, 466.6468, 466.6921, 466.727]],
           [0.0752, 0.6785, [469.9975, 470.0442, 470.0972, 470.1383, 470.1851, 470.2636, 470.3122, 470.3808]]],
    "w3": [[0.0728, 0.6673, [466.1261, 466.2059, 466.26, 466.2963, 466.3395, 466.4045, 466.4298, 466.4837]],
           [0.0771, 0.6783, [470.1231, 470.1452, 470.2034, 470.256, 470.2903, 470.3842, 470.4103, 470.4601]]],
}  # fmt: skip
"""Loops of three ranks on two CPUs, with some 100 programs beside them. A quota of 3 % held the first."""


def busy_hosts(seen: Mapping[str, Any] = BUSY, ran: float = 1.0) -> dict[str, HostPressure]:
    ranks = [(0, 0, 0.0, ran, 20.0)] * 3
    return {
        host: msgspec.convert({"ranks": {rank: ranks[rank]}, "spins": {rank: seen[host]}}, HostPressure, strict=False)
        for rank, host in enumerate(seen)
    }


def test_a_quota_that_no_host_shows_is_seen_on_busy_hosts_by_when_it_stops_a_rank() -> None:
    hosts = busy_hosts()
    use = quota_use(hosts)
    assert (use[0].is_inferred, use[1].is_inferred, use[0].lost > 0.95) == (True, False, True)
    assert held_back_ranks(use).keys() == {0}
    assert "rank 0 was stopped for 97%" in next(iter(starved_ranks(hosts).values())).lower()
    (finding,) = quota_findings(ran(3, 1, cpu_quotas=use), ())
    assert (finding.hosts, "a CPU quota that the host does not show" in str(finding)) == (("w1",), True)


DELAYED = {
    "w1": [[0.0679, 0.6744, [0.0361, 0.0783, 0.0282, 0.0666, 0.0567, 0.0921, 0.0161, 0.0401, 0.0648, 0.0361, 0.0601]]],
    "w2": [[0.0193, 0.6972, [0.0683, 0.0594, 0.0601, 0.0592, 0.0592, 0.0617]],
           [0.0207, 0.672, [0.0002, 0.028, 0.0186, 0.0689, 0.0001, 0.0576, 0.0321]],
           [0.0198, 0.6973, [0.0962, 0.0661, 0.0082, 0.0961, 0.0591, 0.0642, 0.0595]],
           [0.0231, 0.7729, [0.0592, 0.0802, 0.0847, 0.0638, 0.0592, 0.064]],
           [0.0194, 0.6847, [0.0593, 0.0602, 0.0681, 0.0616, 0.062, 0.0623, 0.0625]]],
    "w3": [[0.0697, 0.6825, [0.0738, 0.0437, 0.0797, 0.0312, 0.0819, 0.0249, 0.0561, 0.0442]]],
}  # fmt: skip
"""The same of another run, modulo 100 ms: other programs delayed a third of what went on."""


def test_a_quota_is_seen_where_other_programs_delay_some_of_what_it_lets_go_on() -> None:
    assert inferred_losses(busy_hosts(DELAYED)).keys() == {1}


def test_loops_that_went_on_in_step_each_for_itself_prove_no_quota() -> None:
    """As those of programs that take turns: of five loops three are at one moment, and of two none are."""
    moments = (0.01, 0.01, 0.01, 0.05, 0.08)
    turns = [[0.02, 0.7, [moment + 0.001 * turn for turn in range(7)]] for moment in moments]
    assert not inferred_losses(busy_hosts({**DELAYED, "w2": turns}))
    turns[3] = turns[0]
    assert inferred_losses(busy_hosts({**DELAYED, "w2": turns})).keys() == {1}
    assert not inferred_losses(busy_hosts({**DELAYED, "w2": turns[2:3] + turns[4:]}))


@pytest.mark.parametrize("seed", range(20))
def test_moments_of_no_order_prove_no_quota(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        loops = [[0.02, 0.7, [rng.random() for _ in range(rng.randrange(1, 10))]] for _ in range(rng.randrange(2, 6))]
        assert not inferred_losses(busy_hosts({**DELAYED, "w2": loops}))


def test_ranks_that_others_stop_as_often_are_held_by_no_quota() -> None:
    """Its moments may be those of a period by chance, or a quota may take what others would have taken."""
    as_much = [[seconds / 9, seconds, moments] for _, seconds, moments in BUSY["w1"]]
    assert not inferred_losses(busy_hosts({**BUSY, "w1": as_much}))
    assert not inferred_losses(busy_hosts(dict.fromkeys(BUSY, BUSY["w1"])))


@pytest.mark.parametrize("take", [slice(0, 1), slice(0, 0)])
def test_one_loop_proves_no_quota(take: slice) -> None:
    assert not inferred_losses(busy_hosts({**BUSY, "w1": BUSY["w1"][take]}))


def test_loops_of_others_at_no_moment_of_a_period_are_taken_for_no_quota() -> None:
    """Also where a rank has a far smaller share than its peers, such as by a lower weight."""
    rng = Random(31)
    for _ in range(300):
        chance = [[0.02, 0.65, sorted(9 * turn + rng.random() for _ in range(6))] for turn in range(3)]
        assert not inferred_losses(busy_hosts({**BUSY, "w1": chance}))


def test_what_a_host_says_of_loops_is_bounded_and_may_be_nonsense() -> None:
    pressure = Pressure()
    for event in [{}, {"ran": "x", "seconds": 1, "ends": []}, {"ran": 1, "seconds": 1, "ends": "no"}]:
        pressure.note_spin(2, event)
    assert pressure.report({})["spins"] == {"2": []}
    for _ in range(99):
        pressure.note_spin(2, {"ran": 0, "seconds": 1.0, "ends": list(range(999))})
    assert [len(ends) for _, _, ends in pressure.report({})["spins"]["2"]] == [32] * 8
    silly = [[-1e308, 1e308, [1e308, -5.0] * 9], [0.0, 0.0, []], [5.0, 1.0, [0.0] * 32]]
    assert set(inferred_losses(busy_hosts({**BUSY, "w1": silly}))) <= {0}, "of its own ranks alone"


def test_a_spent_budget_is_laid_at_the_rank_that_may_not_run() -> None:
    b = agent("b", lambda ranks: [*life(ranks), *alive(ranks)])
    b.answers["pressure"] = [{"pressure": STARVED}]
    failure = play(b, wish=msgspec.structs.replace(WISH, budget=3.0))[0].run.failures[0]
    assert (failure.kind, failure.culprit_ranks, failure.waiting_ranks) == ("budget", (2,), (0, 1, 3))
    assert "98% of its periods" in failure.text


def test_what_a_whole_run_says_of_pressure_is_kept() -> None:
    def well(ranks: Sequence[int]) -> list[Line]:
        return [*life(ranks), *done(ranks), *alive(ranks)]

    b = agent("b", well)
    b.answers["pressure"] = [{"pressure": {"ranks": {}, "steal": 0.3}}]
    run = play(b, agent("a", well))[0].run
    assert run.ended == "complete"
    assert run.pressure == {"b": ("b: the hypervisor took 30% of its CPU time (steal).",)}


def test_a_host_tells_of_the_quotas_of_its_own_ranks_only() -> None:
    run = ran(4, 2)
    used = (40, 38, 3.0, 1.0, 0.0)
    host_pressures = {
        "w1": HostPressure({0: used, 1: (0, 0, 0.0, 1.0, 0.0), 3: used, 99: used}),
        "w9": HostPressure({2: used}),
    }
    assert quota_use(of_own_ranks(host_pressures, run.plan)) == {0: QuotaUse(40, 38, 3.0, 0.75), 1: QuotaUse()}
    assert starved_ranks(of_own_ranks(host_pressures, run.plan)).keys() == {0}
    assert QuotaUse(40, 10**9, 3.0).share == 1.0


def test_all_agents_of_a_host_are_heard() -> None:
    """A launcher starts one for each task: each tells of its own ranks."""
    reports = {"a0": {0: (40, 38, 3.0, 1.0, 0.0)}, "a1": {1: (40, 0, 0.0, 1.0, 0.0)}, "b0": {2: (0, 0, 0.0, 1.0, 0.0)}}
    answers = {name: SimpleNamespace(pressure=HostPressure(ranks)) for name, ranks in reports.items()}
    answers["a1"].pressure.spins[1] = (CpuSpin(0.1, 0.6, (7.0,)),)
    endpoints = {name: SimpleNamespace(host=name[0]) for name in reports}
    channels: Any = SimpleNamespace(endpoints=endpoints, query=lambda *request: answers)
    pressure = read_pressure(channels)
    assert {host: set(each.ranks) for host, each in pressure.items()} == {"a": {0, 1}, "b": {2}}
    assert set(pressure["a"].spins) == {1}
    assert starved_ranks(pressure).keys() == {0}


@pytest.fixture
def quota() -> Iterator[Path]:
    """A control group whose members may run for 2 of 100 ms."""
    folder = CGROUP / f"doctor-pressure-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "cpu.cfs_quota_us").write_text("2000")
    except OSError as error:
        pytest.skip(f"no cgroup v1 with a CPU controller: {error}")
    yield folder
    folder.rmdir()


def test_a_real_quota_is_seen(quota: Path) -> None:
    program = "import sys; sys.stdin.readline()\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True) as spin:
        assert spin.stdin
        try:
            pressure = Pressure()
            (quota / "cgroup.procs").write_text(str(spin.pid))
            pressure.observe(4, spin.pid)
            spin.stdin.write("go\n")
            spin.stdin.flush()
            end, periods, throttled = time.monotonic() + 20, 0, 0
            while throttled <= 5 and time.monotonic() < end:
                time.sleep(0.1)
                periods, throttled, *_ = pressure.report({4: spin.pid})["ranks"]["4"]
        finally:
            spin.kill()
    assert periods >= throttled > 5


def test_what_a_rank_that_has_ended_ran_and_waited_is_told() -> None:
    """Ranks end before the controller asks; their last figures come from whoever reaps them."""
    pressure = Pressure()
    pressure.observe(3, 0, "2500000000 1500000000 9\n")
    assert pressure.report({})["ranks"] == {"3": [0, 0, 0.0, 2.5, 1.5]}
    pressure.observe(3, 0, "no number\n")
    assert pressure.report({})["ranks"] == {"3": [0, 0, 0.0, 2.5, 1.5]}


def test_a_real_quota_of_a_rank_that_has_ended_is_told(quota: Path) -> None:
    program = "import sys, time; sys.stdin.readline()\nend = time.process_time() + 0.05\n"
    program += "while time.process_time() < end: pass"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, text=True) as rank:
        assert rank.stdin
        pressure = Pressure()
        (quota / "cgroup.procs").write_text(str(rank.pid))
        pressure.observe(4, rank.pid)
        rank.stdin.write("go\n")
        rank.stdin.flush()
    pressure.observe(4, 0, "60000000 0 9\n")
    periods, throttled, seconds, ran, _ = pressure.report({})["ranks"]["4"]
    assert throttled > 5 and periods >= throttled and seconds > 0.1 and ran == 0.06
