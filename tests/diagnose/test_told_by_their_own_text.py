"""What a log tells in words that no signature has: usage, native exceptions, signals; and who printed it."""

from __future__ import annotations

import pytest

from doctor.diagnose.excerpter.line_choice import launcher_labels
from tests.diagnose.test_actions import kind
from tests.diagnose.test_rules import logs, named

TIMEOUT = (
    "[rank2]:[E816 01:09:38.174648046 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 2] Process group watchdog"
    " thread terminated with exception: [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1,"
    " OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600034 milliseconds before timing out.\n"
)
ENDS_ITSELF = (
    "[rank0]:[E816 01:09:38.266910599 ProcessGroupNCCL.cpp:627] [Rank 0] To avoid data inconsistency, we are taking"
    " the entire process down.\n"
)
USAGE = "main_pretrain.py: error: unrecognized arguments: --local-rank=1\n"
EXITED = (
    "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 2) local_rank: 0 (pid: 1499185) of binary:"
    " /bin/python\n"
)
PARENT_GONE = """Traceback (most recent call last):
  File "<string>", line 1, in <module>
  File "/usr/lib/python3.8/multiprocessing/spawn.py", line 116, in spawn_main
    exitcode = _main(fd, parent_sentinel)
  File "/usr/lib/python3.8/multiprocessing/spawn.py", line 126, in _main
    self = reduction.pickle.load(from_parent)
"""
"""https://github.com/open-mmlab/OpenPCDet/issues/1286"""
MVAPICH = "[{}][error_sighandler] Caught error: Segmentation fault (signal 11)\n"
SHELL = "bash: line 1: 26598 Segmentation fault      (core dumped) /usr/mpi/bin/orted --hnp-topo-sig 0N:2S\n"
QUEUE_PAIR = "host-01:11221:11300 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with "
NO_REASON = """[rank4]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, internal error - please report this issue to the NCCL developers, NCCL version 2.21.5
[rank4]: ncclInternalError: Internal check failed.
[rank4]: Last error:
[rank4]: Attribute arch of node cpu not found
"""  # noqa: E501
"""https://github.com/pytorch/pytorch/issues/140541"""
THROWN = "terminate called after throwing an instance of '{}'\n  what():  {}\n"
TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/train.py", line 10, in <module>\n    main()\n'
OF_LAUNCHER = """Traceback (most recent call last):
  File "/home/3458/pytorch/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/home/3458/pytorch/venv/lib/python3.11/site-packages/torch/distributed/run.py", line 901, in main
    run(args)
  File "/home/3458/pytorch/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 259, in launch_agent
    if result.is_failed():
       ^^^^^^^^^^^^^^^^
AttributeError: 'NoneType' object has no attribute 'is_failed'
"""  # noqa: E501
"""https://github.com/pytorch/pytorch/issues/133380"""


def culprits(text: str) -> list[str]:
    return [culprit.name for cause in logs(job=text).causes for culprit in cause.culprits]


def test_a_refused_command_line_is_the_cause_of_the_exit_that_the_launcher_saw() -> None:
    """https://github.com/tsujuifu/pytorch_violet/issues/17"""
    (cause,) = logs(job=USAGE + EXITED).causes
    assert cause.signature == "program-usage-wrong"


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (
            "*** SIGABRT received by PID 545434 (TID 545434) on cpu 25 from PID 545434; stack trace: ***\n",
            ["pid 545434"],
        ),
        (
            MVAPICH.format("A-c7-023-14:mpi_rank_24") + MVAPICH.format("A-c7-025-01:mpi_rank_0"),
            ["rank 0 (host A-c7-025-01)", "rank 24 (host A-c7-023-14)"],
        ),
        (
            "[tonglu:26598] Signal: Segmentation fault (11)\n" + SHELL,
            ["pid 26598 (host tonglu)"],
        ),
    ],
)
def test_a_signal_is_told_with_the_process_that_its_head_names(text: str, who: list[str]) -> None:
    """jax-ml/jax#9642, lanl/MPI-Bash#14, open-mpi/ompi#1826."""
    (cause,) = logs(job=text).causes
    assert (cause.signature, [item.name for item in cause.culprits]) == ("torch-signal-segv", who)


