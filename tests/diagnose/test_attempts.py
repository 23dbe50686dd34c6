"""Several attempts of a job, and several jobs, in one file: the last is diagnosed, the earlier ones are told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.read.scan import scan
from doctor.diagnose.render.document import MAX_ATTEMPT_FILES, SignatureCatalog, document
from doctor.diagnose.render.text import attempt_lines
from doctor.diagnose.separate_jobs import diagnose_jobs
from tests.diagnose.test_command import run
from tests.diagnose.test_rules import MATCHER, SIGNATURES, logs
from tests.test_large_fleet import lines_run

LOGS = Path(__file__).with_name("logs")
"""Real output of torchrun over gloo, and of Slurm with ``sbatch --requeue --open-mode=append``."""
TWO_JOBS = (LOGS / "torchrun_two_jobs.log").read_text()
REQUEUED = (LOGS / "slurm_requeued.log").read_text()
FIRST_JOB, SECOND_JOB = TWO_JOBS[: TWO_JOBS.index("step 0", 600)], TWO_JOBS[TWO_JOBS.index("step 0", 600) :]


def diagnosed(**texts: str) -> Diagnosis:
    readings = [
        scan(f"{name}.log", [text.encode()], MATCHER, file=number, year=2026)
        for number, (name, text) in enumerate(texts.items())
    ]
    return diagnose_jobs(readings, SIGNATURES)


def causes(diagnosis: Diagnosis) -> list[tuple[str, list[int | None]]]:
    return [(cause.signature, [culprit.rank for culprit in cause.culprits]) for cause in diagnosis.causes]


def failed(local_rank: int, pid: int, agent: int, second: int = 0) -> str:
    head = f"E1121 18:48:{second:02}.319000 {agent} torch/distributed/elastic/multiprocessing/api.py:1002] "
    return f"{head}failed (exitcode: 1) local_rank: {local_rank} (pid: {pid}) of binary: /opt/venv/bin/python\n"


def listed(rank: int, local_rank: int, pid: int, host: str = "n1") -> str:
    """torchrun's list of failures with one row."""
    return (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_18:48:03\n"
        f"  host      : {host}\n  rank      : {rank} (local_rank: {local_rank})\n  exitcode  : 1 (pid: {pid})\n"
        "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org\n" + "=" * 55 + "\n"
    )


def raised(rank: int, text: str) -> str:
    return f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {text}\n"


FULL, NAN = "OSError: [Errno 28] No space left on device", "ValueError: loss is NaN"


def test_of_two_jobs_in_one_file_the_last_is_diagnosed_and_the_first_is_one_line() -> None:
    diagnosis = diagnosed(train=TWO_JOBS)
    assert causes(diagnosis) == [("path-missing", [0])]
    (first,) = diagnosis.attempts
    assert first.is_job and not first.same and causes(first.diagnosis) == [("disk-full", [1])]
    (line,) = attempt_lines(diagnosis)
    assert line.startswith("another job (train.log:1-63): rank 1: No space left on device")


def test_each_job_of_one_file_is_diagnosed_as_in_a_file_of_its_own() -> None:
    assert FIRST_JOB + SECOND_JOB == TWO_JOBS
    both, first, second = diagnosed(train=TWO_JOBS), diagnosed(train=FIRST_JOB), diagnosed(train=SECOND_JOB)
    assert causes(both) == causes(second) and causes(both.attempts[0].diagnosis) == causes(first)
    assert not first.attempts and not second.attempts


def test_a_job_that_ended_well_behind_one_that_failed_ended_well() -> None:
    start = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid overload\n"
    diagnosis = diagnosed(train=start + FIRST_JOB + start + "step 0\ntraining finished\n")
    assert diagnosis.ended_well and not diagnosis.failed
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [[("disk-full", [1])]]


def test_the_lists_of_several_nodes_in_one_file_are_one_job() -> None:
    """The output of all nodes of one job in the file of a batch script: each agent prints its own list."""
    text = raised(1, FULL) + "".join(listed(rank, 0, 100 + rank, f"n{rank}") for rank in range(4))
    assert not diagnosed(train=text).attempts
    on_one_host = raised(0, FULL) + listed(0, 0, 100) + listed(2, 0, 102)
    assert not diagnosed(train=on_one_host).attempts


def test_a_list_of_many_workers_is_one_job() -> None:
    rows = "".join(listed(rank, rank, 100 + rank).partition("[0]:\n")[2] for rank in range(8))
    assert not diagnosed(train=raised(3, FULL) + rows + listed(8, 8, 108)).attempts


