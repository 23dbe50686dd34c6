"""A rank whose own connection ended, beside ranks that lost it; what NCCL and doctor watch leave to be asked for."""

from __future__ import annotations

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from tests.diagnose.test_rules import CLOSED, TIMED_OUT, logs, named

RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"
NCCL_GONE = (
    "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1691,"
    " remote process exited or there was a network error, NCCL version 2.20.5\nncclRemoteError: A call failed possibly"
    " due to a network error or a remote process exiting prematurely."
)
STORE = "[('python-peer-lost', 'minority', [1])]"


def traced(rank: int, *errors: str, frame: str = 'File "train.py", line 9, in fetch') -> str:
    """Tracebacks of one rank, each raised while the one before it was handled."""
    head = f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]:   {frame}\n"
    between = f"\n[rank{rank}]: During handling of the above exception, another exception occurred:\n\n"
    return between.join(f"{head}[rank{rank}]: {error}\n" for error in errors)


@pytest.mark.parametrize("lost", [CLOSED, TIMED_OUT, NCCL_GONE])
def test_the_rank_whose_own_socket_was_reset_is_named_beside_those_that_lost_it(lost: str) -> None:
    others = [traced(rank, lost.replace("\n", f"\n[rank{rank}]: ")) for rank in (0, 2)]
    diagnosis = logs(rank_0=others[0], rank_1=traced(1, RESET), rank_2=others[1])
    assert str(named(diagnosis)) == STORE
    assert diagnosis.causes[0].confidence == "likely"


@pytest.mark.parametrize(
    "text",
    [
        traced(1, RESET, "urllib3.exceptions.ProtocolError: ('Connection aborted.', ConnectionResetError(104, ''))"),
        traced(
            1,
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "requests.exceptions.ConnectionError: HTTPConnectionPool(host='0.0.0.0', port=8000): Max retries exceeded",
        ),
        traced(
            1,
            "ConnectionRefusedError: [Errno 111] Connect call failed ('10.0.0.1', 8000)",
            "aiohttp.client_exceptions.ClientConnectorError: Cannot connect to host 10.0.0.1:8000 ssl:default",
        ),
        traced(1, "ConnectionResetError: Cannot write to closing transport"),
        traced(1, CLOSED, RESET),
    ],
    ids=["urllib3", "requests", "aiohttp", "server", "after its own loss"],
)
def test_a_client_of_a_rollout_server_and_what_follows_from_a_loss_are_not_named(text: str) -> None:
    diagnosis = logs(rank_0=traced(0, CLOSED), rank_1=text, rank_2=traced(2, CLOSED))
    assert str(named(diagnosis)) != STORE
    assert not any(cause.signature == "python-peer-lost" for cause in diagnosis.causes)


def test_of_two_ranks_with_such_errors_and_of_one_that_came_later_none_is_named() -> None:
    both = logs(rank_0=traced(0, CLOSED), rank_1=traced(1, RESET), rank_2=traced(2, RESET))
    assert not both.causes and both.undecidable
    early = f"2026-11-26 10:00:00,000 ERROR {CLOSED}\n"
    late = logs(rank_0=early, rank_1=f"2026-11-26 10:05:00,000 ERROR {RESET}\n", rank_2=early)
    assert not any(cause.signature == "python-peer-lost" for cause in late.causes)


def test_a_silent_rank_beside_them_leaves_it_open() -> None:
    size = "[Rank 0] torch.distributed.init_process_group(world_size=8)\n"
    texts = {f"rank_{rank}": size + traced(rank, CLOSED) for rank in (0, 2)}
    diagnosis = logs(rank_1=traced(1, RESET), **texts, rank_7="step 1\n")
    assert not any(cause.signature == "python-peer-lost" for cause in diagnosis.causes)


