"""Logs and dumps of real jobs: torch 2.11.0+cu130, NCCL 2.28.9, one H100, two ranks over sockets.

Of each job ``logs/h100/`` has what each rank wrote to stderr, without the frames of C++, and the last entries of the
dump of its flight recorder, as JSON and without stacks. Rank 1 did what the name says at the collective 121.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import ONE_OF_TWO, Diagnosis
from doctor.diagnose.events import FileReading, FileSummary, RecordedCollective, RecordedGroup, Recording
from doctor.diagnose.read.file_names import dump_ranks
from doctor.diagnose.run import diagnose_found
from doctor.job.variable_versions import not_read
from tests.diagnose.test_rules import SIGNATURES, logs, named

LOGS = Path(__file__).with_name("logs") / "h100"
JOBS = ("sleep", "gpuspin", "mismatch", "size", "raise", "assert")


def stderr(job: str, rank: int) -> str:
    return (LOGS / f"{job}.rank{rank}.log").read_text()


def apart(job: str, folder: Path, *, prefix: str = "fr-", with_logs: bool = True) -> Diagnosis:
    """As torchrun --log-dir leaves the logs, with the dumps beside them."""
    for rank in (0, 1):
        path = folder / "none_x1" / "attempt_0" / str(rank) / "stderr.log"
        if with_logs:
            path.parent.mkdir(parents=True)
            path.write_text(stderr(job, rank))
        dump = LOGS / f"fr-{job}-{rank}"
        if dump.exists():
            shutil.copy(dump, folder / f"{prefix}{rank}")
    return diagnose_found([str(folder)], SIGNATURES)


def concatenated(job: str) -> Diagnosis:
    return logs(all=stderr(job, 0) + stderr(job, 1))


@pytest.mark.parametrize("prefix", ["fr-", "nccl_trace_rank_", "run2"])
@pytest.mark.parametrize("with_logs", [True, False])
def test_dumps_show_the_rank_that_never_came_whatever_their_prefix(
    tmp_path: Path, prefix: str, with_logs: bool
) -> None:
    diagnosis = apart("sleep", tmp_path, prefix=prefix, with_logs=with_logs)
    assert named(diagnosis) == [("flight-recorder", "behind in sequence", [1])]
    assert diagnosis.processes == 2
    assert "collective 121" in diagnosis.causes[0].summary


def test_the_lines_of_both_ranks_show_it_as_well(tmp_path: Path) -> None:
    expected = [("nccl-watchdog-timeout", "behind in sequence", [1])]
    assert named(concatenated("sleep")) == expected
    logs_alone = logs(first=stderr("sleep", 0), second=stderr("sleep", 1))
    assert named(logs_alone) == expected and "at 120 where others are at 121" in logs_alone.causes[0].summary


@pytest.mark.parametrize("entered", [121, 124])
def test_a_rank_that_has_entered_what_the_others_wait_in_is_not_behind(entered: int) -> None:
    text = stderr("sleep", 1).replace("enqueued NCCL work: 120", f"enqueued NCCL work: {entered}")
    assert not logs(all=stderr("sleep", 0) + text).causes


def test_numbers_of_another_process_group_show_nobody_behind() -> None:
    text = stderr("sleep", 0).replace("PG GUID 0(default_pg)", "PG GUID 5(tensor_parallel)")
    assert not logs(all=text + stderr("sleep", 1)).causes


def test_of_ranks_that_are_all_in_one_collective_none_is_named_and_no_dump_is_asked_for(tmp_path: Path) -> None:
    for diagnosis in (apart("gpuspin", tmp_path), concatenated("gpuspin")):
        assert not diagnosis.causes and diagnosis.undecidable
        reason, needed = diagnosis.undecidable.reason, " ".join(diagnosis.undecidable.needed)
        assert "all ranks that the logs show are in" in reason and "121" in reason and ": 15 s" in reason
        assert "watch --attach" in needed and "BUFFER_SIZE" not in needed and "logs of known ranks" not in needed


def test_one_of_three_ranks_that_shows_nothing_is_not_in_the_collective_of_the_others() -> None:
    diagnosis = logs(all=stderr("gpuspin", 0) + stderr("gpuspin", 1) + "[rank2]: RuntimeError: NCCL Error 6\n")
    reason = diagnosis.undecidable.reason if diagnosis.undecidable else ""
    assert "all ranks" not in reason


def test_the_collectives_that_differ_are_the_cause_and_what_follows_is_not(tmp_path: Path) -> None:
    (cause,) = apart("mismatch", tmp_path).causes
    assert (cause.rule, sorted(culprit.rank or 0 for culprit in cause.culprits)) == (ONE_OF_TWO, [0, 1])
    assert all(word in cause.summary for word in ("121", "rank 0 ran all_reduce", "rank 1 ran all_gather"))


def test_without_dumps_a_message_of_another_size_names_no_rank() -> None:
    diagnosis = concatenated("mismatch")
    (cause,) = diagnosis.causes
    assert cause.signature == "nccl-truncated" and not cause.culprits
    assert {culprit.rank for item in diagnosis.waiting for culprit in item.culprits} == {0, 1}


def test_the_first_collective_of_which_the_sizes_differ_is_told(tmp_path: Path) -> None:
    (cause,) = apart("size", tmp_path).causes
    assert cause.rule == ONE_OF_TWO
    assert all(word in cause.summary for word in ("collective 121", "1048576 x Float", "102400 x Float"))
    diagnosis = concatenated("size")
    assert not diagnosis.causes and diagnosis.undecidable and "1024" in diagnosis.undecidable.reason


@pytest.mark.parametrize(("job", "signature"), [("raise", "python-exception"), ("assert", "cuda-assert")])
def test_a_lost_connection_is_no_timeout_and_belongs_to_the_rank_of_its_message(job: str, signature: str) -> None:
    diagnosis = concatenated(job)
    assert [(cause.signature, [culprit.rank for culprit in cause.culprits]) for cause in diagnosis.causes] == [
        (signature, [1])
    ]
    waiting = [(item.signature, [culprit.rank for culprit in item.culprits]) for item in diagnosis.waiting]
    assert waiting == [("nccl-conn-closed-by-peer", [0])]


def test_a_line_behind_the_message_of_another_rank_is_not_that_ranks() -> None:
    lines = stderr("raise", 0).splitlines()
    head = next(index for index, line in enumerate(lines) if "NCCL error" in line)
    mixed = [*lines[: head + 1], "step 30 loss 0.1", *lines[head + 1 :]]
    events = [item.first for item in logs(all="\n".join(mixed)).waiting if item.first.line != head + 1]
    assert {event.rank for event in events if event.signature == "nccl-conn-closed-by-peer"} <= {None}


def test_dumps_of_which_no_name_shows_the_rank_belong_to_nobody() -> None:
    assert dump_ranks(["a/fr", "a/fr-x"], [[0, 1]] * 2) == [None, None]
    assert dump_ranks(["a/fr-1", "b/fr-1.json"], [[0, 1]] * 2) == [1, 1]
    assert dump_ranks(["fr-7", "fr-8"], [[0, 1]] * 2) == [None, None]
    assert dump_ranks([f"run1{rank}" for rank in range(16)], [range(16)] * 16) == list(range(16))
    assert dump_ranks(["fr-007", "fr-1"], [[], []]) == [None, None]


def test_a_dump_counts_for_the_rank_of_its_name_beside_the_logs_of_others() -> None:
    group = RecordedGroup("0", [0, 1], 1, {1: RecordedCollective(1, "all_reduce", "8", False)})
    readings = [FileReading(FileSummary(name="/tmp/x/fr-1", notes=[]), [], Recording([group]))]
    assert diagnose(readings, SIGNATURES).world_size == 2


@pytest.mark.parametrize("name", ["TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_FR_CPP_STACK"])
def test_the_names_of_the_recorder_are_read_since_torch_2_8(name: str) -> None:
    old = {
        "TORCH_FR_BUFFER_SIZE": "TORCH_NCCL_TRACE_BUFFER_SIZE",
        "TORCH_FR_DUMP_TEMP_FILE": "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
        "TORCH_FR_CPP_STACK": "TORCH_NCCL_TRACE_CPP_STACK",
    }[name]
    (row,) = not_read({name: "1"}, "", "2.7.1+cu126")
    assert (row.since, row.replacement) == ("2.8", old)
    assert not [*not_read({name: "1"}, "", "2.8.0"), *not_read({old: "1"}, "", "2.11.0")]
    assert not list(not_read({name: "1", old: "1"}, "", "2.7.1"))


H200 = {
    "algo": ("nccl-variables-wrong", (0, 1)),
    "bad_root": ("nccl-arguments-wrong", (0, 1)),
    "amp_nan": ("sampling-not-finite", (0, 1)),
    "cublas_full": ("cuda-library-init", (0, 1)),
    "cupy_compile": ("kernel-source-refused", (None,)),
    "cupy_config": ("gpu-arguments-wrong", (0, 1)),
    "cupy_trap": ("cuda-illegal-access", (1,)),
    "duplicate_gpu": ("nccl-duplicate-gpu", (0, 1)),
    "embedding_index": ("cuda-assert", (1,)),
    "fork_cuda": ("cuda-after-fork", (0, 1)),
    "fp8": ("exception-of-mismatch", (0, 1)),
    "fsdp_load": ("exception-in-weights", (0, 1)),
    "fullgraph": ("compile-failed", (0, 1)),
    "graph_capture": ("graph-capture-failed", (1,)),
    "half_cpu": ("exception-of-support", (1,)),
    "healthy": ("", ()),
    "hf_missing": ("hub-refused", (None,)),
    "hidden_gpu": ("cuda-invalid-ordinal", (1,)),
    "ifname": ("nccl-no-iface", (0,)),  # torchrun ended rank 1 before its line
    "jax_nan": ("exception-of-value", (None,)),  # beside a job that held the memory which XLA asked for first
    "jax_oom": ("cuda-oom", (1,)),
    "killed": ("torchrun-sigkill", (1,)),
    "label_range": ("cuda-assert", (1,)),
    "load_no_gpu": ("exception-in-weights", (1,)),
    "misaligned": ("cuda-illegal-access", (1,)),
    "no_kernel": ("exception-of-support", (0, 1)),
    "oom": ("cuda-oom", (1,)),
    "oom_other": ("cuda-library-init", (0,)),
    "order": ("", ()),  # one of two called all_gather, the other all_reduce
    "ordinal": ("cuda-invalid-ordinal", (1,)),
    "peft_missing": ("lora-modules-missing", (0, 1)),
    "pin_thread": ("dataloader-worker-killed", (1,)),
    "segv": ("torch-signal-segv", (1,)),
    "sleeps": ("nccl-watchdog-timeout", (1,)),
    "triton_illegal": ("cuda-illegal-access", (1,)),
}
"""Programs of two ranks on one H200 by torchrun, torch 2.11 and NCCL 2.28: what each did is its name.

In ``logs/h200/``, without the frames of C++ and with at most three lines of a kind.
"""


@pytest.mark.parametrize("job", H200)
def test_what_ended_a_program(job: str) -> None:
    diagnosis = diagnose_found([str(LOGS.with_name("h200") / f"{job}.log")], SIGNATURES)
    signature, ranks = H200[job]
    found = [(cause.signature, tuple(culprit.rank for culprit in cause.culprits)) for cause in diagnosis.causes[:1]]
    assert found == ([(signature, ranks)] if signature else [])
    assert (diagnosis.undecidable is not None) == (job == "order")
    assert diagnosis.undecidable is None or "different calls" in diagnosis.undecidable.reason