def test_attempts_that_torchrun_started_again_are_compared_with_the_last() -> None:
    text = raised(1, NAN) + failed(1, 11, 7) + raised(0, FULL) + failed(0, 20, 7, 20)
    text += raised(1, NAN) + failed(1, 31, 7, 40) + listed(1, 1, 31)
    diagnosis = diagnosed(train=text)
    assert causes(diagnosis) == [("sampling-not-finite", [1])]
    assert [(a.is_job, a.same, causes(a.diagnosis)) for a in diagnosis.attempts] == [
        (False, False, [("disk-full", [0])]),
        (False, True, [("sampling-not-finite", [1])]),
    ]
    assert attempt_lines(diagnosis)[1] == "an attempt that was started again (train.log:1-3): the same cause"


def test_an_exception_of_another_rank_is_not_the_same_cause() -> None:
    text = raised(0, NAN) + failed(0, 11, 7) + raised(1, NAN) + failed(1, 31, 7, 40) + listed(1, 1, 31)
    assert [attempt.same for attempt in diagnosed(train=text).attempts] == [False]


def test_attempts_in_folders_of_torchrun_are_told_apart() -> None:
    texts = {
        "logs/attempt_0/0/stderr": raised(0, FULL),
        "logs/attempt_1/0/stderr": raised(0, "step 7"),
        "logs/attempt_1/1/stderr": raised(1, NAN),
        "agent": failed(0, 11, 7) + failed(1, 31, 7, 40) + listed(1, 1, 31),
    }
    diagnosis = diagnosed(**texts)
    assert causes(diagnosis) == [("sampling-not-finite", [1])]
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [[("disk-full", [0])]]


def test_a_job_that_slurm_put_back_is_diagnosed_by_its_last_attempt() -> None:
    diagnosis = diagnosed(slurm=REQUEUED)
    assert causes(diagnosis) == [("sampling-not-finite", [0])]
    assert [culprit.rank for item in diagnosis.waiting for culprit in item.culprits] == [1]
    (first,) = diagnosis.attempts
    assert not first.is_job and causes(first.diagnosis) == [("slurm-requeued", [])]


def test_a_job_that_slurm_put_back_and_that_did_not_start_yet_accuses_nobody() -> None:
    diagnosis = diagnosed(slurm=REQUEUED.partition("start 1\n")[0])
    assert causes(diagnosis) == [("slurm-requeued", [])] and not diagnosis.attempts


