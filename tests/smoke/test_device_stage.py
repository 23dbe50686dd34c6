"""The device test on real ranks, on CPUs: a torch that computes or copies wrongly, a CPU quota, and sound ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.smoke.programs.worker.device_work import LARGEST_FACTORS
from tests.smoke.judged_ranks import outcome_of
from tests.smoke.ranks import Ranks

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
HOSTS = ["h0", "h1", "h2"]
TESTS = {*(f"product {name}" for name in LARGEST_FACTORS), "memory", "host to device", "device to host"}
PATCHED_TORCH = """
def stage_patched(ctx):
    multiply, copy, calls = torch.mm, torch.Tensor.copy_, [0]

    def wrong_mm(left, right, out):
        multiply(left, right, out=out)
        calls[0] += 1
        if left.dtype == torch.float32:  # the other ranks add 0: what is wrong is not slower than what is right
            out[5, 7] += int(ctx.rank == 1)
        if left.dtype == torch.bfloat16 and left[0, 0] % 1:  # not those of whole numbers
            out[200, 3] += calls[0] % 7 * int(ctx.rank == 1)
        return out

    def wrong_copy(target, source):
        copy(target, source)
        calls[0] += 1
        if calls[0] % 4 == 0 and target.numel() > 1000000:
            target[1000] ^= 4096 * (ctx.rank == 2)
        return target

    torch.mm, torch.Tensor.copy_ = wrong_mm, wrong_copy
    try:
        stage_devices(ctx)
    finally:
        torch.mm, torch.Tensor.copy_ = multiply, copy

STAGE_FUNCTIONS["devices"] = stage_patched
"""
JOIN = """
def stage_held_back(ctx):
    if ctx.rank == 2:
        with open("FOLDER/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
    stage_devices(ctx)

STAGE_FUNCTIONS["devices"] = stage_held_back
"""


def devices_of(faults: str = "", hosts: list[str] = HOSTS, seconds: float = 20.0) -> Ranks:
    ranks = Ranks(len(hosts), ["devices"], faults, hosts=hosts, device_seconds=seconds, seconds=200.0)
    assert len(ranks.of("done")) == len(hosts), (ranks.events[-5:], ranks.error_output[-500:])
    return ranks


def findings(ranks: Ranks, name: str, hosts: list[str] = HOSTS) -> tuple[Any, ...]:
    outcome = outcome_of(name, ranks, hosts)
    assert not outcome.crashed, outcome.crashed
    return outcome.findings


@pytest.fixture(scope="module")
def sound() -> Ranks:
    return devices_of(hosts=["h0", "h0", "h1"])


def test_sound_ranks_do_all_work_and_nothing_is_said_of_them(sound: Ranks) -> None:
    hosts = ["h0", "h0", "h1"]
    done = {(event["rank"], event["test"]) for event in sound.of("device")}
    untested = {(event["rank"], event["test"]) for event in sound.of("untested")}
    assert {rank for rank, _ in done | untested} == {0, 1, 2}
    assert all({test for of, test in done | untested if of == rank} >= TESTS for rank in range(3))
    assert {rank for rank, test in done if test == "device to device"} == {0, 1}  # alone on its host, there is no other
    assert not sound.of("miscomputed")
    for name in ("smoke-device-miscomputes", "smoke-device-slow", "smoke-device-below-floor"):
        assert not findings(sound, name, hosts)
    prints = {(event["test"], event["fingerprint"]) for event in sound.of("device") if event["fingerprint"]}
    assert len(prints) == len({test for test, _ in prints})


@pytest.mark.proves("smoke-device-miscomputes")
def test_a_torch_that_computes_and_copies_wrongly() -> None:
    ranks = devices_of(PATCHED_TORCH, seconds=80.0)  # the repeats need time also on a busy machine
    results = {
        (finding.hosts[0], finding.values["test"], str(finding))
        for finding in findings(ranks, "smoke-device-miscomputes")
    }
    assert {host for host, _, _ in results} == {"h1", "h2"}
    exact = next(text for _, test, text in results if test == "product float32")
    assert (
        "rank 1, product float32: 3 of 3 products of whole numbers are not the exact product: row 5, column 7" in exact
    )
    assert any("repeats of the same product differ" in text for _, test, text in results if test == "product bfloat16")
    assert {test for host, test, _ in results if host == "h2"} == {"memory", "host to device", "device to host"}
    assert not findings(ranks, "smoke-device-slow")


@pytest.fixture
def quota() -> Iterator[Path]:
    """A control group whose members may run for 2 of 20 ms."""
    if os.getloadavg()[0] > 5 * (os.cpu_count() or 1):
        pytest.skip("the machine is so busy that no process has a tenth of a CPU anyway")
    v1 = ("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": "20000", "cpu.cfs_quota_us": "2000"})
    for root, settings in (v1, ("/sys/fs/cgroup", {"cpu.max": "2000 20000"})):
        folder = Path(root) / f"doctor-device-{os.getpid()}"
        try:
            folder.mkdir()
            for name, value in settings.items():
                (folder / name).write_text(value)
        except OSError:
            if folder.is_dir():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("no control group with a CPU controller")


@pytest.mark.proves("smoke-device-slow")
def test_a_rank_that_a_real_quota_holds_back_is_slow(quota: Path) -> None:
    ranks = devices_of(JOIN.replace("FOLDER", str(quota)))
    (finding,) = findings(ranks, "smoke-device-slow")
    assert finding.hosts == ("h2",)
    assert finding.values["ranks"] == [2]
    assert finding.values["ratio"] > 3  # a tenth of a CPU
    assert not findings(ranks, "smoke-device-miscomputes")


@pytest.mark.proves("smoke-device-below-floor")
def test_a_memory_below_what_its_vendor_expects() -> None:
    """A CPU in the place of a GPU that is a hundred times as quick."""
    faults = 'def device_model(ctx):\n    return "NVIDIA H100 80GB HBM3"\n'
    results = findings(devices_of(faults, hosts=["h0"]), "smoke-device-below-floor", ["h0"])
    assert [finding.hosts for finding in results] == [("h0",)]
    assert "expected at least 1.91 TB/s" in str(results[0])
