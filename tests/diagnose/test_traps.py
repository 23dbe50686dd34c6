"""Texts that suggest one thing and were another, each with the thread that shows it."""

from __future__ import annotations

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from tests.diagnose.test_rules import CLOSED, TIMED_OUT, WATCHDOG, logs, named


def certain(diagnosis: Diagnosis) -> set[int | None]:
    return {c.rank for cause in diagnosis.causes if cause.confidence == "certain" for c in cause.culprits}


PLOG = "[ERROR] HCCL(7{0},python3):2026-11-20-12:0{1}:00.000.001 [a.cc:1]"


def test_port_16666_with_the_return_code_of_a_bound_port_is_a_conflict() -> None:
    text = (
        PLOG.format(0, 0)
        + "socket type[0], listen on ip[1.2.3.4] and specific port[16666] fail\n"
        + PLOG.format(0, 0)
        + "ra socket listen start failed, hcclRet[7]\n"
    )
    assert [cause.signature for cause in logs(rank_3=text).causes] == ["ei0019-npu-port-bind"]


def test_hccls_hint_at_the_firewall_accuses_no_rank() -> None:
    """hicann/hccl docs/zh/user_guide/fault_diagnosis/cluster_info_nego.md."""
    text = PLOG.format(1, 0) + "Wait timeout for sockets recv, data[0x1], size[4]. firewall is incorrectly configured\n"
    assert not certain(logs(rank_1=text, rank_2=text))


def test_suspect_remote_error_beside_its_own_core_exception_is_that_ranks_fault() -> None:
    """https://github.com/vllm-project/vllm-ascend/issues/10829"""
    core = PLOG.format(0, 1) + "The error from device(chipId:0, dieId:0), there is an exception of aivec error, "
    suspect = (
        PLOG.format(0, 3) + "rtStreamSynchronize execute failed, reason=[suspect remote error], error code 507057\n"
    )
    other = PLOG.format(1, 3) + "rtStreamSynchronize execute failed, reason=[suspect remote error], error code 507057\n"
    diagnosis = logs(rank_0=core + "\n" + suspect, rank_1=other)
    assert [c.rank for cause in diagnosis.causes for c in cause.culprits] == [0]


def test_a_transport_error_that_says_the_port_is_down_is_this_ranks_fault() -> None:
    text = "EI0009: 2025-09-24-20:59:48.119.066 Transport init error. Reason: The network port is down.\n"
    diagnosis = logs(rank_0=text, rank_1="EI0006: 2025-09-24-20:59:50.119.066 Getting socket times out.")
    assert certain(diagnosis) == {0}


def test_a_wrapper_alone_is_no_cause() -> None:
    diagnosis = logs(rank_0="RuntimeError: davinci_model : load task fail, return ret: 1343225860")
    assert not diagnosis.causes and diagnosis.failed


def test_the_hung_rank_prints_remote_worker_crashing_last() -> None:
    assert [
        c.rank for cause in logs(rank_0=TIMED_OUT, rank_1=CLOSED, rank_2=TIMED_OUT).causes for c in cause.culprits
    ] == [1]


def test_the_watchdog_that_reports_an_ecc_error_is_a_fault_of_that_gpu() -> None:
    """https://github.com/pytorch/pytorch/issues/113128"""
    text = (
        "[rank12]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 12] Process group watchdog "
        "thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
    )
    assert named(logs(train=text)) == [("cuda-ecc", "local fault", [12])]


def test_a_peer_that_closed_in_a_merged_log_is_outranked_by_the_memory_of_another_device() -> None:
    """https://github.com/NVIDIA/nccl/issues/1235"""
    text = (
        "n1:3025:3048 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n1<51159>\n"
        "n1:3028:3152 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n"
    )
    (cause,) = logs(train=text).causes
    assert (cause.signature, cause.culprits[0].device) == ("nccl-cuda-oom", 3)


def test_an_address_of_no_family_is_not_the_fault_of_the_rank_that_prints_it() -> None:
    """https://github.com/NVIDIA/nccl/issues/1837: another rank's NCCL_SOCKET_IFNAME does not exist."""
    text = "ncclSocketInit: connecting to address  with family 59936 is neither AF_INET(2) nor AF_INET6(10)"
    diagnosis = logs(rank_0=text, rank_1=text, rank_2="step 1")
    assert not certain(diagnosis) and diagnosis.failed


def test_a_client_socket_that_timed_out_does_not_tell_why() -> None:
    """https://github.com/pytorch/pytorch/issues/79388"""
    text = "[E1120 07:17:10.3 socket.cpp:1028] [c10d] The client socket has timed out after 12000ms while trying to connect to (10.99.0.1, 29500)."
    diagnosis = logs(rank_1=text)
    assert not diagnosis.causes and diagnosis.undecidable


def test_a_rank_that_ended_with_code_0_on_a_signal_is_not_accused_when_the_launcher_ended_it() -> None:
    """https://github.com/ai2cm/ace/pull/1068: the handler of a rank; launchers send the same signal to the innocent."""
    diagnosis = logs(
        rank_0="[rank0]: ValueError: bad batch",
        rank_1="received signal 15, exiting",
        rank_2="received signal 15, exiting",
    )
    assert certain(diagnosis) == {0}
    waits = logs(rank_0=CLOSED, rank_1="received signal 15, exiting", rank_2=CLOSED)
    assert [c.rank for cause in waits.causes for c in cause.culprits] == [1] and not certain(waits)


