"""Each rule on small logs, and each rule's innocent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.read.matcher import Matcher
from doctor.diagnose.read.scan import scan
from doctor.diagnose.signature import load_signatures
from tests.diagnose.reported import exit_code

SIGNATURES = load_signatures()
MATCHER = Matcher(SIGNATURES.values())
TIMED_OUT = "RuntimeError: Timed out waiting 6000ms for recv operation to complete"
CLOSED = (
    "RuntimeError: Connection closed by peer [127.0.0.1]:5000. This is typically caused by a remote worker crashing"
)


def logs(**texts: str) -> Diagnosis:
    """A diagnosis of logs by name; ``rank_1`` is the file rank_1.log."""
    readings = [
        scan(f"{name}.log", [text.encode()], MATCHER, file=number, year=2026)
        for number, (name, text) in enumerate(texts.items())
    ]
    return diagnose(readings, SIGNATURES)


def named(diagnosis: Diagnosis) -> list[tuple[str, str, list[int | None]]]:
    return [(cause.signature, cause.rule, [c.rank for c in cause.culprits]) for cause in diagnosis.causes]


def test_a_ranks_own_fault_outranks_those_that_waited() -> None:
    diagnosis = logs(rank_0=TIMED_OUT, rank_1="OSError: [Errno 28] No space left on device", rank_2=CLOSED)
    assert named(diagnosis) == [("disk-full", "local fault", [1])]
    assert sorted(c.rank or 0 for item in diagnosis.waiting for c in item.culprits) == [0, 2]


def test_an_exception_that_follows_a_communication_error_is_no_fault_of_its_own() -> None:
    diagnosis = logs(rank_0=TIMED_OUT + "\nOSError: cannot save the checkpoint", rank_1=TIMED_OUT, rank_2="step 4")
    assert named(diagnosis) == [("rank-silent", "silence", [2])]


def test_the_silent_rank_among_ranks_that_wait_is_named() -> None:
    assert named(logs(rank_0=CLOSED, rank_1="step 3", rank_2=CLOSED)) == [("rank-silent", "silence", [1])]


def test_when_most_ranks_are_silent_none_is_named() -> None:
    diagnosis = logs(rank_0=CLOSED, rank_1="step 3", rank_2="step 3", rank_3="step 3")
    assert not diagnosis.causes and diagnosis.undecidable and exit_code(diagnosis) == 12


def test_the_rank_that_gave_up_last_is_named() -> None:
    assert named(logs(rank_0=TIMED_OUT, rank_1=TIMED_OUT, rank_2=CLOSED)) == [("gloo-conn-closed", "gave up last", [2])]


def test_a_rank_that_gets_a_message_of_another_size_is_not_accused_for_it() -> None:
    """https://github.com/NVIDIA/nccl/issues/1176"""
    diagnosis = logs(
        rank_0="n1:1:2 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 256 bytes instead of 4\n"
    )
    assert named(diagnosis) == [("nccl-truncated", "named by the library", [])]
    elsewhere = logs(
        rank_0="NCCL WARN Message truncated : received 256 bytes instead of 4\n",
        rank_1="OSError: [Errno 28] No space left on device",
    )
    assert named(elsewhere) == [("disk-full", "local fault", [1])]


def test_a_store_with_processes_of_another_start_accuses_no_rank() -> None:
    line = "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
    line += "store_based_barrier_key:1 (world_size=2, worker_count={}, timeout=0:02:00)\n"
    assert named(logs(train=line.format(4))) == [("torch-store-too-many", "named by the library", [])]
    assert named(logs(train=line.format(2)))[:1] != [("torch-store-too-many", "named by the library", [])]
    assert named(logs(train=line.format("9" * 400))) != [("torch-store-too-many", "named by the library", [])]


def test_a_file_system_that_is_not_ready_is_no_fabric_of_gpus() -> None:
    assert not logs(train="INFO file system not yet initialized, retrying\ntraining finished\n").failed
    (cause,) = logs(train="RuntimeError: Error 802: system not yet initialized\n").causes
    assert cause.signature == "cuda-system-not-ready"


def test_a_rank_reports_an_error_where_a_traceback_without_a_rank_may_be_its_own() -> None:
    text = (
        "RuntimeError: Gloo connectFullMesh failed with [pair.cc:152] timed out connecting\n"
        f"[rank1]: {CLOSED}\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-21_18:48:03\n"
        "  host      : n1\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 77)\n"
    )
    assert not any(cause.signature == "worker-exited" for cause in logs(train=text).causes)


