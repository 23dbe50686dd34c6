"""Classes of faults that real public logs showed: whose rank a line names, and what healthy runs print."""

from __future__ import annotations

import time

import pytest

from doctor.diagnose.decide import diagnose
from doctor.diagnose.events import small_number
from doctor.diagnose.read.scan import scan
from doctor.diagnose.read.stamps import read_stamp
from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import MATCHER, SIGNATURES, logs, named


def watchdog(rank: int, group: str, group_rank: int, seq: int) -> str:
    """Both lines that torch prints for a collective that timed out; only the label has the rank in the world."""
    head = f"[rank{rank}]:[E1002 12:20:55.{rank}"
    return (
        f"{head} ProcessGroupNCCL.cpp:632] [Rank {group_rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 "
        f"milliseconds before timing out.\n{head} ProcessGroupNCCL.cpp:1785] [PG ID 5 PG GUID {group} Rank "
        f"{group_rank}] Exception (either an error or timeout) detected by watchdog at work: {seq}, last enqueued "
        f"NCCL work: {seq + 1}, last completed NCCL work: {seq - 1}.\n"
    )


def test_the_label_of_torch_shows_the_rank_in_the_world_and_the_line_that_in_a_group() -> None:
    """https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/836"""
    diagnosis = logs(train=watchdog(29, "83(TENSOR_MODEL_PARALLEL_GROUP)", 1, 40) + watchdog(1, "0(default_pg)", 1, 40))
    assert sorted(c.rank or 0 for item in diagnosis.waiting for c in item.culprits) == [1, 29]


def test_sequence_numbers_of_different_process_groups_are_not_compared() -> None:
    texts = [watchdog(rank, "0(default_pg)", rank, 900) for rank in range(6)]
    texts += [watchdog(rank, "83(TENSOR_MODEL_PARALLEL_GROUP)", rank - 6, 40) for rank in (6, 7)]
    assert not logs(train="".join(texts)).causes


def test_the_rank_behind_in_one_process_group_is_named() -> None:
    texts = [watchdog(rank, "0(default_pg)", rank, 880 if rank == 2 else 900) for rank in range(4)]
    assert named(logs(train="".join(texts))) == [("nccl-watchdog-timeout", "behind in sequence", [2])]


VLLM = "(EngineCore pid=1879) ERROR 03-29 12:59:5{0} [core.py:1099] "


def test_a_traceback_behind_the_head_of_vllm_and_the_colors_of_ray_is_read() -> None:
    text = (
        VLLM.format(3)
        + "Traceback (most recent call last):\n"
        + VLLM.format(3)
        + '  File "/app/core.py", line 1073, in run_engine_core\n'
        + VLLM.format(4)
        + "CustomError: the shard is gone\n"
    )
    (cause,) = logs(serve=text).causes
    assert cause.signature == "program-failed" and cause.evidence[0].pid == "1879"
    colored = "\x1b[36m(RayWorkerWrapper pid=858)\x1b[0m \x1b[31mValueError: bad\x1b[0m shape"
    assert named(logs(serve=colored)) == [("python-exception", "local fault", [None])]


def test_the_head_of_vllm_shows_time_and_process() -> None:
    stamp = read_stamp(VLLM.format(3), 2026)
    assert stamp.pid == "1879" and stamp.time is not None


