"""Logs that lack lines, as their collectors say: that a rank shows no error in them means nothing."""

# ruff: noqa: E501
from __future__ import annotations

import pytest

from doctor.diagnose.render.action import action_of
from tests.diagnose.test_rules import SIGNATURES, logs

WAITED = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 60000ms for recv operation to complete"
ALL = "".join(f"[rank{rank}]: {WAITED}\n" for rank in (0, 2, 3))
MESH = "(RayWorkerWrapper pid={pid}, ip=10.4.1.21) [rank{rank}]:[E612 03:12:44.1 ProcessGroupGloo.cpp:152] Gloo connectFullMesh failed with [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] no error"
MARKS = {
    "ray folds lines": "(WorkerDict pid=20013) step done [repeated 3x across cluster]",
    "ray cannot keep up": "The driver may not be able to keep up with the stdout/stderr of the workers. To avoid forwarding logs to the driver, use 'ray.init(log_to_driver=False)'.",
    "Open MPI folds help": "[n1:54959] 1 more process has sent help message help-mpi-api.txt / mpi-abort",
    "journald": "Mar 12 10:15:02 n1 systemd-journald[120]: Suppressed 3144 messages from train.service",
    "rsyslog": "Mar 12 10:15:02 n1 rsyslogd: imuxsock[pid: 57, name: /usr/bin/python3]: 1024472 messages lost due to rate-limiting (20000 allowed within 300 seconds)",
    "torchrun shows rank 0": "+ torchrun --nproc-per-node 4 --local-ranks-filter 0,2,3 --tee 3 train.py",
    "msrun shows worker 0": "+ msrun --worker_num=4 --local_worker_num=4 --tail_worker_log=0 train.py",
}


def test_a_rank_that_writes_nothing_while_all_others_wait_is_silent() -> None:
    (cause,) = logs(run=ALL).causes
    assert (cause.signature, cause.culprits[0].rank) == ("rank-silent", 1)


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_no_rank_is_silent_where_lines_were_left_out(mark: str) -> None:
    diagnosis = logs(run=f"{ALL}{mark}\n")
    assert not diagnosis.causes and diagnosis.undecidable
    action = action_of(diagnosis, SIGNATURES)
    assert action.kind == "ask" and any(words in action.text for words in ("output", "the logs of the other ranks"))


def test_ranks_whose_lines_ray_folded_are_not_silent() -> None:
    text = f"{MESH.format(pid=4011, rank=1)}\n{MESH.format(pid=4012, rank=2)} [repeated 6x across cluster]\n"
    diagnosis = logs(driver=text)
    assert not diagnosis.causes and "RAY_DEDUP_LOGS=0" in action_of(diagnosis, SIGNATURES).text


def test_a_rank_that_writes_to_a_file_of_its_own_is_silent_beside_a_file_that_lacks_lines() -> None:
    files = {f"rank_{rank}": f"[rank{rank}]: {WAITED}\n" for rank in (0, 2)}
    diagnosis = logs(rank_1="step 3 loss 2.0\n", syslog=MARKS["journald"] + "\n", **files)
    assert [cause.culprits[0].rank for cause in diagnosis.causes] == [1]


def test_the_repeats_of_one_process_are_no_lines_of_another() -> None:
    """syslog joins equal lines of one program alone."""
    text = f"{ALL}Mar 12 10:15:02 n1 train[411]: message repeated 5 times: [ step done]\n"
    assert [cause.signature for cause in logs(run=text).causes] == ["rank-silent"]


def test_a_folded_line_is_a_fault_as_any_other() -> None:
    text = "(RayWorkerWrapper pid=931, ip=50.147.43.20) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. [repeated 3x across cluster]\n"
    (cause,) = logs(driver=text).causes
    assert cause.signature == "cuda-oom"


BEHIND = "".join(
    f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    f"WorkNCCL(SeqNum={7 if rank == 2 else 9}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for "
    "600029 milliseconds before timing out.\n"
    for rank in range(4)
)


@pytest.mark.parametrize(
    ("before", "behind", "is_doubted"),
    [
        ("", "", False),
        (MARKS["ray folds lines"] + "\n", "", False),
        ("", MARKS["ray folds lines"] + "\n", False),
        (MARKS["journald"] + "\n" + "step 1 done\n" * 300, "", False),
        ("", "step 1 done\n" * 20 + MARKS["journald"] + "\n", True),
        (MARKS["ray cannot keep up"] + "\n", "", True),
        (MARKS["torchrun shows rank 0"] + "\n" + "step 1 done\n" * 300, "", True),
    ],
)
def test_only_what_was_left_out_around_the_evidence_lowers_a_verdict(
    before: str, behind: str, is_doubted: bool
) -> None:
    (cause,) = logs(run=f"{before}{BEHIND}{behind}").causes
    assert cause.culprits[0].rank == 2
    assert (cause.confidence == "possible") == is_doubted
