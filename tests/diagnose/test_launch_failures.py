"""A launcher that could not start ranks: its reason and the host are named, and what ended afterwards is innocent."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.signature import FOLDER
from tests.diagnose import log_files
from tests.diagnose.test_rules import CLOSED, SIGNATURES, logs

LAUNCHES: list[dict[str, Any]] = log_files.read("launch.yaml")
SEVERAL = [launch for launch in LAUNCHES if launch["causes"] and launch["name"].startswith("srun-")]
STEP = "step 40/100 loss 2.31"


def causes_and_hosts(diagnosis: Diagnosis) -> tuple[set[str], set[str]]:
    hosts = {culprit.host for cause in diagnosis.causes for culprit in cause.culprits} - {""}
    return {cause.signature for cause in diagnosis.causes}, hosts


def texts(launch: dict[str, Any]) -> dict[str, str]:
    return {name.rpartition(".")[0]: text for name, text in launch["files"].items()}


@pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch["name"])
def test_the_reason_and_the_host_are_named(launch: dict[str, Any]) -> None:
    diagnosis = logs(**texts(launch))
    assert diagnosis.failed
    assert causes_and_hosts(diagnosis) == (set(launch["causes"]), set(launch["hosts"]))
    assert not [culprit for cause in diagnosis.causes for culprit in cause.culprits if culprit.rank is not None]


@pytest.mark.parametrize("launch", SEVERAL, ids=lambda launch: launch["name"])
def test_ranks_of_other_hosts_that_waited_for_it_are_innocent(launch: dict[str, Any]) -> None:
    waiting = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined."
    diagnosis = logs(**texts(launch), rank_0=waiting)
    assert causes_and_hosts(diagnosis) == (set(launch["causes"]), set(launch["hosts"]))


@pytest.mark.parametrize("launch", SEVERAL, ids=lambda launch: launch["name"])
def test_a_start_that_worked_in_the_end_is_no_cause(launch: dict[str, Any]) -> None:
    ((name, text),) = texts(launch).items()
    diagnosis = logs(
        **{name: f"{text}{STEP}\nslurmstepd: error: *** JOB 1 ON cn01 CANCELLED AT 2026-11-20T12:00:00 ***\n"}
    )
    assert not causes_and_hosts(diagnosis)[0] & {item.id for item in SIGNATURES.values() if item.is_of_launch}


def test_a_step_that_a_person_cancelled_is_still_called_cancelled() -> None:
    text = "slurmstepd: error: *** STEP 812.0 ON cn01 CANCELLED AT 2026-11-20T10:11:12 ***"
    assert causes_and_hosts(logs(slurm_812=text)) == ({"slurm-cancelled"}, set())


def test_a_rank_with_a_fault_of_its_own_was_started() -> None:
    events = (
        "Warning  FailedScheduling  14s  default-scheduler  0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    )
    diagnosis = logs(
        events=events, rank_3="[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    assert [cause.signature for cause in diagnosis.causes] == ["cuda-oom"]


@pytest.mark.parametrize(
    "text",
    [
        "git@github.com: Permission denied (publickey).\n" + STEP,
        "srun: Job 4711 step creation temporarily disabled, retrying (Requested nodes are busy)\n" + STEP,
        "[2026-04-20 17:24:52,119 W 1 1] rpc_client.h:153: Failed to connect to GCS at address 10.0.0.1:6379 within 5 "
        "seconds.\nRay runtime started.\n" + STEP,
        "bash: nvidia-smi: command not found\n" + STEP,
    ],
)
def test_what_a_healthy_start_prints_is_no_cause(text: str) -> None:
    assert not logs(train=text).causes


NOISE = (
    "RuntimeError: a sample of the generated text",
    "OSError: [Errno 101] Network is unreachable",
    "ConnectionRefusedError: [Errno 111] Connection refused",
    "n1:9:9 [0] misc/x.cc:10 NCCL WARN NET/IB : Unable to query port_num 1",
    "[W socket.cpp:4] [c10d] The client socket has failed to connect to [n1]:29500 (errno: 111 - Connection refused).",
)


ENDED = ("CANCELLED", "Killed", "Exited with", "failed to start", "aborted", "Raylet", "exited on signal")


@pytest.mark.parametrize("launch", [launch for launch in LAUNCHES if launch["causes"]], ids=lambda item: item["name"])
def test_a_job_that_goes_on_after_failed_starts_and_errors_has_no_likely_cause(launch: dict[str, Any]) -> None:
    lines = [line for text in launch["files"].values() for line in text.splitlines() if "Traceback" not in line]
    if any(word in text for text in lines for word in ENDED):
        pytest.skip("it says that the job ended")
    text = "\n".join(
        [*NOISE, *lines, *(f"step {number}/90 loss 1.5" for number in range(40)), *NOISE, "step 41/90 loss 1.4"]
    )
    assert not [cause for cause in logs(train=text).causes if cause.confidence != "possible"]


def test_each_row_of_the_table_names_no_rank_and_is_of_the_start() -> None:
    rows = FOLDER.joinpath("launch_failures.toml").read_text("utf-8")
    names = [item for item in SIGNATURES.values() if f'id = "{item.id}"' in rows and item.role == "root"]
    assert names and all(item.is_of_launch and "culprit_rank" not in "".join(item.patterns) for item in names)


def test_a_failure_behind_the_label_of_srun_is_of_that_task_and_without_a_label_of_none() -> None:
    line = "slurmstepd: error: pyxis: container start failed with error code: 1\n"
    (cause,) = logs(job=f"22: {line}").causes
    assert (cause.signature, [culprit.rank for culprit in cause.culprits]) == ("slurm-plugin-failed", [22])
    (cause,) = logs(job=line).causes
    assert not cause.culprits


@pytest.mark.parametrize("label", ["", "0: ", "3: "])
def test_the_label_of_srun_before_torchruns_list_is_that_of_its_agent(label: str) -> None:
    rows = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-20_12:00:46",
        "  host      : n1",
        "  rank      : 1 (local_rank: 1)",
        "  exitcode  : -11 (pid: 4711)",
        "  error_file: <N/A>",
        "  traceback : Signal 11 (SIGSEGV) received by PID 4711",
    )
    diagnosis = logs(job="".join(f"{label}{row}\n" for row in rows))
    assert [(c.signature, [who.rank for who in c.culprits]) for c in diagnosis.causes] == [("torch-signal-segv", [1])]


@pytest.mark.parametrize(
    ("other", "found"), [(CLOSED, ("child-process-failed", [0])), ("ValueError: bad batch", ("python-exception", [1]))]
)
def test_a_rank_that_ended_over_a_process_of_its_own_is_named_unless_another_has_a_fault(
    other: str, found: tuple[str, list[int]]
) -> None:
    head = "Traceback (most recent call last):\n  File 'x.py', line 3, in <module>\n"
    block = "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-20_12:00:46\n  host      : n1\n"
    diagnosis = logs(
        rank_0=f"{head}subprocess.CalledProcessError: Command '['make']' returned non-zero exit status 1.\n",
        rank_1=f"{head}{other}\n",
        torchrun=f"{block}  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 4711)\n",
    )
    assert [(c.signature, [who.rank for who in c.culprits]) for c in diagnosis.causes[:1]] == [found]