def test_a_link_error_towards_a_process_that_had_died_is_that_process() -> None:
    cqe = PLOG.format(1, 5) + "poll cq fail, ERROR CQE, status[12]. EI0013 remote is 1.1.1.1\n"
    died = "[ERROR] 2026-11-20-12:01:00 (PID:70, Device:0, RankID:0) ERR01999\nRuntimeError: NPU out of memory. Tried to allocate 2.00 GiB"
    diagnosis = logs(rank_1=cqe, rank_0=died)
    assert [c.rank for cause in diagnosis.causes for c in cause.culprits] == [0]


def test_a_return_code_1_of_the_root_info_is_no_certain_cause() -> None:
    """https://github.com/vllm-project/vllm-ascend/issues/2712"""
    text = (
        "(VllmWorker rank=1 pid=7226) ERROR 09-03 03:02:37 [multiproc_executor.py:522] RuntimeError: create_config HCCL "
        "function error: hcclCommInitRootInfoConfig(numRanks, &rootInfo, rank, config, &(comm->hcclComm_)), error code is 1"
    )
    diagnosis = logs(train=text)
    assert not diagnosis.causes and diagnosis.failed


def test_more_clients_than_ranks_name_no_rank() -> None:
    """https://github.com/facebookresearch/metaseq/issues/86: two jobs on one store."""
    text = (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for key: "
        "store_based_barrier_key:1 (world_size=2, worker_count=4, timeout=0:30:00)"
    )
    diagnosis = logs(rank_0=text.replace("rank: 1", "rank: 0"), rank_1=text)
    assert diagnosis.failed and not any(cause.culprits for cause in diagnosis.causes)


def test_memory_of_an_exabyte_is_what_a_collective_that_timed_out_left() -> None:
    """https://github.com/NVIDIA/nccl/issues/1284"""
    memory = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory\n"
    for text in (
        memory + WATCHDOG.format(3, 12, "BROADCAST", 1),
        WATCHDOG.format(3, 12, "BROADCAST", 1) + "\n" + memory,
    ):
        diagnosis = logs(train=text)
        assert not diagnosis.causes and diagnosis.failed


@pytest.mark.parametrize("label", ["", "[rank1]: ", "1: "])
def test_the_source_line_that_a_traceback_quotes_is_not_what_the_program_printed(label: str) -> None:
    text = (
        'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n'
        '    step() or report("CUDA out of memory. Tried to allocate", "No space left on device")\n'
        "ValueError: loss is NaN\n"
    )
    diagnosis = logs(train="".join(f"{label}{line}\n" for line in text.splitlines()))
    assert [cause.signature for cause in diagnosis.causes] == ["sampling-not-finite"]


@pytest.mark.parametrize(
    "text",
    [
        "/work/run.sh: line 3: python: command not found\nstep 1 loss 3.2\nstep 2 loss 3.1\nTraining complete\n",
        'WARNING botocore: Read timeout on endpoint URL: "https://s3.amazonaws.com/x"; retrying\nstep 1 loss 3.2\n',
        '{"level": "error", "msg": "metrics push failed"}\nstep 10 loss 1.2\nstep 11 loss 1.1\n',
        "Generated: Only one usage of each socket address is permitted\nstep 5 loss 1.0\n",
        "F0101 10:00:00.000000 100 raylet.cc:55] Check failed: connection closed\n",
    ],
)
def test_what_the_job_went_on_after_or_what_follows_from_another_end_is_no_cause(text: str) -> None:
    assert not logs(job=text).causes


RERUN = "ERROR:megatron.core.rerun_state_machine:"
ON = "Rank 3, node n7, device 5, iteration #30: "


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        ("First rerun: unexpected result is reproducible within the tolerance (nan = nan).", "result-not-finite"),
        ("Correct result (but possible Application error) (grad norm)!", "result-not-finite"),
        ("Possible transient error!", "result-of-one-gpu"),
        ("Possible persistent error!", "result-of-one-gpu"),
    ],
)
def test_what_the_second_computation_of_megatron_says_decides(last: str, cause: str) -> None:
    text = f"{RERUN}Unexpected result nan on rank 3 at iteration #30 invocation #2 (message='x')\n{RERUN}{ON}{last}\n"
    (found,) = logs(train=text).causes
    assert found.signature == cause and {culprit.rank for culprit in found.culprits} == {3}
    assert "n7" in {culprit.host for culprit in found.culprits}


def test_a_gradient_that_is_not_finite_accuses_no_gpu_for_certain() -> None:
    """A mask that was wrong on all ranks: the gradient of one is the first that is looked at."""
    text = "AssertionError: Rank 3: found NaN in local grad norm in backward pass before data-parallel. Device: 5, node: n7\n"
    assert certain(logs(train=text)) == set()


def test_an_error_of_nccl_that_a_line_quotes_is_none() -> None:
    text = 'INFO batch 12: "my job prints RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1331, unhandled system error"\n'
    steps = "".join(f"step {step} loss 1.2\n" for step in (12, 13, 14))
    assert not logs(train=text + steps).failed
    assert logs(train=steps + text).failed