def test_a_wrong_argument_is_that_of_its_process_and_a_truncated_message_that_of_nobody() -> None:
    """https://github.com/open-mpi/ompi/issues/1530"""
    assert culprits("[bend001:21445] *** MPI_ERR_RANK: invalid rank\n") == ["pid 21445 (host bend001)"]
    assert culprits("[bend001:21445] *** MPI_ERR_TRUNCATE: message truncated\n") == []


def test_a_rank_that_says_that_it_ends_itself_is_not_silent() -> None:
    """https://github.com/DataArcTech/SQL-R1/issues/18"""
    assert logs(job=ENDS_ITSELF + TIMEOUT).causes == ()
    assert named(
        logs(rank_0="step 1\n", rank_2=TIMEOUT, rank_1=TIMEOUT.replace("ank2", "ank1").replace("nk 2", "nk 1"))
    )


@pytest.mark.parametrize("error", ["_pickle.UnpicklingError: pickle data was truncated", "EOFError: Ran out of input"])
def test_a_child_whose_parent_ended_is_not_the_cause(error: str) -> None:
    diagnosis = logs(job=PARENT_GONE + error + "\n")
    assert diagnosis.causes == ()
    assert diagnosis.undecidable is not None


def test_a_child_that_cannot_read_what_the_program_gave_it_is_the_cause() -> None:
    error = "AttributeError: Can't get attribute 'Batches' on <module '__main__' (built-in)>"
    assert [cause.signature for cause in logs(job=PARENT_GONE + error + "\n").causes] == ["object-not-pickled"]


def test_the_reason_that_nccl_gives_last_is_told() -> None:
    diagnosis = logs(job=NO_REASON)
    assert diagnosis.undecidable is not None
    assert diagnosis.undecidable.reason.endswith("Attribute arch of node cpu not found")


@pytest.mark.parametrize(
    ("thrown", "text", "signatures"),
    [
        ("std::system_error", "Transport endpoint is not connected", ["program-failed"]),
        ("std::runtime_error", "[Rank 2] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)", []),
        ("c10::DistBackendError", "what another rank did", []),
    ],
)
def test_an_exception_of_native_code_is_told_as_one_of_python(thrown: str, text: str, signatures: list[str]) -> None:
    """https://github.com/facebookresearch/moco/issues/25"""
    assert [cause.signature for cause in logs(job=THROWN.format(thrown, text)).causes] == signatures


@pytest.mark.parametrize(
    ("text", "confidence"),
    [("Transport endpoint is not connected", "likely"), ("read: No route to host", "likely"), ("bad index", "certain")],
)
def test_what_is_of_a_network_is_no_certain_fault_of_the_process(text: str, confidence: str) -> None:
    """https://github.com/facebookresearch/moco/issues/25"""
    for error in (THROWN.format("std::system_error", text), f"{TRACEBACK}RuntimeError: {text}\n"):
        (cause,) = logs(job=error).causes
        assert (cause.confidence, kind(logs(job=error)) == "examine") == (confidence, confidence == "likely")
        assert text in cause.summary


def test_an_exception_of_the_launcher_itself_is_no_certain_fault_of_a_program() -> None:
    """https://github.com/pytorch/pytorch/issues/133380"""
    (cause,) = logs(job=OF_LAUNCHER).causes
    assert cause.confidence == "likely" and "launcher/api.py:259" in cause.summary
    own = OF_LAUNCHER.replace("/home/3458/pytorch/venv/lib/python3.11/site-packages/torch/distributed/", "/job/")
    (cause,) = logs(job=own.replace("launcher/api.py", "steps/api.py")).causes
    assert cause.confidence == "certain" and "steps/api.py:259" in cause.summary


@pytest.mark.parametrize("error", ["error No such device", "22 Invalid argument Invalid argument, on dev mlx5_1:1"])
def test_a_queue_pair_with_a_wrong_setting_is_the_fault_of_its_own_host(error: str) -> None:
    diagnosis = logs(job=QUEUE_PAIR + error + "\n")
    assert [(cause.signature, cause.confidence) for cause in diagnosis.causes] == [("nccl-ib-modify-qp", "certain")]