def needed(diagnosis: Diagnosis) -> str:
    """What would decide."""
    assert not diagnosis.causes and diagnosis.undecidable
    return " | ".join(diagnosis.undecidable.needed)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/ProcessGroupNCCL.cpp:911, invalid usage, NCCL version 2",
        "RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/../c10d/NCCLUtils.hpp:39, invalid argument",
    ],
)
def test_an_error_of_nccl_without_its_reason_asks_for_the_line_that_says_it(text: str) -> None:
    """facebookresearch/fairseq issue 3704 and pytorch/pytorch issue 25299."""
    ask = needed(logs(rank_0=traced(0, text), rank_1=traced(1, text)))
    assert "NCCL_DEBUG=WARN" in ask and "logs of" not in ask


def test_the_reason_of_nccl_is_the_cause_where_it_is_printed() -> None:
    text = "n1:10:10 [0] init.cc:497 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000\n"
    diagnosis = logs(job=text + "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n")
    assert [cause.signature for cause in diagnosis.causes] == ["nccl-duplicate-gpu"]


def test_a_process_that_only_its_pid_names_is_called_by_it() -> None:
    """vllm-project/vllm issue 6725."""
    line = "(VllmWorkerProcess pid={}) ERROR 07-24 04:24:50 multiproc_worker_utils.py:226] RuntimeError: CUDA error: {}"
    fault = "an illegal memory access was encountered"
    diagnosis = logs(job="\n".join(line.format(pid, fault) for pid in (134370, 134372)) + "\n")
    assert [culprit.name for culprit in diagnosis.causes[0].culprits] == ["pid 134370", "pid 134372"]
    alone = logs(job=f"RuntimeError: CUDA error: {fault}\n")
    assert [culprit.name for culprit in alone.causes[0].culprits] == ["the process of job.log"]


VERDICT = "doctor watch: 2 of 2 ranks, step 12, 0.21 steps/s, 58 s; {}\n"


def test_the_verdict_of_watch_is_the_cause_where_the_log_shows_no_fault() -> None:
    """The last of a log counts: of two ranks that end, the earlier line may name the one that was ended."""
    text = VERDICT.format("smoke-rank-died: rank 1 on vm") + VERDICT.format("smoke-rank-died: rank 0 on vm")
    (cause,) = logs(job="loading\n" * 9 + f"[rank0]: {TIMED_OUT}\n{text}").causes
    assert (cause.summary, cause.confidence) == ("doctor watch names smoke-rank-died: rank 0 on vm", "certain")
    assert [(culprit.rank, culprit.host) for culprit in cause.culprits] == [(0, "vm")]
    (fault,) = logs(job=f"[rank0]: {TIMED_OUT}\n[rank1]: ValueError: bad sample\n{text}").causes
    assert fault.signature != "verdict-of-watch"


@pytest.mark.parametrize(
    ("verdict", "confidence", "ranks"),
    [
        ("smoke-collective-mismatched: rank 2 on vm", "certain", [2]),
        ("smoke-rank-blocked: ranks 0-2, 5 on w1, w2", "certain", [0, 1, 2, 5]),
        ("likely smoke-rank-blocked: rank 1 on n2", "likely", [1]),
        ("smoke-mask-differs: one of ranks 0-1 on vm", "possible", [0, 1]),
        ("smoke-gradient-summed: every rank on vm", "certain", []),
        ("smoke-collective-order: not known which rank", "certain", []),
        ("smoke-rank-slow: rank 3 on w2; smoke-input-slow: rank 1 on w1", "certain", [3]),
        ("smoke-not-finite: the loss is nan since step 15", "certain", []),
        ("resume-state-lost: a part of the checkpoint was lost", "certain", []),
        ("training-slowed-down: steps take longer than in earlier runs", "certain", []),
    ],
)
def test_every_kind_of_verdict_of_watch_is_one_of_diagnose(verdict: str, confidence: str, ranks: list[int]) -> None:
    end = "exitcode  : -15 (pid: 7)\nW0101 Sending process 8 closing signal SIGTERM\n"
    (cause,) = logs(job=f"step 1 loss 3.2\n{VERDICT.format(verdict)}{end}").causes
    assert (cause.confidence, [culprit.rank for culprit in cause.culprits]) == (confidence, ranks)
    assert verdict.removeprefix("likely ") in cause.summary