def test_the_report_says_what_came_before(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(TWO_JOBS)
    (attempt,) = json.loads(run(str(tmp_path), "--json").stdout)["attempts"]
    assert attempt["kind"] == "job" and attempt["diagnosis"]["causes"][0]["ranks"] == [1]
    assert attempt["lines"] == [{"file": str(tmp_path / "train.log"), "first": 1, "last": 63}]
    assert "  earlier   another job" in run(str(tmp_path), "-f", "plain").stdout
    lines = f"{tmp_path / 'train.log'}:1-63"
    for form in ("md", "html"):
        assert (
            f"earlier, another job ({lines}): {attempt['diagnosis']['causes'][0]['summary']}"
            in run(str(tmp_path), "-f", form).stdout
        )


@pytest.mark.parametrize("count", [21, 2000])
def test_many_jobs_in_one_file_are_bounded(count: int) -> None:
    text = "".join(raised(1, FULL) + "step\n" * 20 + listed(1, 1, 100 + number) for number in range(count))
    assert 19 < len(diagnosed(train=text).attempts) <= 20


def test_each_mpirun_of_a_script_is_an_attempt_of_its_own_and_the_last_is_diagnosed() -> None:
    """A script that starts Open MPI 4.1.4 again: a full disk on rank 1, NaN on rank 2, rank 0 killed."""
    diagnosis = diagnosed(train=(LOGS / "mpirun_three_times.log").read_text())
    assert causes(diagnosis) == [("mpi-rank-killed", [0])]
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [
        [("sampling-not-finite", [2])],
        [("disk-full", [1])],
    ]
    assert not any(attempt.is_job for attempt in diagnosis.attempts)


def test_an_mpirun_that_ends_well_after_one_that_failed_is_no_failure() -> None:
    diagnosis = diagnosed(train=(LOGS / "mpirun_again_well.log").read_text())
    assert diagnosis.ended_well and not diagnosis.causes
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [[("sampling-not-finite", [2])]]


STEP = """\
0: step 1
{rank}: [rank{rank}]: Traceback (most recent call last):
{rank}: [rank{rank}]: {error}
srun: error: n{rank}: task {rank}: Exited with exit code 1
srun: Terminating StepId=77.{number}
slurmstepd: error: *** STEP 77.{number} ON n0 CANCELLED AT 2026-11-21T23:4{number}:38 ***
srun: error: n{other}: task {other}: Terminated
"""


def test_each_srun_of_a_script_is_an_attempt_of_its_own() -> None:
    text = STEP.format(rank=1, error=FULL, other=0, number=0) + STEP.format(rank=0, error=NAN, other=1, number=1)
    diagnosis = diagnosed(train=text)
    assert causes(diagnosis) == [("sampling-not-finite", [0])]
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [[("disk-full", [1])]]


def test_tasks_of_one_srun_that_end_one_after_the_other_are_one_attempt() -> None:
    lines = [
        f"{rank}: [rank{rank}]: {NAN}\nsrun: error: n{rank}: task {rank}: Exited with exit code 1\n" for rank in (1, 0)
    ]
    assert not diagnosed(train="".join(lines) + "2: training finished\n").attempts


def test_the_reports_of_open_mpi_5_end_attempts_as_well() -> None:
    """Its launcher is prterun, which names a process by its own host and process id."""
    text = (LOGS / "mpirun_three_times.log").read_text()
    text = text.replace("mpirun ", "prterun ")
    for number, (job, rank) in enumerate((("[3720,1]", 1), ("[3918,1]", 2))):
        assert f"[{job},{rank}]" in text
        text = text.replace(f"[{job},{rank}]", f"[prterun-n1-{number + 70}@1,{rank}]")
    diagnosis = diagnosed(train=text)
    assert causes(diagnosis) == [("mpi-rank-killed", [0])]
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [
        [("sampling-not-finite", [2])],
        [("disk-full", [1])],
    ]


REFUSED = (
    "[E1121 18:48:10.165513428 ProcessGroupGloo.cpp:67] Gloo connectFullMesh failed with [/pytorch/third_party/gloo/"
    "gloo/transport/tcp/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:40343$0\n"
    "RuntimeError: Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:152] timed "
    "out connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:40343$0\n"
)
"""Ranks of a restart by torchrun 2.13 with the static rendezvous (``tests/lint/test_real_restarts.py`` makes them)."""


class TestRestartsThatMeetTheFailedAttempt:
    """The restart fails in any case: what ended the attempt before it is what a person has to know."""

    def test_the_cause_of_the_attempt_before_is_told_first(self) -> None:
        text = raised(1, NAN) + failed(1, 22752, 22742, 2) + REFUSED + failed(0, 22792, 22742, 11) + listed(0, 0, 22792)
        diagnosis = diagnosed(train=text)
        assert causes(diagnosis) == [("torch-restart-shares-store", [])]
        assert diagnosis.causes[0].summary.startswith("rank 1: ") and diagnosis.causes[0].confidence == "likely"
        assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [[("sampling-not-finite", [1])]]

    def test_a_first_attempt_that_could_not_connect_either_speaks_for_the_network(self) -> None:
        text = REFUSED + failed(1, 22752, 22742, 2) + REFUSED + failed(0, 22792, 22742, 11) + listed(0, 0, 22792)
        assert "torch-restart-shares-store" not in str(causes(diagnosed(train=text)))

    def test_without_an_earlier_attempt_nothing_was_restarted(self) -> None:
        text = REFUSED + failed(0, 22792, 22742, 11) + listed(0, 0, 22792)
        assert "torch-restart-shares-store" not in str(causes(diagnosed(train=text)))

    def test_a_rank_of_the_restart_that_fails_by_itself_is_the_cause(self) -> None:
        text = raised(1, NAN) + failed(1, 22752, 22742, 2) + REFUSED + raised(0, FULL) + failed(0, 22792, 22742, 11)
        diagnosis = diagnosed(train=text + listed(0, 0, 22792))
        assert "torch-restart-shares-store" not in str(causes(diagnosis))


def crash(text: str) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n{text}\n'


def test_a_line_that_a_program_prints_once_at_its_start_tells_two_attempts_apart() -> None:
    start = "[INFO|trainer.py:2134] 2026-11-21 18:48:03,365 >> ***** Running training *****\n"
    diagnosis = diagnosed(train=start + crash(FULL) + start + crash(NAN))
    assert causes(diagnosis) == [("sampling-not-finite", [None])]
    assert [causes(attempt.diagnosis) for attempt in diagnosis.attempts] == [[("disk-full", [None])]]
    assert diagnosed(train=start + crash(FULL) + start + "step 0 loss: 3.1\ntraining finished\n").ended_well


def test_a_start_that_is_printed_once_more_without_a_failure_between_ends_no_attempt() -> None:
    start = "NCCL version 2.21.5+cuda12.4\n"
    diagnosis = diagnosed(train=start + start + crash(FULL) + crash(NAN))
    assert causes(diagnosis) == [("disk-full", [None])] and not diagnosis.attempts


def test_of_two_crashes_with_nothing_between_both_are_named_in_their_order() -> None:
    for first, second in ((FULL, NAN), ("ValueError: lost count", "KeyError: 'loss'"), (NAN, FULL)):
        (cause,) = diagnosed(train=crash(first) + crash(second)).causes
        assert second in cause.summary or cause.evidence[0].text == second
        assert first in cause.summary or cause.evidence[0].text == first


def test_an_earlier_attempt_lists_few_of_its_files_and_those_that_its_lines_are_quoted_from() -> None:
    """What is written would otherwise grow with attempts times files."""
    requeued = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-01T00:00:01 DUE TO JOB REQUEUE ***\n"
    memory = "[rank{0}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    texts = [(memory.format(rank) + requeued) * 5 + memory.format(rank) for rank in range(MAX_ATTEMPT_FILES + 21)]
    diagnosis = diagnosed(**{f"a{rank}": text for rank, text in enumerate(texts)})
    content = document(diagnosis, SignatureCatalog(SIGNATURES, {}), 10)
    assert content.attempts and len(content.files) == MAX_ATTEMPT_FILES + 21
    for earlier in content.attempts:
        assert len(earlier.diagnosis.files) == MAX_ATTEMPT_FILES and 0 < len(earlier.lines) <= MAX_ATTEMPT_FILES
        quoted = {line.file for cause in earlier.diagnosis.causes for line in cause.evidence}
        assert quoted and quoted <= {file.name for file in earlier.diagnosis.files}


def test_reports_of_many_hosts_are_judged_in_linear_time() -> None:
    """Each that Slurm lost a host looked through all others."""
    line = "slurmstepd: error: *** JOB 77 ON n{0} CANCELLED AT 2026-01-01T00:00:07 "
    line += "DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"

    def lines(count: int) -> int:
        readings = [scan(f"{n}.log", [line.format(n).encode() * 3], MATCHER, file=n, year=2026) for n in range(count)]
        return lines_run(lambda: diagnose_jobs(readings, SIGNATURES))

    few, some, many = lines(15), lines(30), lines(45)
    assert many - some <= 1.1 * (some - few), "the square would be 2 times"


def test_the_version_of_nccl_in_an_error_of_torch_is_no_start_of_a_program() -> None:
    """Two ranks print into one file, and no label tells them apart: https://github.com/NVIDIA/Megatron-LM/issues/661."""
    error = (
        "torch.distributed.DistBackendError: NCCL error in: /opt/ProcessGroupNCCL.cpp:1727, invalid usage (run with "
        "NCCL_DEBUG=WARN for details), NCCL version 2.19.3\nncclInvalidUsage: This usually reflects invalid usage of "
        "NCCL library.\nLast error:\nDuplicate GPU detected : rank {0} and rank 0 both on CUDA device f000\n"
    )
    (cause,) = logs(train=error.format(3) + error.format(7)).causes
    assert {culprit.rank for culprit in cause.culprits} == {0, 3, 7}


WAITED = (
    "2026-11-26 10:00:01,000 INFO step 1 loss 2.1\n"
    "[rank0]:[E1126 10:15:01.123456789 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600010 "
    "milliseconds before timing out.\n"
)


@pytest.mark.parametrize(
    ("fault", "started", "is_over"),
    [("09:30:12", "09:50:00", True), ("10:04:12", "10:20:00", False), ("09:55:00", "09:50:00", False)],
)
def test_what_a_kernel_said_before_the_host_was_started_for_the_job(fault: str, started: str, is_over: bool) -> None:
    """journalctl without -b shows earlier starts: a reset has ended their faults, but none that came with the job."""
    day, kernel = "2026-11-26T{0}+0000 n1 kernel: {1}\n", "Linux version 6.8.0-45-generic (buildd@lcy02)"
    lines = [(fault, "NVRM: Xid (PCI:0000:3b:00): 79, pid=1122, GPU has fallen off the bus."), (started, kernel)]
    journal = "".join(day.format(*line) for line in [("08:00:00", kernel), *sorted(lines)])
    diagnosis = diagnosed(rank_0=WAITED, kern=journal)
    assert ("cuda-ecc" not in dict(causes(diagnosis))) == is_over, causes(diagnosis)