HEALTHY = {
    "a refused connection that is tried again": "n1:1:2 [0] NCCL INFO Call to connect returned Connection refused, retrying",
    "loopback on one host": "n1:1:2 [0] NCCL INFO Bootstrap : Using [0]lo:127.0.0.1<0>\nn1:3:4 [1] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>",
    "an exception that was handled": "WARNING: retry 1/3 after ValueError: shard busy",
    "an optional module": "INFO: fallback used because ModuleNotFoundError: No module named 'flash_attn'",
    "a setting with the name of an error": "Namespace(on_error='OSError: ignore', oom_killer=False)",
    "a container that was not killed": '"OOMKilled": false,',
    "numbers that are return codes elsewhere": "consumed samples: 207001 | step 107020 | pid 507011, seed 507014, 0.5070141, iteration 507018",
    "progress of a loop that returns": "return of the sampler after step 507018 of 1000000 | 507010",
    "a plugin that is not there": "n1:1:2 [4] NCCL INFO NET/Plugin : Plugin load (libnccl-net.so) returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory",
    "no InfiniBand": "n1:1:2 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]",
    "the warning of torch 2.4 at the end": "[rank1]:[W326 09:37:44.7 ProcessGroupNCCL.cpp:1487] Warning: WARNING: destroy_process_group() was not called before program exit",
    "no peer access": "n1:1:2 [1] NCCL INFO P2P is disabled between connected GPUs 2 and 1. You can repress this message with NCCL_IGNORE_DISABLED_P2P=1.",
    "a late heartbeat of ray": "[2022-02-16 12:45:07,907 W 149 199] node_manager.cc:157: Last heartbeat was sent 6901 ms ago. There might be resource pressure on this node. If heartbeat keeps lagging, this node can be marked as dead mistakenly.",
}  # fmt: skip


@pytest.mark.parametrize("text", HEALTHY.values(), ids=HEALTHY)
def test_what_healthy_runs_print_is_no_failure(text: str) -> None:
    diagnosis = logs(train=text + "\ntraining finished")
    assert not diagnosis.causes and not diagnosis.failed and exit_code(diagnosis) == 0


def test_loopback_between_two_hosts_that_cannot_connect_is_the_cause() -> None:
    line = "{0}:1:2 [0] NCCL INFO Bootstrap : Using [0]lo:127.0.0.1<0>\n{0}:1:2 [0] include/socket.h:360 NCCL WARN Call to connect failed : Connection refused\n"
    diagnosis = logs(rank_0=line.format("n1"), rank_1=line.format("n2"))
    assert [cause.signature for cause in diagnosis.causes] == ["nccl-loopback-iface"]


def test_tasks_that_srun_killed_after_another_task_failed_are_innocent() -> None:
    text = "srun: error: n1: task 3: Out Of Memory\nsrun: error: n1: tasks 0-2: Killed\nsrun: error: n2: tasks 4-7: Killed\n"
    assert [c.rank for cause in logs(slurm=text).causes for c in cause.culprits] == [3]
    cancelled = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-20T12:00:00 ***\nsrun: error: n1: tasks 0-2: Killed\n"
    assert [cause.signature for cause in logs(slurm=cancelled).causes] == ["slurm-cancelled"]


@pytest.mark.parametrize("digits", ["9" * 4000, "9" * 400, "٣٤٥", "1000000000", "²", "0"])
def test_numbers_of_any_length_and_script_crash_nothing(digits: str) -> None:
    for text in (
        "NCCL WARN Duplicate GPU detected : rank {0} and rank {0} both on CUDA device 1000",
        "NCCL WARN Mismatched NCCL version detected : rank {0} version {0} rank {0} version {0}",
        "mpirun noticed that process rank {0} with PID {0} on node n3 exited on signal {0} (Killed).",
        "srun: error: n1: tasks 0-{0}: Killed",
        "Timed out after {0} seconds waiting for clients. {0}/{0} clients joined.",
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -{0}) local_rank: {0} (pid: {0}) of binary",
        "[rank{0}]:[E1 x.cpp:1] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={0}, OpType=A, Timeout(ms)={0}) ran for {0} milliseconds",
    ):  # fmt: skip
        logs(rank_0=text.format(digits), rank_1=text.format(digits))


def test_a_million_killed_tasks_are_decided_in_a_moment() -> None:
    assert not logs(slurm="srun: error: n1: tasks 0-999999: Killed").causes


def test_a_small_number() -> None:
    assert [small_number(word) for word in ("7", "-9", "--9", "", "9" * 30, "x")] == [7, -9, None, None, None, None]


def test_empty_lines_cost_next_to_nothing_and_count() -> None:
    start = time.process_time()
    file_reading = scan("x.log", [b"\n" * (1 << 20)] * 4 + [b"ValueError: bad batch\n"], MATCHER, file=0, year=2026)
    assert [event.line for event in file_reading.events] == [(4 << 20) + 1]
    assert time.process_time() - start < 2.0