def test_a_verdict_in_chinese_is_read_as_well() -> None:
    line = "doctor watch: 3 个 rank 中的 3 个，step 25，3.98 step/s，6 s；{}smoke-rank-left: rank 2 on vm\n"
    causes = [logs(job=line.format(likely)).causes[0] for likely in ("", "可能：")]
    assert [(cause.confidence, cause.culprits[0].rank) for cause in causes] == [("certain", 2), ("likely", 2)]


@pytest.mark.parametrize(
    "end",
    ["", "the data of the ranks is wrong", "no fault was found. The paces of the ranks were not compared: rank 0"],
)
def test_a_line_of_progress_without_a_verdict_is_none(end: str) -> None:
    assert not logs(job=VERDICT.format(end)).failed


def test_an_assertion_of_a_kernel_that_a_terminal_cut_in_two_is_a_failure() -> None:
    """StarsfieldAI/R1-V issue 10."""
    text = (
        "../aten/src/ATen/native/cuda/IndexKernel.cu:93: operator(): block: [0,0,0], thread: [0,0,0] Assertion"
        ' `-sizes[i] <= index && index < size$\n[i] && "index out of bounds"` failed.\n'
    )
    assert [cause.signature for cause in logs(job=text).causes] == ["cuda-assert"]


def test_the_heads_of_old_nccl_tell_its_process_from_the_one_that_crashed() -> None:
    """horovod/horovod issue 234: NCCL 2.1 prints no name of its own."""
    text = (
        "ichost103:15819:15981 [1] include/socket.h:196 WARN Connection closed by remote peer\n"
        "ichost103:15819:15981 [1] INFO include/net.h:29 -> 2 [Net]\n"
        "[ichost003:36495] *** Process received signal ***\n[ichost003:36495] Signal: Segmentation fault (11)\n"
    )
    diagnosis = logs(job=text)
    assert [(cause.signature, cause.culprits[0].host) for cause in diagnosis.causes] == [
        ("torch-signal-segv", "ichost003")
    ]


NO_ROUTE = (
    "RuntimeError: [enforce fail at /__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/socket.cc:142] rv != -1. "
    "-1 vs -1. connect: {0}\n"
)
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
PEER_RESET = (
    "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [10.9.7.3]:2634: Connection reset by peer\n"
)


@pytest.mark.parametrize("errno", ["No route to host", "Permission denied", "Invalid argument"])
def test_a_rank_whose_host_alone_has_no_route_to_another_is_named(errno: str) -> None:
    """As gloo prints it with an unreachable, prohibit or blackhole route on one of three hosts."""
    (cause,) = logs(rank0=PEER_RESET, rank1="step 1\n", rank2=TRACE + NO_ROUTE.format(errno)).causes
    assert (cause.signature, cause.confidence) == ("peer-no-route", "likely")
    assert [culprit.rank for culprit in cause.culprits] == [2]


def test_of_several_ranks_that_reach_one_host_no_more_none_is_at_fault_for_sure() -> None:
    text = TRACE + NO_ROUTE.format("No route to host")
    (cause,) = logs(rank0=text, rank1="step 1\n", rank2=text).causes
    assert cause.confidence == "possible"


def test_why_a_rank_did_not_reach_the_store_that_others_reached_is_the_cause() -> None:
    """With an unreachable route to the store's host on one of three hosts: that rank, and its reason."""
    line = "The client socket has failed to connect to 93.85.0.0:58898 (errno: 113 - No route to host)."
    failed = f"The client socket has failed to connect to any network address of (10.99.7.1, 29501). {line}"
    head = "[W1128 03:14:07.944574729 socket.cpp:764] [c10d] "
    waited = "torch.distributed.DistStoreError: Timed out after 31 seconds waiting for clients. 2/3 clients joined.\n"
    lost = "torch.distributed.DistStoreError: wait timeout after 30000ms, keys: /default_pg/0//cpu//0/0\n"
    rank2 = f"{head}{line}\n{TRACE}torch.distributed.DistNetworkError: {failed}\n"
    (cause,) = logs(rank0=TRACE + waited, rank1=TRACE + lost, rank2=rank2).causes
    assert cause.signature == "torch-master-no-route"
    assert [culprit.rank for culprit in cause.culprits] == [2]
