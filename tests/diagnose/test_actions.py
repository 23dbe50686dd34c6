"""The one thing to do after a diagnosis, and what a line shows of memory that ran out."""

# ruff: noqa: E501
from __future__ import annotations

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.render.action import action_of
from doctor.diagnose.render.document import SignatureCatalog, document
from doctor.diagnose.render.text import render_text
from tests.diagnose.test_rules import SIGNATURES, TIMED_OUT, logs

CATALOG = SignatureCatalog(SIGNATURES, {})


def kind(diagnosis: Diagnosis) -> str:
    return action_of(diagnosis, SIGNATURES).kind


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("RuntimeError: CUDA error: device-side assert triggered\n", "fix-program"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", "give-memory"),
        ("OSError: [Errno 28] No space left on device\n", "fix-host"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T12:00:00 DUE TO TIME LIMIT ***\n", "fix-settings"),
        ("n1 kernel: [Hardware Error]: error_type: 3, multi-bit ECC\n", "drain-host"),
        ("step 1\nTraining completed\n", "none"),
    ],
)
def test_the_kind_of_action_is_that_of_the_cause(text: str, action: str) -> None:
    assert kind(logs(run=text)) == action


def test_no_host_is_drained_and_no_program_blamed_for_what_is_only_possible() -> None:
    text = "n1 kernel: [Hardware Error]: error_type: 3, multi-bit ECC\nstep 4 loss 2\n"
    diagnosis = logs(run=text)
    assert {cause.confidence for cause in diagnosis.causes} == {"possible"} and kind(diagnosis) == "examine"


def test_a_verdict_without_a_cause_asks_for_what_would_decide() -> None:
    diagnosis = logs(rank_1=TIMED_OUT)
    assert diagnosis.undecidable
    action = action_of(diagnosis, SIGNATURES)
    assert action.kind == "ask" and diagnosis.undecidable.needed[0] in action.text


def test_the_action_stands_in_the_first_lines_and_in_the_document() -> None:
    diagnosis = logs(rank_3="[rank3]: RuntimeError: CUDA error: device-side assert triggered\n")
    content = document(diagnosis, CATALOG, 10)
    assert content.action and (content.action.kind, content.action.ranks) == ("fix-program", (3,))
    assert content.action.text in "".join(render_text(diagnosis, CATALOG, 0).splitlines()[:4])


LOOK_FURTHER = {"victim", "ambiguous", "wrapper", "evidence", "benign"}


def test_each_cause_says_what_to_do_or_that_its_own_log_decides() -> None:
    open_ended = {
        name
        for name, item in SIGNATURES.items()
        if item.role not in LOOK_FURTHER and not item.action and "unspecific" not in item.traits
    }
    generic = {name for name in open_ended if not any(word in SIGNATURES[name].components for word in ("hccl", "npu"))}
    assert len(open_ended) <= 60 and len(generic) <= 45, sorted(open_ended)


NO_COMMAND = {
    "exception-in-backward", "exception-in-collective", "exception-in-forward", "exception-in-wrapping",
    "exception-of-absence", "exception-of-order", "exception-of-size", "exception-of-value",
    "interrupted-by-user", "mpi-rank-interrupted", "program-failed", "python-exception",
    "ray-node-preempted", "ray-worker-terminated",
}  # fmt: skip
"""A line of the program is to be corrected, which no command does, or the job is only started again."""


def test_a_remedy_is_a_command_that_can_be_typed() -> None:
    prose = {
        name
        for name, item in SIGNATURES.items()
        if item.role not in LOOK_FURTHER - {"ambiguous"} and not any("`" in text for text in item.fix)
    }
    assert prose == NO_COMMAND


def test_ranks_that_one_line_names_are_one_cause() -> None:
    text = "srun: error: n1: tasks 1-3: Out Of Memory\nsrun: error: n2: task 9: Segmentation fault\n"
    diagnosis = logs(slurm=text)
    lines = render_text(diagnosis, CATALOG, 0).splitlines()
    assert sum(line.startswith("  who ") for line in lines) == 2
    assert [line for line in lines if "rank 1 (host n1), rank 2 (host n1), rank 3 (host n1)" in line]
    assert len(diagnosis.causes) == 4