def test_bytes_that_are_no_text_end_without_a_cause() -> None:
    noise = bytes(range(256)) * 4000
    assert not diagnose([scan("x.log", [noise], MATCHER, file=0, year=2026)], SIGNATURES).causes


LINK = (
    "n{0}:{1}:1357 [{2}] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 172.36.143.59<44206> with "
    "status=12 opcode=129 len=65536 vendor err 129 (Recv)\n"
)


def test_a_peer_that_one_host_names_again_and_again_is_one_end_of_a_link_and_that_several_name_is_likely_it() -> None:
    """https://github.com/NVIDIA/nccl/issues/1814: each process repeats the line, and all of one host share its network."""
    (one_host,) = logs(n0=LINK.format(0, 984, 4) * 3 + LINK.format(0, 985, 5) * 3).causes
    assert (one_host.rule, one_host.confidence) == ("both ends", "possible")
    (several,) = logs(n0=LINK.format(0, 984, 4), n1=LINK.format(1, 77, 0)).causes
    assert (several.rule, [culprit.host for culprit in several.culprits]) == ("common target", ["172.36.143.59"])


def test_a_corrected_error_of_memory_is_no_fault() -> None:
    """drivers/firmware/efi/cper.c and arch/x86/kernel/cpu/mce/core.c of Linux print these on healthy hosts too."""
    lines = "[1.0] {1}[Hardware Error]: event severity: corrected\n[2.0] mce: [Hardware Error]: Machine check events logged\n"
    assert not logs(kernel=lines).failed
    assert logs(kernel=lines.replace("corrected", "fatal")).failed


def test_a_rank_that_ended_itself_over_the_timeout_of_all_is_not_the_silent_one() -> None:
    """https://github.com/open-mmlab/mmpretrain/issues/1837: of rank 0 there is only the launcher's list of failures."""
    text = (
        "[E ProcessGroupNCCL.cpp:587] [Rank 14] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, "
        "Timeout(ms)=1800000) ran for 1800834 milliseconds before timing out.\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2023-10-25_10:10:10\n  host      : n0\n"
        "  rank      : 0 (local_rank: 0)\n  exitcode  : {0} (pid: 104478)\n  error_file: <N/A>\n"
    )
    assert not logs(train=text.format(-6)).causes
    assert [c.rank for cause in logs(train=text.format(-9)).causes for c in cause.culprits] == [0]


@pytest.mark.parametrize(
    ("line", "signature", "confidence"),
    [
        ("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598", "write", "likely"),
        ("RuntimeError: File /ckpt/a.pt cannot be opened.", "write", "likely"),
        ("RuntimeError: Parent directory /ckpt/run7 does not exist.", "file-not-written", "certain"),
        ("requests.exceptions.HTTPError: 503 Server Error: Busy for url: http://reward-0:8000/score", "http", "likely"),
        ("requests.exceptions.HTTPError: 500 Server Error: x for url: https://huggingface.co/a/b", "http", "likely"),
        ("requests.exceptions.HTTPError: 429 Client Error: x for url: https://huggingface.co/a/b", "http", "likely"),
        ("requests.exceptions.HTTPError: 401 Client Error: x for url: https://hub.example/a", "http", "likely"),
        ("requests.exceptions.HTTPError: 401 Client Error: x for url: https://huggingface.co/a/b", "hub", "certain"),
        ("huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: x)", "hub", "certain"),
    ],
)
def test_what_leaves_open_why_is_no_certain_cause(line: str, signature: str, confidence: str) -> None:
    names = {"write": "file-write-broken-off", "http": "http-request-failed", "hub": "hub-refused"}
    text = f'Traceback (most recent call last):\n  File "/job/train.py", line 7, in main\n    save()\n{line}\n'
    (cause,) = logs(train=text).causes
    assert (cause.signature, cause.confidence) == (names.get(signature, signature), confidence)


