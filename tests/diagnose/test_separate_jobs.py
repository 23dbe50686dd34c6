"""Logs of several jobs in one place: each job is diagnosed for itself, the newest first; one job is never divided."""

from __future__ import annotations

import cProfile
import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.events import Event, FileReading, FileSummary
from doctor.diagnose.run import diagnose_found
from doctor.diagnose.separate_jobs import diagnose_jobs, separate_jobs
from doctor.diagnose.signature import Signature
from tests.diagnose.test_cases import CASES, read
from tests.diagnose.test_command import run
from tests.diagnose.test_rules import SIGNATURES

FULL = "[rank{rank}]: OSError: [Errno 28] No space left on device\n"


def log(folder: Path, name: str, day: int, text: str = "", hour: int = 12) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"2026-11-{day} {hour}:00:00 step 1\n{text}2026-11-{day} {hour}:00:09 end\n")


def jobs_of(folder: Path) -> list[set[str]]:
    from doctor.diagnose.read.readings import read_all
    from doctor.diagnose.read.sources import find_sources

    jobs = separate_jobs(read_all(find_sources([str(folder)]), SIGNATURES))
    return [{str(Path(item.summary.name).relative_to(folder)) for item in job} for job in jobs]


def test_two_runs_of_the_same_ranks_are_two_jobs_the_newest_first(tmp_path: Path) -> None:
    for name, day in (("old", 20), ("new", 21)):
        for rank in range(2):
            log(tmp_path, f"{name}/rank_{rank}.log", day)
    assert jobs_of(tmp_path) == [{"new/rank_0.log", "new/rank_1.log"}, {"old/rank_0.log", "old/rank_1.log"}]


def test_one_job_on_hosts_whose_clocks_differ_by_hours_is_one_job(tmp_path: Path) -> None:
    log(tmp_path, "node1/rank_0.log", 20)
    log(tmp_path, "node2/rank_1.log", 20, hour=20)
    assert len(jobs_of(tmp_path)) == 1


def test_two_jobs_at_one_time_are_told_apart_by_their_numbers(tmp_path: Path) -> None:
    for job in (77, 78):
        log(tmp_path, f"slurm-{job}.out", 20)
        log(tmp_path, f"job_{job}/rank_0.log", 20)
    assert sorted(map(sorted, jobs_of(tmp_path))) == [
        ["job_77/rank_0.log", "slurm-77.out"],
        ["job_78/rank_0.log", "slurm-78.out"],
    ]


def test_processes_of_two_runs_with_the_same_pid_in_a_container_are_two_jobs(tmp_path: Path) -> None:
    line = "[ERROR] HCCL(114,python):2026-11-{}-12:00:00.000.000 [a.cc:1][114]x\n"
    for day in (20, 21):
        path = tmp_path / "node1" / "debug" / "plog" / f"plog-114_202611{day}120000000.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line.format(day))
    assert len(jobs_of(tmp_path)) == 2


def test_the_kernel_log_belongs_to_each_job_with_the_events_of_its_time(tmp_path: Path) -> None:
    log(tmp_path, "old/rank_0.log", 20)
    log(tmp_path, "new/rank_0.log", 21, FULL.format(rank=0))
    (tmp_path / "messages").write_text("Nov 20 12:00:08 n1 kernel: Out of memory: Killed process 77 (python)\n")
    diagnosis = diagnose_found([str(tmp_path)], SIGNATURES)
    assert [cause.signature for cause in diagnosis.causes] == ["disk-full"]
    assert [cause.signature for job in diagnosis.earlier for cause in job.causes] == ["host-oom-kill"]


def test_the_report_has_a_paragraph_for_each_job_and_the_code_of_the_newest(tmp_path: Path) -> None:
    log(tmp_path, "old/rank_1.log", 20, FULL.format(rank=1))
    log(tmp_path, "new/rank_1.log", 21, "training finished\n")
    result = run(str(tmp_path), "-f", "plain")
    assert result.exit_code == 0 and result.stdout.startswith("No failure: the run ended well")
    head, _, rest = result.stdout.partition("An earlier job, 2026-11-20 12:00:00 to 2026-11-20 12:00:09:\n")
    assert rest.startswith("rank 1: No space left on device") and "No space" not in head
    assert "an earlier job" in run(str(tmp_path), "-f", "md").stdout


@pytest.mark.parametrize("case", [case for case in CASES if len(case["files"]) > 1], ids=lambda case: case["name"])
def test_the_logs_of_one_known_job_are_never_divided(case: dict[str, list[str]]) -> None:
    names = list(case["files"])
    random.Random(1).shuffle(names)
    assert len(separate_jobs(read(names))) == 1


NAMES = {"ranks": "rank{0}.log", "hosts": "node{0}/dmesg.log", "plain": "a{0}x.txt", "jobs": "slurm-{0}.out"}
NAMES |= {"processes": "plog-{0}_2026.log", "hours": "try{0}/stderr.log", "numbered": "job_{1}/rank{0}.log"}


def calls_for(count: int, name: str, hours: bool) -> int:
    """Calls and steps of generators that the diagnosis of so many logs takes, one in three with an error."""
    readings = []
    for number in range(count):
        start = 1.7e9 + (4000 * number if hours else number % 60)
        summary = FileSummary(name.format(number, number % 7), lines=3, first_time=start, last_time=start + 5)
        line = Event("python-exception", number, 2, "RuntimeError: x", {}, time=start + 1)
        readings.append(FileReading(summary, [line] if number % 3 == 0 else []))
    profile = cProfile.Profile()
    profile.runcall(diagnose_jobs, readings, SIGNATURES)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("kind", NAMES)
def test_twice_the_logs_take_twice_the_steps(kind: str) -> None:
    hours = kind in ("jobs", "hours")
    assert calls_for(400, NAMES[kind], hours) < 2.4 * calls_for(200, NAMES[kind], hours)


def test_logs_that_the_time_limit_left_unread_are_unknown(tmp_path: Path) -> None:
    log(tmp_path, "rank_0.log", 20, FULL.format(rank=0))
    ended = run(str(tmp_path), "--budget", "0.000001")
    assert (ended.exit_code, "the time limit of --budget had passed" in ended.stdout) == (12, True)
    for number in range(300):
        (tmp_path / f"rank_{number}.log").touch()
    ended = run(str(tmp_path), "--budget", "0.000001")
    assert (ended.exit_code, "the time limit of --budget had passed" in ended.stdout) == (12, True)


def test_judging_that_takes_too_long_leaves_all_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path, "rank_0.log", 20, FULL.format(rank=0))

    def endless(readings: Sequence[FileReading], signatures: Mapping[str, Signature]) -> Diagnosis:
        while readings:
            pass
        return diagnose_jobs(readings, signatures)

    monkeypatch.setattr("doctor.diagnose.run.LEAST_SECONDS", 0.05)
    monkeypatch.setattr("doctor.diagnose.run.diagnose_jobs", endless)
    handler = signal.getsignal(signal.SIGALRM)
    ended = run(str(tmp_path), "--budget", "0.15")
    assert (ended.exit_code, "read, but not judged" in ended.stdout) == (12, True), ended.stdout
    assert signal.getsignal(signal.SIGALRM) is handler
