"""What Slurm says of a job, read: real output of Slurm 22.05, and what cannot be made here from its manual pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.fetch.excerpt_reading import read_record
from doctor.diagnose.fetch.saved_logs import SCHEMA, LogRecord
from doctor.diagnose.job.kinds import read_job, read_live_job
from doctor.diagnose.job.slurm import output_glob, script_outputs
from doctor.engine.errors import InputError, UsageError
from tests.diagnose.test_rules import SIGNATURES

SCONTROL_OUTPUT = """\
JobId=3 JobName=train it
   UserId=ann(2001) GroupId=ann(2001) MCS_label=N/A
   JobState={state} Reason=None Dependency=(null)
   NodeList=n[1-2]
   BatchHost=n1
   WorkDir=/home/ann
   StdErr=/home/ann/err-3
   StdOut=/home/ann/out-3

"""
"""Of scontrol, cut to the lines that are read."""
SACCT = "JobID|State|ExitCode|NodeList|Start|End|WorkDir\n"
DOWN = "NodeName=n2 Arch=x86_64 State=DOWN+NOT_RESPONDING ThreadsPerCore=1 Reason=Not responding [root@now]\n"
UNKNOWN_JOB = "scontrol show job 3 fails: slurm_load_jobs error: Invalid job id specified"
DISABLED = "sacct --jobs 3 fails: Slurm accounting storage is disabled"


def answers(**texts: str) -> Callable[[Sequence[str]], str]:
    """A Slurm that answers ``job``, ``script``, ``node`` and ``sacct``; what starts with a program's name fails."""

    def run(argv: Sequence[str]) -> str:
        kind = argv[2] if argv[0] == "scontrol" else "script" if "--batch-script" in argv else "sacct"
        text = texts.get("script" if kind == "batch_script" else kind, f"{argv[0]} fails: not here")
        if text.startswith(("scontrol ", "sacct ")):
            raise OSError(text)
        return text

    return run


def judged(**texts: str) -> Diagnosis:
    job = read_job("slurm:3", answers(**texts))
    record = LogRecord(SCHEMA, "", "", (), 0.0, {}, job.texts)
    return diagnose(read_record(record, SIGNATURES), SIGNATURES)


def test_the_controller_names_state_hosts_and_output() -> None:
    script = "#!/bin/sh\nsrun -o out/%t-%N.log \\\n  --error=e%j python train.py\nsrun -o $LOG/x true\n"
    job = read_job("slurm:3", answers(job=SCONTROL_OUTPUT.format(state="RUNNING"), sacct=DISABLED, script=script))
    assert (job.state, job.hosts, job.batch_host) == ("RUNNING", ["n1", "n2"], "n1")
    assert job.outputs == ["/home/ann/out-3", "/home/ann/err-3", "/home/ann/out/*-*.log", "/home/ann/e3"]


HETEROGENEOUS = """\
JobId=7 HetJobId=7 HetJobOffset=0 JobName=het.sh
   HetJobIdSet=7-8
   JobState={0} Reason=None Dependency=(null)
   NodeList=n1

JobId=8 HetJobId=7 HetJobOffset=1 JobName=het.sh
   JobState={1} Reason=None Dependency=(null)
   NodeList=n2

"""
ARRAY = """\
JobId=5 ArrayJobId=5 ArrayTaskId=1 JobName=ar.sh
   JobState={0} Reason=None Dependency=(null)
   NodeList=n1

JobId=6 ArrayJobId=5 ArrayTaskId=0 JobName=ar.sh
   JobState={1} Reason=None Dependency=(null)
   NodeList=n2

"""


@pytest.mark.parametrize(("output", "own"), [(HETEROGENEOUS, {"7", "8"}), (ARRAY, {"5", "6"})])
@pytest.mark.parametrize(
    ("states", "ended"),
    [(("RUNNING", "COMPLETED"), False), (("FAILED", "SUSPENDED"), False), (("COMPLETED", "CANCELLED"), True)],
)
def test_a_job_in_parts_runs_while_one_of_them_does(
    output: str, own: set[str], states: tuple[str, str], ended: bool
) -> None:
    slurm = answers(job=output.format(*states), sacct=DISABLED)
    job = read_job("slurm:5", slurm)
    assert (job.ended, set(job.variables["SLURM_JOB_ID"]), job.hosts) == (ended, own, ["n1", "n2"])
    with (
        pytest.raises(InputError, match=r"it has ended \(CANCELLED\); expected a job that runs")
        if ended
        else nullcontext()
    ):
        read_live_job("slurm:5", slurm)