@pytest.mark.parametrize(
    ("number", "signal", "signature"),
    [
        (24, "SIGXCPU", "cpu-time-limited"),
        (25, "SIGXFSZ", "file-size-limited"),
        (11, "SIGSEGV", "torch-signal-segv"),
        (7, "SIGBUS", "torch-signal-bus"),
    ],
)
def test_a_signal_in_torchruns_list_is_that_of_the_rank_listed(number: int, signal: str, signature: str) -> None:
    text = (
        f"E1129 03:15:40.1 6956 api.py:1002] failed (exitcode: -{number}) local_rank: 1 (pid: 77) of binary: python\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-29_03:15:40\n  host      : n1\n"
        f"  rank      : 1 (local_rank: 1)\n  exitcode  : -{number} (pid: 77)  ({signal})\n"
        f"  error_file: <N/A>\n  traceback : Signal {number} ({signal}) received by PID 77\n"
    )
    assert named(logs(train=text)) == [(signature, "named by the launcher", [1])]


def test_all_ranks_timed_out_alike_names_nobody() -> None:
    diagnosis = logs(rank_0=TIMED_OUT, rank_1=TIMED_OUT, rank_2=TIMED_OUT)
    assert not diagnosis.causes and diagnosis.undecidable


WATCHDOG = (
    "[rank{0}]:[E1120 12:00:0{0}.5 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut={3}, Timeout(ms)=600000) ran for 600029 milliseconds"
)


def test_the_rank_behind_in_sequence_is_named() -> None:
    texts = {f"rank_{rank}": WATCHDOG.format(rank, 40 if rank == 2 else 41, "ALLREDUCE", 8) for rank in range(4)}
    assert named(logs(**texts)) == [("nccl-watchdog-timeout", "behind in sequence", [2])]


def test_the_rank_in_another_collective_is_named() -> None:
    texts = {f"rank_{r}": WATCHDOG.format(r, 41, "BROADCAST" if r == 1 else "ALLREDUCE", 8) for r in range(4)}
    assert named(logs(**texts)) == [("nccl-watchdog-timeout", "minority", [1])]


def test_a_majority_behind_is_not_named() -> None:
    texts = {f"rank_{rank}": WATCHDOG.format(rank, 41 if rank == 2 else 40, "ALLREDUCE", 8) for rank in range(4)}
    assert not logs(**texts).causes


def test_two_ranks_in_different_collectives_are_undecidable() -> None:
    diagnosis = logs(rank_0=WATCHDOG.format(0, 9, "ALLREDUCE", 8), rank_1=WATCHDOG.format(1, 9, "BROADCAST", 8))
    assert not diagnosis.causes and diagnosis.undecidable and "no majority" in diagnosis.undecidable.reason


def test_a_port_in_use_beside_a_network_port_that_is_down_is_the_port_down() -> None:
    text = (
        "[ERROR] HCCL(1,python):2026-11-20-12:00:00.000.001 [a.cc:1]"
        "ra rdma init failed, devid[3] ip[1.2.3.4] return[19]\n"
        "[ERROR] HCCL(1,python):2026-11-20-12:00:00.000.900 [a.cc:2]socket type[0], listen on ip[1.2.3.4] "
        "and specific port[16666] fail\n"
    )
    assert [cause.signature for cause in logs(rank_3=text).causes] == ["ej0002-nic-down"]


def test_noise_at_error_level_is_no_failure() -> None:
    text = (
        "[ERROR] ASCENDCL(1,python):2026-11-20-12:00:00.001 "
        "acltdtSendTensor: [Push][Data]failed to send, tdt result = -1"
    )
    diagnosis = logs(rank_0=text)
    assert not diagnosis.failed and exit_code(diagnosis) == 12


def test_a_run_that_ended_well_is_exit_0_and_a_log_that_just_ends_is_not() -> None:
    assert exit_code(logs(rank_0="step 1\ntraining finished")) == 0
    assert exit_code(logs(rank_0="step 1\nstep 2")) == 12
    assert exit_code(logs(rank_0="")) == 78


def test_what_stands_before_a_restart_belongs_to_an_earlier_attempt() -> None:
    text = (
        "[rank0]: ValueError: bad batch\n"
        "E1120 12:00:00.1 77 torch/distributed/elastic/agent/server/api.py:1] "
        "2/3 attempts left; will restart worker group\n"
        "training finished\n"
    )
    assert exit_code(logs(train=text)) == 0