def test_a_queue_pair_that_reaches_nobody_is_the_fault_of_one_of_its_ends() -> None:
    """https://github.com/NVIDIA/nccl/issues/2013"""
    error = "110 Connection timed out, on dev mlx5_5:1, curr state INIT, next state RTR, remote GID ::ffff:192.0.2.77"
    (cause,) = logs(job=QUEUE_PAIR + error + "\n").causes
    assert (cause.signature, cause.rule, cause.confidence) == ("nccl-ib-no-path", "both ends", "possible")
    assert [culprit.host for culprit in cause.culprits] == ["192.0.2.77", "host-01"]


def test_a_launcher_names_nobody_as_silent_beside_errors_without_a_rank() -> None:
    """https://github.com/NVIDIA/nccl-tests/issues/322"""
    failed = (
        "HCA-14: Test NCCL failure common.cu:1204 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '\n"
    )
    first = (
        "the job to be terminated. The first process to do so was:\n\n  Process name: [[44912,1],251]\n  Exit code: 3\n"
    )
    assert logs(job=failed + failed.replace("HCA-14", "HCA-28") + first).causes == ()


def test_one_process_whose_error_may_be_of_another_is_told_with_what_it_shows() -> None:
    """https://github.com/open-mmlab/mmcv/issues/3203"""
    line = "        Aicpu kernel execute failed, device_id=0, stream_id=3, task_id=0.[FUNC:PrintAicpuErrorInfo]\n"
    (cause,) = logs(job=line).causes
    assert (cause.signature, cause.rule, cause.confidence) == ("npu-507018-aicpu", "lone process", "possible")


@pytest.mark.parametrize(
    "other",
    [
        "[rank3]: step 4 loss 2.1\n[rank3]: ValueError: bad\n",
        "hccl.cc:12 [HCCL] AllReduce, world_size 8: EI0002: The wait execution of the Notify register times out.\n",
        "E1019 08:21:39 3036 torch/distributed/elastic/api.py:874] failed (exitcode: 1) local_rank: 0 (pid: 3042)\n",
    ],
)
def test_an_error_that_may_follow_from_another_rank_is_that_of_no_lone_process(other: str) -> None:
    line = "        Aicpu kernel execute failed, device_id=0, stream_id=3, task_id=0.[FUNC:PrintAicpuErrorInfo]\n"
    assert all(cause.rule != "lone process" for cause in logs(job=line + other).causes)


def test_the_exception_before_the_exit_that_deepspeed_saw_is_the_cause() -> None:
    """https://github.com/huggingface/transformers/issues/21373"""
    exited = (
        "node2: [2023-01-30 09:04:35,002] [ERROR] [launch.py:184:sigkill_handler] ['/usr/bin/python3', '-u',"
        " 'run_clm.py', '--local_rank=1'] exits with return code = 1\n"
    )
    (cause,) = logs(job=f"{TRACEBACK}RuntimeError: connect() timed out.\n{exited}").causes
    assert (cause.signature, cause.confidence) == ("program-failed", "likely")


def test_a_bare_exception_is_told() -> None:
    """https://github.com/bitsandbytes-foundation/bitsandbytes/issues/555"""
    (cause,) = logs(job="step 1\nException: CUDA SETUP: Setup Failed!\n").causes
    assert "CUDA SETUP: Setup Failed!" in cause.summary
    others = "Exception: worker 3 failed, see the stack trace above for the root cause\n"
    assert logs(job=others).causes == ()


def test_a_short_log_whose_errors_name_ranks_is_not_that_of_these_ranks() -> None:
    few = b"rank 0 connected\nerror: rank 1 did not answer\n"
    assert launcher_labels(few) == () and launcher_labels(few * 4) == (0, 1)


LINK_LOCAL = "{}:91:92 [5] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to {}<17943> failed : {}\n"
"""https://github.com/NVIDIA/nccl/issues/975"""


@pytest.mark.parametrize(
    ("hosts", "address", "said"),
    [
        (("n1", "n2"), "fe80::966d:ae03:a2:8cf0%ib1", ("nccl-link-local-address", "likely")),
        (("n1",), "169.254.3.1", ("nccl-link-local-address", "possible")),
        (("n1",), "10.0.0.9", ("nccl-no-route", "possible")),
    ],
)
def test_a_link_local_address_that_failed_accuses_no_host(hosts: tuple[str, ...], address: str, said: object) -> None:
    lines = {host: LINK_LOCAL.format(host, address, "Network is unreachable") for host in hosts}
    (cause,) = logs(**lines).causes
    assert (cause.signature, cause.confidence) == said
    assert bool(cause.culprits) == (said == ("nccl-no-route", "possible"))