def test_a_job_that_the_controller_forgot_is_known_by_accounting() -> None:
    rows = SACCT + "3|CANCELLED by 2001|0:0|n[1-2]|a|b|/home/ann\n3.0|CANCELLED|0:15|n[1-2]|a|b|\n"
    job = read_job("slurm:3", answers(job=UNKNOWN_JOB, sacct=rows, script="#!/bin/sh\n#SBATCH --output=log-%j\n"))
    assert (job.state, job.hosts) == ("CANCELLED", ["n1", "n2"])
    assert job.outputs == ["/home/ann/slurm-3.out", "/home/ann/log-3"]
    assert any("no longer knows the job" in note for note in job.notes)


def test_a_job_that_nobody_knows_is_one_line() -> None:
    with pytest.raises(InputError, match=r"scontrol no longer knows the job .*; there is no accounting .*expected"):
        read_job("slurm:3", answers(job=UNKNOWN_JOB, sacct=DISABLED))
    with pytest.raises(InputError, match="sacct knows no job 3"):
        read_job("slurm:3", answers(job=UNKNOWN_JOB, sacct=SACCT))


@pytest.mark.parametrize(
    "text", ["slurm:", "slurm:1;rm", "pbs:1", "1234", "slurm:-1", "slurm:1\n", "slurm:" + "9" * 99]
)
def test_a_job_of_another_form_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="expected slurm:ID"):
        read_job(text, answers())


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("%j.out", "3.out"),
        ("%5j-%x", "00003-train it"),
        ("%A_%a.out", "3_*.out"),
        ("%u/%N.%t", "ann/*.*"),
        ("100%%", "100%"),
        ("a[b]*", "a[[]b][*]"),
        ("%J", "3*"),
    ],
)
def test_filename_patterns(pattern: str, path: str) -> None:
    assert output_glob(pattern, "3", SCONTROL_OUTPUT.format(state="FAILED")) == path


def test_output_names_of_a_script_that_only_its_shell_knows_are_left_out() -> None:
    assert script_outputs("srun -o $(date) x\nsrun -o `id` x\nsrun -o 'a b' x\nsrun -o \"unclosed\necho -o no\n") == [
        "a b"
    ]


def test_memory_names_the_host_of_the_step_that_ran_on_one_host_alone() -> None:
    rows = SACCT + "3|OUT_OF_MEMORY|0:125|n[1-2]|a|b|/w\n3.batch|OUT_OF_MEMORY|0:125|n1|a|b|\n3.0|FAILED|1:0|n2|a|b|\n"
    (cause,) = judged(job=SCONTROL_OUTPUT.format(state="OUT_OF_MEMORY"), sacct=rows).causes
    assert (cause.signature, [item.host for item in cause.culprits]) == ("slurm-job-out-of-memory", ["n1"])
    (cause,) = judged(job=SCONTROL_OUTPUT.format(state="OUT_OF_MEMORY"), sacct=DISABLED).causes
    assert cause.culprits == ()


def test_a_lost_node_is_named_where_it_is_down_still() -> None:
    output = SCONTROL_OUTPUT.format(state="NODE_FAIL")
    (cause,) = judged(job=output, sacct=DISABLED, node=DOWN).causes
    assert ([item.host for item in cause.culprits], cause.confidence) == (["n2"], "likely")
    (cause,) = judged(job=output, sacct=DISABLED, node="NodeName=n2 Arch=x State=IDLE\n").causes
    assert cause.culprits == ()


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED", "DEADLINE", "PREEMPTED"])
def test_a_job_that_was_ended_accuses_nobody(state: str) -> None:
    (cause,) = judged(job=SCONTROL_OUTPUT.format(state=state), sacct=DISABLED).causes
    assert cause.culprits == () and cause.rule == "named by the scheduler"


def test_a_job_name_that_reads_like_a_state_is_none() -> None:
    evil = SCONTROL_OUTPUT.format(state="COMPLETED").replace(
        "train it", "x    JobState=NODE_FAIL 3|OUT_OF_MEMORY|0:1|n1|"
    )
    diagnosis = judged(job=evil, sacct=DISABLED, node=DOWN)
    assert not diagnosis.causes and diagnosis.ended_well