def test_a_deadlock_of_three_names_nobody() -> None:
    line = (
        "[ERROR] HCCL(7{0},python3):2024-04-08-02:55:04.900.605 [a.cc:4]Task run failed, base information is "
        "streamID:[3], taskID[7], taskType[Notify Wait], tag[AllReduce_g].\n"
        "[ERROR] HCCL(7{0},python3):2024-04-08-02:55:04.900.606 [a.cc:5]Task run failed, para information is "
        "notify id:[0x1], stage:[ffffffff], remote rank:[{1}].\n"
    )
    diagnosis = logs(**{f"rank_{rank}": line.format(rank, (rank + 1) % 3) for rank in range(3)})
    assert not diagnosis.causes and diagnosis.undecidable and "deadlock" in diagnosis.undecidable.reason


SLURM = "srun: error: n2: task 5: Out Of Memory\nslurmstepd: error: Detected 1 oom_kill event in StepId=7.0"


def test_slurm_names_the_task_that_ran_out_of_memory() -> None:
    diagnosis = logs(slurm=SLURM, rank_0=CLOSED, rank_1=CLOSED)
    assert 5 in [rank for _, _, ranks in named(diagnosis) for rank in ranks]


def test_a_job_that_a_person_cancelled_accuses_no_rank() -> None:
    text = "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-11-20T12:00:00 ***"
    assert [cause.signature for cause in logs(slurm=text).causes] == ["slurm-cancelled"]


def test_mpirun_names_the_rank_that_a_signal_ended() -> None:
    text = "mpirun noticed that process rank 2 with PID 99 on node n3 exited on signal 9 (Killed)."
    (cause,) = logs(mpirun=text, rank_0=CLOSED).causes
    assert [(culprit.rank, culprit.host) for culprit in cause.culprits] == [(2, "n3")]


def test_files_of_several_hosts_with_the_same_ranks_have_ranks_within_their_host() -> None:
    names = {
        "node0/rank_0": CLOSED,
        "node0/rank_1": CLOSED,
        "node1/rank_0": "ValueError: bad batch",
        "node1/rank_1": CLOSED,
    }
    (cause,) = logs(**names).causes
    assert [(culprit.rank, culprit.host) for culprit in cause.culprits] == [(None, "node1")]
    labelled = {name: f"[rank{number}]: {text}" for number, (name, text) in enumerate(names.items())}
    assert named(logs(**labelled)) == [("python-exception", "local fault", [2])]


BLOCK = "\n".join(
    f"[{rank}]:\n  time      : 2026-11-20_12:00:00\n  host      : n1\n  rank      : {rank} (local_rank: {rank})\n"
    f"  exitcode  : {'1' if rank else '-15'} (pid: 7{rank})\n  error_file: <N/A>"
    for rank in range(4)
)


def test_a_rank_that_only_the_launcher_reports_is_silent_and_the_last_to_report_is_not_blamed() -> None:
    """Rank 0 hangs; torchrun ends it with SIGTERM after the others failed, and it writes nothing."""
    others = [f"[rank1]: {TIMED_OUT}", f"[rank2]: {TIMED_OUT}", f"[rank3]: {CLOSED}"]
    diagnosis = logs(train="\n".join([*others, BLOCK]))
    assert named(diagnosis) == [("rank-silent", "silence", [0])]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)])
def test_processes_of_two_hosts_with_one_pid_are_two(order: Sequence[int]) -> None:
    """As in containers, which number their processes alike. Seen: both were rank 8, on the host of the other."""
    block = BLOCK.partition("\n[1]")[0].replace("-15", "1")
    texts = {
        "n1/plog/plog-70_20261120115900.log": f"2026-11-20 11:59:59 {TIMED_OUT}\n",
        "n2/plog/plog-70_20261120115900.log": "2026-11-20 11:59:00 OSError: [Errno 28] No space left on device\n",
        "n1/torchrun.log": block,
        "n2/torchrun.log": block.replace(": n1", ": n2").replace(": 0 (local", ": 8 (local"),
    }
    items = [list(texts.items())[place] for place in order]
    readings = [scan(name, [text.encode()], MATCHER, file=i, year=2026) for i, (name, text) in enumerate(items)]
    diagnosis = diagnose(readings, SIGNATURES)
    assert [(c.rank, c.host) for cause in diagnosis.causes for c in cause.culprits] == [(8, "n2")]
    assert [(c.rank, c.host) for item in diagnosis.waiting for c in item.culprits] == [(0, "n1")]


def test_of_two_silent_ranks_either_may_be_the_culprit_and_of_three_none_is_named() -> None:
    ended = BLOCK.replace("1 (pid: 72)", "-15 (pid: 72)")
    diagnosis = logs(train="\n".join([f"[rank1]: {TIMED_OUT}", f"[rank3]: {CLOSED}", ended]))
    assert named(diagnosis) == [("rank-silent", "one of two", [0, 2])] and diagnosis.causes[0].confidence == "possible"
    three = logs(train="\n".join([f"[rank1]: {TIMED_OUT}", ended.replace("1 (pid: 73)", "-15 (pid: 73)")]))
    assert not three.causes and three.undecidable


