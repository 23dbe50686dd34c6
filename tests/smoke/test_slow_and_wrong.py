"""Ranks of real processes that compute, load or exchange slowly, or hold wrong numbers: what is said of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from doctor.engine.result import Finding
from doctor.smoke.model import RankPlacement
from tests.smoke.judged_ranks import outcome_of
from tests.smoke.ranks import Ranks

pytestmark = pytest.mark.torch
GUILTY = 2
CPUS = sorted(os.sched_getaffinity(0))

SLOW_WORK = """
def slowed(work):
    def longer(*args):
        began = time.thread_time()
        work(*args)
        end = time.thread_time() + 1.5 * (time.thread_time() - began)
        while args[0].rank == 2 and time.thread_time() < end:
            pass
    return longer

{work} = slowed({work})
"""
SLOW_EXCHANGE = """
class TracedComm(TracedComm):
    def exchange(self, out, tensor, peer):
        began = time.monotonic()
        super().exchange(out, tensor, peer)
        if WHEN and tensor.numel() > 1:
            # Far slower than the machine is at the moment, too.
            time.sleep(0.15 + min(0.35, 3 * (time.monotonic() - began)))
"""
MODE_CHANGED = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, op)
        if self.rank == 2 and not hasattr(torch, "struck"):
            torch.struck = {change}
            getattr(torch.struck, "__enter__", bool)()
"""
WRONG_SUM = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, op)
        if self.rank == 2 and tensor.numel() > 100:
            tensor[100] += 1
"""
LATE_SUM = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, op)
        late = STAGES[self.recorder.stage] == "learning" and self.recorder.step == 8
        if self.rank == 2 and late and tensor.numel() > 100:
            tensor[100] *= 1.5
"""
SPOILT_GROUPS = """
class TracedComm(TracedComm):
    def all_reduce(self, tensor, group, op=None):
        super().all_reduce(tensor, group, op)
        hosts = {rank // 2 for rank in group.ranks}
        if tensor.numel() > 100 and WHEN:
            tensor[7] += 2
"""
RARE_FLIP = """
SECOND_ROUND_SECONDS = 2.0

class CollectiveTest(CollectiveTest):
    calls = 0

    def compare(self, op, label, root, result, expected, tolerance):
        CollectiveTest.calls += 1
        if self.ctx.rank == 2 and CollectiveTest.calls % EVERY == EVERY // 2 and expected is not None:
            result[7] += 4
        super().compare(op, label, root, result, expected, tolerance)
"""
SWAPPED = """
SWAP = {1: 2, 2: 1}

class CollectiveTest(CollectiveTest):
    def local_input(self, dtype, count):
        other = SWAP.get(self.ctx.rank, self.ctx.rank)
        rank = other if other in self.periods else self.ctx.rank
        return self.elements(rank, dtype, count).to(self.ctx.device)
"""
WRONG_DEVICE = """
def select_device(plan, rank):
    number = 1 if rank == 2 else rank
    return torch.device("cpu"), {"index": number, "name": "stand-in", "id": "GPU-%d" % number}, lambda: None
"""
SHARED_DEVICE = """
def select_device(plan, rank):
    return torch.device("cpu"), {"index": rank, "name": "stand-in", "id": "GPU-%d" % (rank % 3)}, lambda: None
"""

BOUND = """
run_unbound = run_rank

def run_rank(orders, rank, events, recorder):
    os.sched_setaffinity(0, CPUS)
    run_unbound(orders, rank, events, recorder)
"""


def findings_with(
    name: str,
    faults: str,
    stages: Sequence[str],
    world: int = 4,
    devices: bool = False,
    apart: bool = False,
    places: Sequence[str] = (),
    **plan: Any,
) -> tuple[Finding, ...]:
    """What the check finds in a run with these faults, on one host, on as many hosts as ranks, or on those given."""
    hosts = list(places) or [f"h{rank}" if apart else "here" for rank in range(world)]
    ranks = Ranks(world, stages, faults, hosts=hosts, **plan)
    assert len(ranks.of("done")) == world, ranks.events[-5:]
    settled = ranks.plan
    if devices:  # the check speaks of devices alone, and there are none here
        with_devices = tuple(RankPlacement(place.rank, place.host, place.rank, place.rank) for place in settled.places)
        settled = msgspec.structs.replace(settled, backend="nccl", places=with_devices)
    outcome = outcome_of(name, ranks, hosts, settled)
    assert outcome.complete and not outcome.unknown, outcome
    return outcome.findings


