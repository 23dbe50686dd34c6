"""Real trainings over gloo, with faults of the user's side, under `doctor watch -- COMMAND`."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.smoke.slurm import free_ports
from tests.watch.data_campaign import source_of
from tests.watch.data_faults import with_patch
from tests.watch.job_faults import FAULTS
from tests.watch.running import LIMIT, doctor_watch, training

pytestmark = [pytest.mark.torch, pytest.mark.timeout(2 * LIMIT)]
HANG = ("--patience", "3", "--on-hang", "end")


@pytest.mark.full
def test_a_healthy_training_has_no_finding_and_computes_the_same_to_the_last_bit(tmp_path: Path) -> None:
    alone = subprocess.run(training(2, 6), capture_output=True, text=True, timeout=LIMIT)
    watched = doctor_watch(*training(2, 6), folder=tmp_path)
    assert watched.code == 0, watched.stderr
    assert not watched.found_ranks and watched.report["smoke"]["ended"] == "complete"
    assert sorted(watched.stdout.splitlines()) == sorted(alone.stdout.splitlines()) != []
    assert "2 of 2 ranks, step 6" in watched.stderr


@pytest.mark.every
def test_a_rank_that_sleeps_is_named_with_its_place_in_the_program(tmp_path: Path) -> None:
    watched = doctor_watch(*training(3, 8, "sleep", 1, 3), options=HANG, folder=tmp_path)
    assert watched.code == 10, watched.stderr
    assert watched.found_ranks == {"smoke-rank-blocked": [1]}
    assert watched.failure["kind"] == "blocked" and watched.failure["culprit_ranks"] == [1]
    assert watched.failure["waiting_ranks"] == [0, 2]
    assert "program.py" in watched.stack(1) and "in before" in watched.stack(1)
    assert "doctor-watch" not in watched.stack(0) and "in train" in watched.stack(0)
    last = [line for line in watched.stderr.splitlines() if "doctor watch:" in line][-1]
    assert "step 3" in last and "; smoke-rank-blocked: rank 1 on " in last


@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("lock", {"blocked"}),
        ("input", {"input"}),
        ("raise", {"dead"}),
        ("kill", {"dead"}),
        ("segv", {"dead"}),
        ("stop", {"stopped"}),
        ("exit", {"left"}),
        ("shape", {"mismatch"}),
        ("another", {"mismatch"}),
        ("order", {"order", "mismatch"}),
        ("group", {"order"}),
        ("absent", {"never-joined"}),
    ],
)
def test_each_fault_is_named_with_its_rank(fault: str, kinds: set[str], rank: int, tmp_path: Path) -> None:
    watched = doctor_watch(*training(3, 8, fault, rank, 4), options=HANG, folder=tmp_path)
    assert watched.code == 10, watched.stderr
    assert watched.failure["kind"] in kinds
    assert watched.failure["culprit_ranks"] == [rank]


@pytest.mark.full
def test_the_error_of_a_rank_is_told_and_not_those_that_follow_from_it(tmp_path: Path) -> None:
    watched = doctor_watch(*training(3, 8, "raise", 1, 4), options=HANG, folder=tmp_path)
    assert "ValueError: bad batch 17" in watched.failure["text"]
    assert "faults.before" in watched.stack(1)


@pytest.mark.full
@pytest.mark.parametrize("fault", ["save-all", "save-one"])
def test_a_checkpoint_is_no_hang_however_long_it_takes(fault: str, tmp_path: Path) -> None:
    """All ranks take it, or one does while the others wait: it writes."""
    watched = doctor_watch(*training(3, 8, fault, 1, 4), options=("--patience", "2"), folder=tmp_path)
    assert watched.code == 0, watched.stderr
    assert "no fault was found" in watched.stderr


@pytest.mark.parametrize(
    "work",
    [
        "scores",
        pytest.param("uploads", marks=pytest.mark.full),
        pytest.param("downloads", marks=pytest.mark.full),
        pytest.param("polls", marks=pytest.mark.full),
    ],
)
def test_a_rank_that_works_is_no_hang_before_the_limit_of_its_group(work: str, tmp_path: Path) -> None:
    watched = doctor_watch(
        *training(3, 8, work, 0, 4), options=("--patience", "2", "--on-hang", "end"), folder=tmp_path
    )
    assert watched.code == 0, watched.stderr
    assert "no fault was found" in watched.stderr
    assert "long wait for rank 0 on" in watched.stderr and "the group's own limit of 1800 s" in watched.stderr


def test_a_rank_that_computes_for_ever_is_named_when_the_limit_of_its_group_is_over(tmp_path: Path) -> None:
    """It is told before, which is no verdict."""
    watched = doctor_watch(*training(3, 8, "spin", 1, 4), options=HANG, folder=tmp_path, GROUP_SECONDS="12")
    assert watched.code == 10, watched.stderr
    assert watched.found_ranks == {"smoke-rank-blocked": [1]}
    waiting = "waiting in all_reduce, or for one that waits there: ranks 0, 2"
    assert "long wait for rank 1 on" in watched.stderr and waiting in watched.stderr


BEHIND_STREAM = Path(__file__).with_name("programs") / "behind_stream.py"


@pytest.mark.parametrize(
    ("kind", "culprits", "told"),
    [("sleep", [1], ""), ("work", [], "long wait for rank 1 on"), pytest.param("long", [], "", marks=pytest.mark.full)],
    ids=["sleep", "work", "long"],
)
def test_a_rank_that_others_wait_for_at_their_devices(
    kind: str, culprits: list[int], told: str, tmp_path: Path
) -> None:
    """Calls of NCCL end before their collectives do; ranks that wait for their devices use their CPUs."""
    ranks = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port")
    command = (*ranks, str(free_ports(1)[0]), str(BEHIND_STREAM), kind, "8")
    watched = doctor_watch(*command, options=(*HANG, "--data", "off"), folder=tmp_path)
    assert (watched.code, watched.failure.get("culprit_ranks", [])) == (10 * bool(culprits), culprits), watched.stderr
    assert told in watched.stderr


def test_nobody_is_named_where_a_watchdog_ends_a_rank_that_waited_with_all_others(tmp_path: Path) -> None:
    """A kernel of another rank, or the network: its abort is no failure of its own."""
    ranks = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port")
    command = (*ranks, str(free_ports(1)[0]), str(BEHIND_STREAM), "given up", "0")
    watched = doctor_watch(*command, options=("--data", "off"), folder=tmp_path)
    assert watched.code == 10 and watched.failure["culprit_ranks"] == [], watched.stderr
    assert list(watched.found_ranks) == ["smoke-network-silent"]
    assert "A kernel that does not end on the device of one rank looks the same." in watched.failure["evidence"]


@pytest.mark.full
def test_a_rank_that_computes_more_slowly_is_named(tmp_path: Path) -> None:
    watched = doctor_watch(*training(3, 60, "slow", 2, 0), folder=tmp_path)
    assert watched.code == 0  # a warning
    assert watched.found_ranks == {"smoke-rank-slow": [2]}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_hang_that_its_user_ends_has_a_likely_cause(number: int, tmp_path: Path) -> None:
    """As Slurm at its limit, or Ctrl-C: every process gets the signal at once."""
    argv = [sys.executable, "-m", "doctor", "watch", "-q", "-f", f"json={tmp_path / 'report.json'}", "--"]
    argv += training(3, 8, "sleep", 1, 4)
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as doctor:
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit and not _waits_for(doctor.pid, 8.0):
            time.sleep(0.2)
        os.killpg(doctor.pid, number)
        doctor.communicate(timeout=LIMIT)
    report = json.loads((tmp_path / "report.json").read_text())
    [failure] = report["smoke"]["failures"]
    assert (failure["certainty"], failure["culprit_ranks"], failure["waiting_ranks"]) == ("likely", [1], [0, 2])
    assert any("program.py" in stack["text"] for stack in failure["stacks"] if stack["rank"] == 1)
    assert doctor.returncode == 128 + number
    [finding] = [finding for outcome in report["outcomes"] for finding in outcome["findings"]]
    assert finding["severity"] == "warning"


def test_of_a_job_that_is_ended_later_it_is_told_up_to_where_it_was_judged(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "doctor", "watch", "-q", "-f", f"json={tmp_path / 'report.json'}", "--"]
    argv += training(2, 5000, "say-steps", 1, 0)
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        assert doctor.stdout and "is in step 5" in doctor.stdout.readline().decode()
        os.killpg(doctor.pid, signal.SIGINT)
        errors = doctor.communicate(timeout=LIMIT)[1].decode()
    sentence = "The job ended early: what its ranks called and waited for was judged up to training step "
    assert f"no fault was found. {sentence}" in errors
    assert any(sentence in note for note in json.loads((tmp_path / "report.json").read_text())["smoke"]["notes"])


STORE = """
import torch.distributed as dist
dist.init_process_group("gloo")
for _ in range(20):
    dist.barrier()