def test_a_connection_to_a_link_local_address_that_is_tried_again_is_no_cause() -> None:
    text = "n1:91:92 [5] NCCL INFO Call to connect to fe80::1%ib1<17943> returned Connection refused, retrying\n"
    assert not logs(job=text).causes


MSRUN_SAW = (
    "[ERROR] ME(1:2,MainProcess):2024-12-26-14:22:26.839.923 [mindspore/parallel/cluster/process_entity/_api.py:268]"
    " Worker process 130673 exit with exception.\n"
)
STREAM_FAILED = (
    "(Worker_DP0_TP5_EP5 pid=17096) ERROR 03-25 06:14:02 [multiproc_executor.py:880] RuntimeError: synchronize:a.ts:361"
    " NPU function error: c10_npu::acl::AclrtSynchronizeStreamWithTimeout(s), error code is 507011\n"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("-:6:7 [1] misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer draw4<59227>\n", "host draw4"),
        ("application called MPI_Abort(MPI_COMM_WORLD, 1) - process 10\n", "rank 10: "),
        ("error: _forkexec_slurmstepd: slurmstepd failed to send return code got 0: No error\n", "_forkexec"),
        (MSRUN_SAW, "Worker process 130673"),
        (STREAM_FAILED, "rank 5: "),
    ],
)
def test_what_a_line_shows_of_a_failure_without_its_cause_is_told(text: str, told: str) -> None:
    """mosaicml/diffusion#110, ContinuumIO/anaconda-issues#1017,
    MITIBMxGraph/SALIENT_artifact#2, candle-org/MindAct#1893, vllm-project/vllm-ascend#7676."""
    diagnosis = logs(job=text)
    assert not diagnosis.causes
    assert diagnosis.undecidable is not None and told in diagnosis.undecidable.reason


LAUNCHER_SAW = (
    "E1019 08:21:39.599000 3036 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {}) local_rank:"
    " 0 (pid: 3042) of binary: /usr/bin/python\n"
)


@pytest.mark.parametrize(
    ("text", "confidence"),
    [
        ("RuntimeError: shapes do not match\n", "likely"),
        ("RuntimeError: shapes do not match\n" + LAUNCHER_SAW.format(1), "certain"),
        (TRACEBACK + "RuntimeError: shapes do not match\n", "certain"),
    ],
    ids=["alone", "beside the launcher's report", "of a traceback"],
)
def test_an_exception_without_traceback_or_end_of_a_process_is_not_certain(text: str, confidence: str) -> None:
    (cause,) = logs(job=text).causes
    assert (cause.signature, cause.confidence) == ("exception-of-mismatch", confidence)


ENDED = "pure virtual method called\nterminate called without an active exception\n"
"""https://github.com/NVIDIA/Megatron-LM/issues/1874"""


def test_native_code_that_ends_a_process_without_an_exception_is_its_own_fault() -> None:
    (cause,) = logs(job=ENDED + LAUNCHER_SAW.format(-6)).causes
    assert "std.terminate" in cause.summary
    after = logs(job=TIMEOUT + ENDED + LAUNCHER_SAW.format(-6))
    assert not any("std.terminate" in cause.summary for cause in after.causes)


@pytest.mark.parametrize(
    ("text", "signature", "who"),
    [
        (
            "[n1:4036:0] Caught signal 11 (Segmentation fault: address not mapped)\n",
            "torch-signal-segv",
            ["pid 4036 (host n1)"],
        ),
        (
            "mpirun noticed that process rank 1 with PID xxxx on node n7 exited on signal 9 (Killed).\n",
            "mpi-rank-killed",
            ["rank 1 (host n7)"],
        ),
        ("*** The MPI_Comm_rank() function was called before MPI_INIT was invoked.\n", "mpi-not-initialized", None),
    ],
)
def test_who_crashed_is_read_from_the_head_of_the_report(text: str, signature: str, who: list[str] | None) -> None:
    """horovod/horovod#489, Kay1794/Aware-of-the-history#2, exalearn/EXARL#22."""
    assert [cause.signature for cause in logs(job=text).causes] == [signature]
    assert who is None or culprits(text) == who
