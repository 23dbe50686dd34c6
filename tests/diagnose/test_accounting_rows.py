"""Saved output of sacct and scontrol, beside logs and alone. The files of it are real, of Slurm 22.05 with cgroups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.read.accounting import is_accounting, read_rows
from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.scan import scan
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.separate_jobs import diagnose_jobs
from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import MATCHER, SIGNATURES

LOGS = Path(__file__).with_name("logs")
TABLE, DOCUMENT = (LOGS / "sacct_table.txt").read_text(), (LOGS / "sacct_oom.json").read_text()
HEAD, DASHES, *ROWS = TABLE.splitlines()
KILLED = "[rank1]: RuntimeError: Timed out waiting 6000ms for recv operation to complete\n"
LATER = {
    "jobs": [
        {
            "derived_exit_code": {"status": ["SUCCESS"], "return_code": {"set": True, "number": 0}},
            "job_id": 26,
            "nodes": "n[1-2]",
            "state": {"current": ["NODE_FAIL"], "reason": "None"},
            "steps": [{"state": ["CANCELLED"], "step": {"id": "26.batch"}, "nodes": {"range": "n1"}}],
        }
    ]
}
"""As Slurm 23.11 writes it: lists of states, numbers as objects."""


def table(job: str) -> str:
    """The rows of one job, below their head."""
    return "\n".join([HEAD, DASHES, *(row for row in ROWS if row.split()[0].partition(".")[0] == job), ""])


def judged(folder: Path, **texts: str) -> Diagnosis:
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    return diagnose_jobs(read_all(find_sources([str(folder)]), SIGNATURES), SIGNATURES)


def named(diagnosis: Diagnosis) -> list[tuple[str, list[str]]]:
    return [(cause.signature, [culprit.host for culprit in cause.culprits]) for cause in diagnosis.causes]


@pytest.mark.parametrize(
    ("job", "signature"),
    [
        ("1", "slurm-job-out-of-memory"),
        ("2", "slurm-job-out-of-memory"),
        ("3", "slurm-job-timeout"),
        ("4", "slurm-job-cancelled"),
        ("6", "slurm-step-crashed"),
        ("9", "slurm-job-cancelled"),
        ("10", "slurm-job-cancelled"),
        ("12", "slurm-job-node-failed"),
    ],
)
def test_the_state_in_a_table_is_the_cause_also_where_its_column_cuts_it(
    tmp_path: Path, job: str, signature: str
) -> None:
    diagnosis = judged(tmp_path, sacct=table(job))
    assert named(diagnosis) == [(signature, [])] and exit_code(diagnosis) == 10
    assert f" {diagnosis.causes[0].evidence[0].text} " in f" {' '.join(table(job).split())} "


def test_a_job_that_failed_or_ended_well_by_its_state_alone(tmp_path: Path) -> None:
    diagnosis = judged(tmp_path, sacct=table("5"))
    assert diagnosis.undecidable and diagnosis.undecidable.needed == ("the output of the job",)
    assert judged(tmp_path, sacct=table("7")).ended_well


@pytest.mark.parametrize("state", ["BOOT_FAIL", "DEADLINE", "REQUEUED", "PREEMPTED"])
@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("State|JobID|NodeList|ExitCode", "{}|77|n3|0:0"),
        ("JobID,NodeList,State,ExitCode", "77,n3,{},0:0"),
        ("JobID|State|ExitCode", "77|{}|0:0"),
        ("step 1", "77 train p 3 {} 0:0 "),
    ],
)
def test_states_in_any_columns(tmp_path: Path, state: str, head: str, row: str) -> None:
    (cause,) = judged(tmp_path, sacct=f"{head}\n{row.format(state)}\n").causes
    assert cause.rule == "named by the scheduler"
    assert [item.host for item in cause.culprits] == (["n3"] if state == "BOOT_FAIL" and "n3" in row else [])


def test_of_all_rows_of_sacct_the_newest_job_comes_first_and_each_other_is_one_line(tmp_path: Path) -> None:
    diagnosis = judged(tmp_path, sacct=TABLE)
    assert named(diagnosis) == [("slurm-job-node-failed", [])]
    assert [attempt.is_job for attempt in diagnosis.attempts].count(False) == 1, "job 9 was put back once"
    assert named(diagnosis.attempts[-1].diagnosis) == [("slurm-job-out-of-memory", [])]


def test_beside_logs_only_the_rows_of_their_job_count(tmp_path: Path) -> None:
    log = KILLED + "srun: Terminating StepId={}.0\n"
    assert named(judged(tmp_path, train=log.format(3), sacct=TABLE)) == [("slurm-job-timeout", [])]
    diagnosis = judged(tmp_path, train=log.format(99), sacct=TABLE)
    assert not diagnosis.causes and diagnosis.undecidable
    assert any("rows are of other jobs" in note for file in diagnosis.files for note in file.notes)


def test_each_of_two_jobs_gets_its_own_rows(tmp_path: Path) -> None:
    texts = {f"slurm-{job}": f"2026-11-21 {hour}:00:00 step\n{KILLED}" for job, hour in (("12", 23), ("3", 10))}
    diagnosis = judged(tmp_path, **texts, sacct=TABLE)
    assert named(diagnosis) == [("slurm-job-node-failed", [])]
    (earlier,) = diagnosis.earlier
    assert named(earlier) == [("slurm-job-timeout", [])]


def test_json_of_two_versions(tmp_path: Path) -> None:
    (cause,) = judged(tmp_path, sacct=DOCUMENT).causes
    assert cause.signature == "slurm-job-out-of-memory" and cause.evidence[0].text == '"state": "OUT_OF_MEMORY",'
    assert DOCUMENT.splitlines()[cause.evidence[0].line - 1].strip() == cause.evidence[0].text
    (cause,) = judged(tmp_path, sacct=json.dumps(LATER)).causes
    assert cause.signature == "slurm-job-node-failed"


def test_a_step_of_one_task_names_the_host_that_had_its_memory(tmp_path: Path) -> None:
    rows = "JobID|State|ExitCode|NTasks|MaxRSSNode\n8|FAILED|1:0||\n8.0|OUT_OF_MEMORY|0:125|1|n2\n"
    assert named(judged(tmp_path, sacct=rows)) == [("slurm-job-out-of-memory", ["n2"])]
    assert named(judged(tmp_path, sacct=rows.replace("|1|n2", "|2|n2"))) == [("slurm-job-out-of-memory", [])]


def test_rows_in_the_output_of_the_job_itself_are_read(tmp_path: Path) -> None:
    """An epilog of the site prints them; `seff` prints the state."""
    rows = "".join(f"{row}\n" for row in ROWS[:2])
    assert named(judged(tmp_path, train="step 1\n" + rows)) == [("slurm-job-out-of-memory", [])]
    efficiency = "Job ID: 77\nState: OUT_OF_MEMORY (exit code 0)\nNodes: 1\n"
    assert named(judged(tmp_path, train="step 1\n" + efficiency)) == [("slurm-job-out-of-memory", [])]


@given(
    st.text(alphabet='{}[]",: \n|JobIDStae0123456789._+-OUT_MERYfind', max_size=300), st.sampled_from([TABLE, DOCUMENT])
)
def test_no_text_of_any_form_raises(text: str, start: str) -> None:
    for mixed in (text, start[: len(text)] + text, HEAD + "\n" + text, start.replace("n", text[:3])):
        is_accounting(mixed.encode())
        read_rows(mixed.encode(), MATCHER)


def test_the_rows_of_the_job_that_was_asked_for_are_those_of_the_newest_of_several_jobs_in_the_logs() -> None:
    readings = [
        scan(
            f"n0:/home/ann/rank_0.{hour}.log",
            [f"2026-11-21 {hour}:00:00 step\n{KILLED}".encode()],
            MATCHER,
            file=0,
            year=2026,
        )
        for hour in (10, 23)
    ]
    rows = scan("sacct --jobs 7", [b"JobID|State|ExitCode|NodeList\n7|TIMEOUT|0:0|n0|\n"], MATCHER, file=0, year=2026)
    rows.summary.accounting = True
    diagnosis = diagnose_jobs([*readings, rows], SIGNATURES)
    assert named(diagnosis) == [("slurm-job-timeout", [])] and len(diagnosis.earlier) == 1
    assert not named(diagnosis.earlier[0])