def test_a_rank_that_aborts_itself_over_anothers_tensor_is_innocent() -> None:
    size = "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 2048 vs 1024. Received data size"
    ended = {
        "spawn": "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGABRT",
        "mpirun": "mpirun noticed that process rank 0 with PID 7 on node n1 exited on signal 6 (Aborted).",
        "srun": "srun: error: n0: task 0: Aborted",
    }
    for line in ended.values():
        diagnosis = logs(train=f"{size}\n{line}", rank_2=CLOSED)
        assert not diagnosis.causes and diagnosis.undecidable and "2048 and 1024" in diagnosis.undecidable.reason


def test_the_rank_that_sigterm_ended_first_is_named_and_not_those_that_the_launcher_ended() -> None:
    first = "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal SIGTERM"
    assert named(logs(train=first)) == [("rank-terminated", "named by the launcher", [2])]
    assert not logs(train=BLOCK.replace("exitcode  : 1", "exitcode  : -15")).causes


def test_a_rank_that_is_absent_from_torchruns_list_between_two_others_ended_early() -> None:
    rows = BLOCK.split("\n[")
    rest = "\n[".join([rows[0], rows[1], rows[3]])
    diagnosis = logs(train=f"[rank1]: {CLOSED}\n[rank3]: {CLOSED}\n{rest}")
    assert named(diagnosis) == [("rank-silent", "silence", [2])]


def test_the_rank_that_cannot_connect_while_the_others_wait_for_it_is_named() -> None:
    waits = "torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 2/3 clients joined."
    lost = (
        "DistNetworkError: The client socket has timed out after 6000ms while trying to connect to (10.0.0.9, 29500)."
    )
    stuck = "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//cpu//0/0"
    assert named(logs(rank_0=waits, rank_1=lost, rank_2=stuck)) == [("torch-client-socket-timeout", "not joined", [1])]
    assert not logs(rank_0=lost, rank_1=lost, rank_2=lost).causes


def test_an_exception_after_which_the_run_ended_well_is_no_cause_unless_a_launcher_reports_a_failure() -> None:
    caught = "Traceback (most recent call last):\n  File 'a', line 1\nOSError: part 7\n"
    assert not logs(rank_0=caught + "training finished\n").failed
    assert logs(rank_0="training finished\n" + caught).causes
    assert logs(rank_0=caught + "step 8\n").causes
    failed = caught + "training finished\nRoot Cause (first observed failure):\n" + BLOCK
    assert logs(train=failed).failed


def test_an_exception_of_unknown_kind_beside_a_wait_counts_only_where_it_is_known_to_have_come_first() -> None:
    raised = "ValueError: bad batch"
    for own, ranks in (
        ({"rank_1": f"[rank1]: {raised}\n[rank1]: {TIMED_OUT}\n"}, [1, 2]),  # what it held up waited for it
        ({"rank_1": f"[rank1]: {TIMED_OUT}\n[rank1]: {raised}\n"}, [2]),  # the error of the wait led to it
        ({"rank_1": f"[rank1]: {TIMED_OUT}\n", "older": f"[rank1]: {raised}\n"}, [2]),  # nothing shows which was first
    ):
        (cause,) = logs(rank_0=f"[rank0]: {TIMED_OUT}\n", **own, rank_2=f"[rank2]: {raised}\n").causes
        assert (cause.signature, [culprit.rank for culprit in cause.culprits]) == ("python-exception", ranks)


def differs(rank: int, other: int) -> str:
    """What DDP of torch 2.13 prints on a rank: it compares itself with all ranks in turn."""
    counts = {rank: 4 if rank == 1 else 2, other: 4 if other == 1 else 2}
    return (
        f"[rank{rank}]: RuntimeError: DDP expects same model across all ranks, but Rank {rank} has {counts[rank]} "
        f"params, while rank {other} has inconsistent {counts[other]} params.\n"
    )