ROW = (
    "  time      : 2026-11-27_09:36:25\n  host      : n1\n  rank      : {rank} (local_rank: {rank})\n"
    "  exitcode  : {code} (pid: 90{rank})\n  error_file: <N/A>\n"
)
ALIKE = "Traceback (most recent call last):\n  File \"t.py\", line 2, in <module>\nKeyError: 'labels'\n"


def listed(*codes: int) -> str:
    """torchrun's list of workers with these exit codes, of which the last failed first."""
    rows = [ROW.format(rank=rank, code=code) for rank, code in enumerate(codes)]
    return "Failures:\n" + "".join(rows[:-1]) + "Root Cause (first observed failure):\n[0]:\n" + rows[-1]


@pytest.mark.parametrize(
    ("count", "codes", "ranks"),
    [
        (4, (-15, -15, -15, 1), [0, 1, 2, 3]),
        (2, (1, 1), [0, 1]),
        (3, (-15, -15, -15, 1), []),
        (1, (-15, -15, -15, 1), [3]),
        (2, (-15, 1), []),
        (2, (1,), []),
    ],
)
def test_one_error_that_stands_there_as_often_as_workers_are_listed_is_that_of_each_else_of_none(
    count: int, codes: tuple[int, ...], ranks: list[int]
) -> None:
    (cause,) = logs(train=ALIKE * count + listed(*codes)).causes
    assert sorted(culprit.rank for culprit in cause.culprits if culprit.rank is not None) == ranks


USAGE = "train.py: error: unrecognized arguments: --local-rank=1\n"


def test_what_one_agent_of_torchrun_wrote_is_of_the_host_that_its_list_shows() -> None:
    """A list with several hosts, or with no name of one, shows no host for a line without a rank."""
    one = listed(2, 2, 2)
    (cause,) = logs(train=USAGE + one).causes
    assert [culprit.name for culprit in cause.culprits] == ["host n1"]
    for text in (
        USAGE + one.replace("host      : n1", "host      : n2", 1),
        USAGE + one.replace(": n1", ": localhost"),
    ):
        (cause,) = logs(train=text).causes
        assert [culprit.host for culprit in cause.culprits] == [""]


def test_a_rank_is_on_the_host_that_the_list_of_torchrun_shows_for_it() -> None:
    rows = [ROW.format(rank=rank, code=1).replace(": n1", f": n{rank}") for rank in (0, 1)]
    text = "Failures:\n" + rows[0] + "Root Cause (first observed failure):\n[0]:\n" + rows[1]
    (cause,) = logs(
        train="[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n" + text
    ).causes
    assert [(culprit.rank, culprit.host) for culprit in cause.culprits] == [(1, "n1")]


def test_the_agent_of_torchrun_is_no_process_of_the_job() -> None:
    text = "W1128 14:45:36.575000 17768 torch/distributed/run.py:874] Setting OMP_NUM_THREADS environment variable for each\n"
    (cause,) = logs(train=text + "ValueError: no such shard\n" + listed(-15, 1)).causes
    assert "17768" not in cause.summary


def test_ray_s_label_shows_the_host_of_an_actor() -> None:
    stamp = read_stamp("(RayWorkerWrapper pid=1890, ip=10.41.0.8) [rank8]:[E ProcessGroupGloo.cpp:144] failed", 2026)
    assert (stamp.host, stamp.rank, stamp.pid) == ("10.41.0.8", 8, "1890")


@pytest.mark.parametrize(
    ("engine", "rank"), [("EngineCore_0", 3), ("EngineCore_DP0", 3), ("EngineCore_1", None), ("EngineCore_DP12", None)]
)
def test_a_worker_behind_the_label_of_its_engine_is_the_process_and_its_rank_counts_within_the_copy(
    engine: str, rank: int | None
) -> None:
    """https://github.com/vllm-project/vllm-ascend/issues/1558: of each copy of the model the ranks start at 0."""
    stamp = read_stamp(
        f"({engine} pid=113803) (VllmWorker rank=3 pid=114020) ERROR 07-01 08:38:50 [multiproc_executor.py:492]", 2026
    )
    assert (stamp.pid, stamp.rank) == ("114020", rank)