@pytest.mark.sample
@pytest.mark.proves("smoke-input-slow", "smoke-rank-slow")
@pytest.mark.parametrize("work", ["compute", "input"])
def test_a_slow_rank_is_told_by_what_it_is_slow_in(work: str) -> None:
    faults = SLOW_WORK.format(work=f"{work}_work")
    names = {"compute": "smoke_rank_slow", "input": "smoke_input_slow"}
    (finding,) = findings_with(names.pop(work), faults, ["pace"])
    assert finding.values["ranks"] == [GUILTY]
    assert finding.values["ratio"] > 1.5
    assert not findings_with(names.popitem()[1], faults, ["pace"])


@pytest.mark.sample
@pytest.mark.proves("smoke-ranks-share-cpu")
@pytest.mark.skipif(len(CPUS) < 2, reason="this machine has no second CPU")
@pytest.mark.parametrize(
    ("cpus", "sharing"),
    [
        (f"{{{CPUS[-1]}}}", [0, 1]),
        (f"{{{CPUS}[rank]}}", []),
        (f"{CPUS}", []),
    ],
    ids=["one CPU", "a CPU each", "all CPUs"],
)
def test_ranks_that_are_bound_to_one_cpu(cpus: str, sharing: list[int]) -> None:
    """The pace stage moves unbound ranks from CPU to CPU, which is no binding."""
    findings = findings_with("smoke_ranks_share_cpu", BOUND.replace("CPUS", cpus), ["start", "pace"], world=2)
    assert [finding.values["ranks"] for finding in findings] == [sharing] * bool(sharing)


@pytest.mark.proves("smoke-host-slow")
def test_a_rank_whose_exchanges_are_all_slow() -> None:
    faults = SLOW_EXCHANGE.replace("WHEN", "2 in (self.rank, peer)")
    (finding,) = findings_with("smoke_host_slow", faults, ["pairs"], 6, apart=True, seconds=110.0)
    assert finding.values["rank"] == GUILTY
    assert not findings_with("smoke_link_slow", faults, ["pairs"], 6, apart=True, seconds=110.0)


@pytest.mark.sample
@pytest.mark.proves("smoke-link-slow")
def test_a_pair_of_ranks_whose_exchanges_are_slow() -> None:
    faults = SLOW_EXCHANGE.replace("WHEN", "{self.rank, peer} == {2, 4}")

    def findings() -> tuple[Finding, ...]:
        return findings_with("smoke_link_slow", faults, ["pairs"], 6, apart=True, seconds=110.0)

    # Six ranks on two busy cores: where all pairs are as slow as this one, a second run decides.
    (finding,) = findings() or findings()
    assert finding.values["ranks"] == [GUILTY, 4]
    assert not findings_with("smoke_host_slow", faults, ["pairs"], 6, apart=True, seconds=110.0)


@pytest.mark.sample
@pytest.mark.proves("smoke-collective-wrong")
def test_a_wrong_sum_on_one_rank() -> None:
    (finding,) = findings_with("smoke_collective_wrong", WRONG_SUM, ["collectives"])
    assert finding.values["ranks"] == [GUILTY]
    assert finding.values["index"] == 100
    assert finding.values["observed"] == finding.values["expected"] + 1
    assert "a single element" in str(finding)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("when", "hosts", "message"),
    [
        ("3 in group.ranks", ("h1",), "the fault lies with rank 3:"),
        ("len(hosts) > 1 and 1 in hosts", ("h1",), "the fault lies with what h1 exchanges with other hosts"),
        ("{0, 2} <= hosts", ("h0", "h2"), "the fault lies with the way between h0 and h2:"),
    ],
)
def test_a_sum_that_is_wrong_on_all_ranks_is_laid_at_its_cause_by_a_second_round(
    when: str, hosts: tuple[str, ...], message: str
) -> None:
    """All ranks have the same wrong sum, so that the first round alone names all six."""
    places = [f"h{rank // 2}" for rank in range(6)]
    (finding,) = findings_with(
        "smoke_collective_wrong", SPOILT_GROUPS.replace("WHEN", when), ["collectives"], 6, places=places
    )
    assert finding.hosts == hosts
    assert str(finding).startswith(message) and "found by a second round" in str(finding)