print("waits", flush=True)
dist.distributed_c10d._get_default_store().get("never")
"""


def test_of_a_job_that_is_ended_while_its_ranks_wait_in_the_store_it_is_not_said_that_nothing_was_wrong(
    tmp_path: Path,
) -> None:
    (tmp_path / "program.py").write_text(STORE)
    [port] = free_ports(1)
    argv = [sys.executable, "-m", "doctor", "watch", "-q", "--data", "off", "--", sys.executable, "-m"]
    argv += ["torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}", str(tmp_path / "program.py")]
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        assert doctor.stdout and "waits" in doctor.stdout.readline().decode()
        time.sleep(12.0)
        os.killpg(doctor.pid, signal.SIGINT)
        errors = doctor.communicate(timeout=LIMIT)[1].decode()
    assert "no fault was found" not in errors
    assert f"When the job was ended, ranks 0-1 waited for the job's store at 127.0.0.1:{port}, as for a key" in errors


def test_of_a_job_that_is_ended_in_its_first_step_nothing_is_known(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "doctor",
        "watch",
        "-q",
        "--data",
        "off",
        "-f",
        f"json={tmp_path / 'report.json'}",
        "--",
    ]
    argv += training(2, 8, "sleep", 1, 0)
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as doctor:
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit and not _waits_for(doctor.pid, 1.0):
            time.sleep(0.2)
        os.killpg(doctor.pid, signal.SIGINT)
        errors = doctor.communicate(timeout=LIMIT)[1]
    assert b"nothing was judged: when the job was ended, ranks 0-1 had made no step" in errors
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["verdict"], report["smoke"]["ended"]) == ("unknown", "interrupted")
    assert doctor.returncode == 128 + signal.SIGINT


def _waits_for(pid: int, seconds: float) -> bool:
    """Whether a process below this one has slept in one call for so long."""
    longest = 0.0
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            asleep = "hrtimer_nanosleep" in Path(f"/proc/{process.pid}/wchan").read_text()
            if asleep and "program.py" in " ".join(process.cmdline()):
                longest = max(longest, time.monotonic() - SLEEPS.setdefault(process.pid, time.monotonic()))
    return longest > seconds


SLEEPS: dict[int, float] = {}


@pytest.mark.full
def test_a_job_that_its_user_ends_has_no_finding() -> None:
    """Ctrl-C in a terminal: doctor, the launcher and all ranks get the signal."""
    argv = [sys.executable, "-m", "doctor", "watch", "--", *training(2, 100000, "say-steps", 0, 0)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, start_new_session=True, **streams) as doctor:  # type: ignore[call-overload]
        assert doctor.stdout.readline() == "rank 0 is in step 5\n"
        os.killpg(doctor.pid, signal.SIGINT)
        out, errors = doctor.communicate(timeout=LIMIT)
    assert "FAIL" not in out and "no fault was found" in errors
    assert doctor.returncode not in (0, 10)


@pytest.mark.full
@pytest.mark.parametrize("options", [(), ("--data", "off")])
def test_a_mask_that_differs_between_ranks_of_one_model_is_found_without_an_option(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    fault = FAULTS["torch seed inside tp"]
    source = with_patch(source_of("tensor_parallel"), fault.marker, fault.patch, bad=1, pair=0, at=3)
    program = tmp_path / "program.py"
    program.write_text(source)
    argv = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(*free_ports(1)),
        str(program),
    )
    watched = doctor_watch(*argv, options=options, folder=tmp_path, TP="2", OMP_NUM_THREADS="1")
    assert watched.code == (0 if options else 10), watched.stderr
    assert ("smoke-mask-differs" in watched.found_ranks) is not bool(options)


GROUPS_IN_TURN = """import sys, torch, torch.distributed as dist
rank = int(sys.argv[1])
for number in range(3):
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}/store-{number}", rank=rank, world_size=2)
    torch.manual_seed(rank * (sys.argv[3] == "apart"))
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(4, 8) + rank).square().mean().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.div_(2))
        optimizer.step()
    dist.destroy_process_group()
"""


@pytest.mark.full
@pytest.mark.parametrize("seeds", ["apart", "alike"])
def test_a_fault_of_groups_that_are_formed_one_after_another_has_one_report(seeds: str, tmp_path: Path) -> None:
    """A sweep over settings forms its group anew for each: what the digests of all of them show is said once."""
    program = tmp_path / "program.py"
    program.write_text(GROUPS_IN_TURN)
    python, of_each = shlex.quote(sys.executable), f"program.py {{}} {tmp_path} {seeds}"
    script = " & ".join(f"{python} {tmp_path}/{of_each.format(rank)}" for rank in (1, 0)) + "; wait"
    argv = [sys.executable, "-m", "doctor", "watch", "--", "sh", "-c", script]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=environ)
    assert done.returncode == (10 if seeds == "apart" else 0), done.stderr
    assert done.stdout.count("FAIL    smoke-parameters-not-broadcast") == (seeds == "apart"), done.stdout
    assert done.stderr.count("2 of 2 ranks, step 6") == 3