class TestOneModelThatDiffers:
    def test_the_rank_of_all_pairs_is_named_where_it_differs_from_most(self) -> None:
        diagnosis = logs(job=differs(0, 1) + differs(1, 0) + differs(2, 1) + differs(3, 1))
        assert named(diagnosis) == [("torch-models-differ", "named by the library", [1])]
        assert diagnosis.causes[0].confidence == "likely"

    def test_two_ranks_are_both_named(self) -> None:
        assert named(logs(job=differs(0, 1) + differs(1, 0)))[0][2] == [0, 1]

    def test_ranks_that_differ_from_rank_0_alone_may_be_the_fewer_ones(self) -> None:
        others = "".join(f"[rank{rank}]: epoch 1\n" + f"[rank{rank}]: KeyError: 'a'\n" for rank in range(3, 8))
        diagnosis = logs(job=differs(1, 0) + differs(2, 0) + others)
        assert all(set(ranks) >= {1, 2} for name, _, ranks in named(diagnosis) if name == "torch-models-differ")

    def test_of_ranks_on_one_gpu_none_is_the_odd_one(self) -> None:
        text = "Duplicate GPU detected : rank {} and rank {} both on CUDA device 1000\n"
        diagnosis = logs(job=text.format(0, 1) + text.format(0, 2))
        assert named(diagnosis)[0][2] == [0, 1, 2]


class TestAShellThatCannotStartACommand:
    LINE = "run.sh: line 3: deepspeedd: command not found\n"

    def test_it_is_the_cause_where_nothing_else_is(self) -> None:
        assert named(logs(job=self.LINE)) == [("shell-command-missing", "local fault", [None])]

    def test_any_other_fault_says_more(self) -> None:
        full = "[rank2]: OSError: [Errno 28] No space left on device: '/data/x'\n"
        assert named(logs(job=self.LINE + full)) == [("disk-full", "local fault", [2])]

    def test_a_run_that_ended_well_has_no_cause(self) -> None:
        assert logs(job=self.LINE + "Training completed. Do not forget to share your model\n").causes == ()

    def test_a_tool_that_only_looks_is_no_cause(self) -> None:
        assert logs(job="run.sh: line 1: nvidia-smi: command not found\n").causes == ()


def test_an_exception_without_a_message_does_not_take_the_next_line_for_one() -> None:
    """torchrun with torch 2.13 and datasets 4: a pattern of files that matches none; lines of a real run."""
    one = (
        "[rank{0}]: Traceback (most recent call last):\n"
        '[rank{0}]:   File "/home/user/train.py", line 4, in <module>\n'
        '[rank{0}]:     d=datasets.load_dataset("json",data_files="part-*.jsonl",split="train")\n'
        '[rank{0}]:   File "/opt/lib/python3.11/site-packages/datasets/load.py", line 1687, in load_dataset\n'
        "[rank{0}]: StopIteration\n"
    )
    end = (
        "W1127 13:24:36.409000 30962 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 30984 "
        "closing signal SIGTERM\n"
    )
    (cause,) = logs(job=one.format(0) + one.format(1) + end).causes
    assert [culprit.rank for culprit in cause.culprits] == [0, 1] and "Traceback" not in cause.summary


def test_a_crash_in_ddp_over_gloo_under_detail_names_the_variable_and_any_other_crash_does_not() -> None:
    crash = 'Fatal Python error: Segmentation fault\n\n  File "/x/torch/nn/parallel/distributed.py", line 1473 in {0}\n'
    assert [cause.signature for cause in logs(rank_0=crash.format("_ddp_init_helper")).causes] == ["ddp-gloo-detail"]
    assert [cause.signature for cause in logs(rank_0=crash.format("forward")).causes] == ["torch-signal-segv"]


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("OpType=BROADCAST, NumelIn=24084544, NumelOut=24084544", "rank 2 has a count of 24084544"),
        ("OpType=ALLREDUCE, NumelIn=64, NumelOut=64", "rank 2 runs ALLREDUCE"),
        ("OpType=BROADCAST, NumelIn=64, NumelOut=64", ""),
    ],
)
def test_different_calls_of_one_number_decide_before_a_rank_that_is_silent(other: str, reason: str) -> None:
    """Source: modelscope/ms-swift issue 10183, whose rank 1 is not in the excerpt; the second one is made from it."""
    text = ""
    for rank, call in ((3, "OpType=BROADCAST, NumelIn=64, NumelOut=64"), (2, other)):
        text += (
            f"[rank{rank}]:[E918 19:29:24.436955737 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught collective "
            f"operation timeout: WorkNCCL(SeqNum=7219, {call}, Timeout(ms)=3000000) ran for 3000097 milliseconds "
            f"before timing out.\n[rank{rank}]:[E918 19:29:24.440481846 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID "
            f"0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: 7219 PG status: last "
            "enqueued work: 7220, last completed work: 7218\n"
        )
    diagnosis = logs(all=text)
    differs = diagnosis.undecidable is not None and "two ends differ" in diagnosis.undecidable.reason
    assert differs == bool(reason)
    assert not reason or (not diagnosis.causes and reason in str(diagnosis.undecidable))