@pytest.mark.sample
def test_two_ranks_that_changed_places() -> None:
    findings = findings_with("smoke_collective_wrong", SWAPPED, ["collectives"])
    assert {rank for finding in findings for rank in finding.values["ranks"]} == {1, 2}
    assert any("ranks or devices are swapped" in str(finding) for finding in findings)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("every", "soak"),
    [
        (100, 2.0),
        pytest.param(250, 5.0, marks=pytest.mark.full),
        pytest.param(1000, 40.0, marks=[pytest.mark.full, pytest.mark.timeout(300)]),
    ],
)
def test_a_rare_flip_is_found_and_laid_at_its_rank(every: int, soak: float) -> None:
    """Wrong by four on one rank, in one result of many: a single run of the collectives does not show who it is."""
    stages = ["start", "rendezvous", "collectives", "soak"]
    faults = RARE_FLIP.replace("EVERY", str(every))
    (finding,) = findings_with(
        "smoke-collective-wrong", faults, stages, world=3, soak=soak, seconds=200.0, max_bytes=4096
    )
    assert finding.values["ranks"] == [GUILTY]
    assert "s of repeating: rank 2" in str(finding)


@pytest.mark.sample
@pytest.mark.proves("smoke-learning-differs")
def test_a_wrong_sum_in_the_learning_stage_alone() -> None:
    [finding] = findings_with("smoke-learning-differs", LATE_SUM, ["start", "rendezvous", "learning"])
    assert finding.values["ranks"] == [GUILTY]


@pytest.mark.proves("smoke-device-wrong")
@pytest.mark.parametrize(
    ("faults", "message"),
    [(WRONG_DEVICE, "rank 2 has GPU 1; expected GPU 2"), (SHARED_DEVICE, "ranks 0 and 3 are all on GPU GPU-0")],
)
def test_a_rank_on_another_device_or_on_anothers(faults: str, message: str) -> None:
    (finding,) = findings_with("smoke_device_wrong", faults, ["start"], devices=True)
    assert message in str(finding)


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("smoke_rank_slow", ["pace"]),
        ("smoke_input_slow", ["pace"]),
        ("smoke_host_slow", ["pairs"]),
        ("smoke_link_slow", ["pairs"]),
        ("smoke_collective_wrong", ["collectives"]),
    ],
)
def test_of_sound_ranks_nothing_is_said(name: str, stages: Any) -> None:
    assert not findings_with(name, "", stages, apart="pairs" in stages)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (
            "torch.set_default_dtype(torch.float16)",
            "get_default_dtype() has changed from torch.float32 to torch.float16",
        ),
        ("torch.inference_mode()", "is_inference_mode_enabled"),
        ("torch.set_grad_enabled(False)", "is_grad_enabled"),
        ("torch.set_default_device('meta')", "get_default_device"),
        ("torch.autocast('cpu', dtype=torch.bfloat16)", "autocast"),
    ],
)
def test_a_rank_whose_torch_has_another_mode_in_mid_run_says_so_itself(change: str, names: str) -> None:
    """Its peer would be named as well by a call of another dtype, or no rank at all."""
    ranks = Ranks(3, ["collectives", "pairs"], MODE_CHANGED.format(change=change), max_bytes=1 << 12, hosts="abc")
    texts = {event["rank"]: event["text"] for event in ranks.of("error") if not event["secondary"]}
    assert list(texts) == [2]
    assert names in texts[2]