def test_what_the_reader_fills_in_is_listed() -> None:
    text = render_text(logs(slurm="srun: error: n1: task 1: Out Of Memory\n"), CATALOG, 0)
    assert "Fill in yourself: <job>\n" in text
    assert "Fill in" not in render_text(logs(run="step 1\nTraining completed\n"), CATALOG, 0)


def test_a_host_is_drained_by_a_command_unless_its_name_is_none() -> None:
    line = "srun: error: Node failure on {0}\nslurmstepd: error: *** JOB 7 ON {0} CANCELLED AT 2026-11-20T12:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
    action = action_of(logs(slurm=line.format("n17")), SIGNATURES)
    assert action.kind == "drain-host" and "`scontrol update nodename=n17 state=drain reason=fault`" in action.text
    assert "scontrol" not in action_of(logs(slurm=line.format("$(id)")), SIGNATURES).text


OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. "


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        (
            OOM
            + "Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.66 GiB is free. Including non-PyTorch memory, this process has 20.81 GiB memory in use. Of the allocated memory 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated.",
            ("GPU 0 as its process counts: it asked", "1.34 GiB too much", "most is tensors of the program"),
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.00 GiB total capacity; 8.77 GiB already allocated; 1.00 GiB free; 13.71 GiB reserved in total by PyTorch)",
            ("1 GiB too much", "most is other use, or other processes"),
        ),
        (
            "RuntimeError: NPU out of memory. Tried to allocate 1.00 GiB (NPU 3; 60.97 GiB total capacity; 10.00 GiB already allocated; 10.00 GiB current active; 512.00 MiB free; 60.00 GiB reserved in total by PyTorch)",
            ("NPU 3 as its process counts: it asked", "512 MiB too much", "most is memory that PyTorch keeps unused"),
        ),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already allocated; 9.28 GiB free; 4.68 MiB cached)",
            ("the free memory is in pieces",),
        ),
    ],
)
def test_how_much_memory_was_missing_and_who_held_it(text: str, phrases: tuple[str, ...]) -> None:
    """Wordings of torch of before and after 2.1, of torch_npu, and one in which memory was free."""
    (cause,) = document(logs(rank_3=text + "\n"), CATALOG, 10).causes
    assert all(word in cause.memory for word in phrases), cause.memory


@pytest.mark.parametrize(
    "text", [OOM + "Tried to allocate 3.00 GiB.", OOM + "Tried to allocate 9999999.00 GiB of which x is free"]
)
def test_a_line_that_does_not_show_it_says_nothing_of_memory(text: str) -> None:
    (cause,) = document(logs(rank_3=text + "\n"), CATALOG, 10).causes
    assert cause.memory == ""


REFUSED = "srun: error: Task launch for StepId=2124.0 failed on node n7: Slurmd could not connect IO\n"


def test_a_job_that_slurm_has_is_started_again_by_its_number() -> None:
    diagnosis = logs(run=REFUSED)
    content = document(diagnosis, CATALOG, 10)
    assert content.action and content.action.text.endswith("; `scontrol requeue 2124` starts it again")
    again = "`scontrol requeuehold 2124 && scontrol update jobid=2124 excnodelist=n7 && scontrol release 2124`"
    assert again in content.causes[0].fix[0] and "<job>" not in content.causes[0].fix[0]


def test_logs_of_two_jobs_or_of_none_name_no_job_to_start_again() -> None:
    other = "srun: error: Task launch for StepId=2125.0 failed on node n7: Slurmd could not connect IO\n"
    for text in (REFUSED + other, REFUSED.replace("StepId=2124.0", "step 2124.0"), REFUSED.replace("2124", "1" * 11)):
        content = document(logs(run=text), CATALOG, 10)
        assert content.action and "requeue" not in content.action.text
        assert all("requeue" not in text for cause in content.causes for text in cause.fix)


def test_corrected_settings_need_the_script_to_be_submitted() -> None:
    text = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-20T12:00:00 DUE TO TIME LIMIT ***\n"
    content = document(logs(run=text), CATALOG, 10)
    assert content.action and "requeue" not in content.action.text
    assert any(text.startswith("`export SBATCH_TIMELIMIT=") for text in content.causes[0].fix)
