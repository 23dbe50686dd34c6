"""What drivers, monitors and schedulers say of processes that they started, and logs in JSON and UTF-16."""

# ruff: noqa: E501

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.fetch.ask_hosts import LogRequest
from doctor.diagnose.read.quoted_exceptions import raised
from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.read.stamps import read_stamp
from doctor.diagnose.render.document import SignatureCatalog, document
from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import SIGNATURES, logs

ACTOR = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: W\n"
    "\tactor_id: f20da4dcf474d8bb05e952bb03000000\n\tpid: {pid}\n\tnamespace: a\n\tip: {ip}\n"
    "The actor is dead because its worker process has died. Worker exit type: {kind} Worker exit detail: -\n"
)
POD = "Name:         trainer-{0}\nNamespace:    ml\nNode:         n{0}/10.0.0.{0}\nLabels:       a=b\nLast State:   Terminated\n"


def places(diagnosis: Diagnosis) -> list[tuple[str, str, list[tuple[int | None, str, str]]]]:
    return [(c.signature, c.confidence, [(p.rank, p.host, p.label) for p in c.culprits]) for c in diagnosis.causes]


TASK = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 34, in <module>\n    ray.get([task.remote(i) for i in range(3)])\n'
    '  File "/x/lib/python3.11/site-packages/ray/_private/worker.py", line 1055, in get_objects\n    raise value\n'
    "ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task. Check python-core-worker-*.log files for more information.\n"
)
RAYLET = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, check the logs for the dead worker. "
    "Lease ID: 02 Worker ID: 99 Node ID: f6 Worker IP address: 10.0.0.9 Worker port: 32981 Worker PID: 159 Worker exit type: SYSTEM_ERROR Worker exit detail: {0}\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            RAYLET.format("Worker unexpectedly exits with a connection error code 2. End of file.") + TASK,
            "ray-worker-died",
        ),
        (RAYLET.format("Worker exits unexpectedly. Worker exits with an exit code 4.") + TASK, "ray-worker-exited"),
        (ACTOR.format(pid=159, ip="10.0.0.9", kind="INTENDED_USER_EXIT"), "ray-worker-exited"),
    ],
    ids=["killed", "sys.exit", "exit_actor"],
)
def test_a_worker_that_ends_is_named_and_no_line_of_the_driver(text: str, found: str) -> None:
    """Seen with ray 2.60: os._exit in a task, sys.exit(4) and exit_actor in an actor."""
    assert places(logs(main=text)) == [(found, "likely", [(None, "10.0.0.9", "pid 159")])]


def test_the_actor_that_died_is_named_with_its_pid_and_host() -> None:
    diagnosis = logs(main=ACTOR.format(pid=5226, ip="10.7.34.138", kind="SYSTEM_ERROR"))
    assert places(diagnosis) == [("ray-worker-died", "likely", [(None, "10.7.34.138", "pid 5226")])]
    (cause,) = document(diagnosis, SignatureCatalog(SIGNATURES, {}), 10).causes
    assert (cause.processes, cause.hosts) == (("pid 5226",), ("10.7.34.138",))


def test_each_of_two_actors_keeps_its_own_place() -> None:
    text = ACTOR.format(pid=1, ip="10.0.0.1", kind="SYSTEM_ERROR") + ACTOR.format(
        pid=2, ip="10.0.0.2", kind="SYSTEM_ERROR"
    )
    ((_, confidence, culprits),) = places(logs(main=text))
    assert confidence == "possible" and sorted(culprits) == [(None, "10.0.0.1", "pid 1"), (None, "10.0.0.2", "pid 2")]


def test_an_actor_that_ended_for_memory_is_a_matter_of_its_host() -> None:
    diagnosis = logs(main=ACTOR.format(pid=5990, ip="172.28.1.11", kind="NODE_OUT_OF_MEMORY"))
    assert places(diagnosis) == [("ray-out-of-memory", "certain", [(None, "172.28.1.11", "pid 5990")])]


def test_the_error_of_the_worker_itself_says_more_than_that_it_died() -> None:
    text = "(WorkerDict pid=5226) ValueError: the shard is empty\n" + ACTOR.format(
        pid=5226, ip="10.0.0.1", kind="SYSTEM_ERROR"
    )
    assert "ray-worker-died" not in {cause.signature for cause in logs(main=text).causes}


def test_the_pod_and_node_of_a_description_are_named() -> None:
    described = "".join(
        POD.format(n) + f"  Reason:       {why}\n\n" for n, why in ((1, "Completed"), (2, "OOMKilled"), (3, "Error"))
    )
    assert places(logs(describe=described)) == [("kubernetes-oom-killed", "certain", [(None, "n2", "pod trainer-2")])]
    table = "NAME        READY   STATUS    RESTARTS   AGE\ntrainer-0   1/1     Running   0   2d\ntrainer-1   0/1     Evicted   0   2d\n"
    assert places(logs(pods=table)) == [("kubernetes-evicted", "certain", [(None, "", "pod trainer-1")])]
    # Of its own limit, and not of its node; the table beside it says less.
    described = "Name:             eph\nNode:             node2/\nReason:           Evicted\n"
    described += "Message:          Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. \n"
    expected = [("kubernetes-storage-limit", "certain", [(None, "node2", "pod eph")])]
    assert places(logs(describe=described)) == places(logs(describe=described, pods=table)) == expected


@pytest.mark.parametrize(
    "text",
    [
        POD.format(1) + "  Reason:       Completed\n",
        "trainer-0   1/1     Running   0   2d\n",
        "2m  Normal  Killing  pod/trainer-0  Stopping container trainer\n",
        '"reason": "Completed", "OOMKilled": false\n',
        "0 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: a, IP: 10.0.0.1)\n",
        "pid: 17\nip: 10.0.0.1\n",
        "The first task at the barrier: /job:jax_worker/replica:0/task:0.\n",
    ],
)
def test_what_clusters_say_of_healthy_jobs_is_no_failure(text: str) -> None:
    assert exit_code(logs(events=text)) in (0, 12) and not logs(events=text).causes


def test_the_processes_that_a_barrier_of_jax_misses_are_named() -> None:
    names = "".join(f"/job:jax_worker/replica:0/task:{rank}\n" for rank in (3, 6))
    text = (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: a.0. This usually happens because\n"
        "# of tasks that reached the barrier: 6/8.\n"
        f"The first task at the barrier: /job:jax_worker/replica:0/task:1. Some timed out task names:\n{names}\n"
    )
    assert places(logs(process_0=text)) == [("jax-barrier-absent", "likely", [(3, "", ""), (6, "", "")])]


def test_the_process_without_heartbeats_is_named_and_not_those_that_end_for_it() -> None:
    lost = "E coordination_service.cc:1170] Task /job:jax_worker/replica:0/task:5 heartbeat timeout. This indicates\n"
    follows = "F0929 17:42:48.594200 1044529 client.h:77] Terminating process because the JAX distributed service detected fatal errors.\n"
    diagnosis = logs(process_0=lost + follows, process_1=follows, process_2=follows)
    assert places(diagnosis) == [("jax-task-lost", "likely", [(5, "", "")])]


@pytest.mark.parametrize(
    ("head", "rank"),
    [
        ("(VllmWorker rank=3 pid=9) ", 3),
        ("(Worker_TP2 pid=9) ", 2),
        ("(Worker_TP1_EP1 pid=9) ", 1),
        ("(Worker_PP1_TP2 pid=9) ", None),
        ("(EngineCore_DP1 pid=9) ", None),
        ("[2025-03-09 00:57:15 TP4] ", 4),
        ("[2025-06-26 07:25:31 DP1 TP5] ", 5),
        ("sglang-1  | [2025-10-29 11:25:58 TP3] ", 3),
        ("[2025-03-09 00:57:15] ", None),
    ],
)
def test_the_rank_of_a_worker_of_vllm_and_sglang(head: str, rank: int | None) -> None:
    assert read_stamp(f"{head}ERROR something", 2026).rank == rank


RECORD = {
    "rank": 2,
    "host": "n7",
    "exc": 'Traceback (most recent call last):\n  File "t.py", line 3\nOSError: [Errno 28] No space left on device',
}


def test_a_traceback_within_json_is_the_error_of_the_rank_in_the_same_line() -> None:
    diagnosis = logs(train=json.dumps({"step": 1, "rank": 0}) + "\n" + json.dumps(RECORD) + "\n")
    assert places(diagnosis) == [("disk-full", "certain", [(2, "n7", "")])]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "Traceback (most recent call last)',
        "{" + '\\"' * 3000,
        '{"exc": "Traceback (most recent call last):\\n  File"}',
    ],
)
def test_json_that_is_cut_or_hostile_raises_nothing(text: str) -> None:
    assert raised(text) == ""
    logs(train=text + "\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_log_in_utf_16_is_read(tmp_path: Path, encoding: str) -> None:
    text = "step 1\r\nRuntimeError: CUDA error: device-side assert triggered\r\n训练\r\n" * 30_000
    head = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / "a.log").write_bytes((head + text).encode(encoding))
    (reading,) = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    assert {event.signature for event in reading.events} >= {"cuda-assert"}
    assert reading.summary.lines == 90_000 and not reading.summary.incomplete


def test_requests_to_hosts_carry_what_clusters_print() -> None:
    from doctor.diagnose.fetch.ask_hosts import _fixed_fields

    literals = _fixed_fields(LogRequest(places=()), SIGNATURES.values())["literals"]
    assert isinstance(literals, list) and any("heartbeat timeout" in literal for literal in literals)


LOCAL = "E1120 12:01:00.123000 4711 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 4720) of binary: python\n"


@pytest.mark.parametrize(
    ("head", "ranks"),
    [
        ("", [1]),
        ("  min_nodes        : 1\n  max_nodes        : 1\n", [1]),
        ("  min_nodes        : 2\n  max_nodes        : 2\n", [None]),
        ("[rank9]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1\n", [None]),
    ],
)
def test_a_local_rank_is_the_rank_where_the_logs_show_one_host(head: str, ranks: list[int | None]) -> None:
    causes = [cause for cause in logs(run=head + LOCAL).causes if cause.signature == "torchrun-sigkill"]
    assert [culprit.rank for cause in causes for culprit in cause.culprits] == ranks
    assert all(cause.confidence == "likely" for cause in causes if cause.culprits[0].rank is not None)


def test_several_agents_leave_the_rank_open() -> None:
    diagnosis = logs(n0=LOCAL, n1=LOCAL)
    assert {culprit.rank for cause in diagnosis.causes for culprit in cause.culprits} == {None}


def test_ranks_that_the_launcher_ended_itself_are_not_named() -> None:
    text = "Process 3 exit with status code 1.\nProcess 0 exit with status code 143.\nProcess 1 exit with status code 143.\n"
    assert places(logs(run=text)) == [("launched-rank-exited", "likely", [(3, "", "")])]


@pytest.mark.parametrize(
    ("line", "signature", "culprits"),
    [
        ("ERROR:composer.cli.launcher:Rank 0 crashed with exit code -11.", "torch-signal-segv", [(0, "", "")]),
        ("ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7.", "torch-signal-bus", [(2, "", "")]),
        ("Process 1 exit with status code 137.", "torchrun-sigkill", [(1, "", "")]),
        (
            "Container rank 0 status failed cmd ['train.py'] code -6 log log/0.log",
            "launched-rank-exited",
            [(0, "", "")],
        ),
        ("ERROR:composer.cli.launcher:Rank 1 crashed with exit code 1.", "launched-rank-exited", [(1, "", "")]),
        (
            "[ERROR] [launch.py:434:sigkill_handler] ['python', '--local_rank=0'] exits with return code = -9",
            "torchrun-sigkill",
            [],
        ),
    ],
)
def test_the_exit_code_of_a_launcher_tells_the_signal(
    line: str, signature: str, culprits: list[tuple[int | None, str, str]]
) -> None:
    """The local rank in deepspeed's line is that of the worker it looked at last (mosaicml/diffusion #140 and others)."""
    assert places(logs(run=f"{line}\n")) == [(signature, "likely", culprits)]


@pytest.mark.parametrize("line", ["Rank 1 crashed with exit code -15.", "Rank 1 crashed with exit code 0."])
def test_a_rank_that_ended_well_or_that_the_launcher_ended_is_not_named(line: str) -> None:
    assert places(logs(run=f"ERROR:composer.cli.launcher:{line}\n")) == []


DIED = "The actor died because its node has died. Node Id: b157\n"


@pytest.mark.parametrize(
    ("reason", "signature"),
    [
        ("was preempted: simulating node drain", "ray-node-preempted"),
        ("was terminated expectedly: received SIGTERM", "ray-node-preempted"),
        ("was terminated unexpectedly: health check failed due to missing too many heartbeats", "ray-node-dead"),
    ],
)
def test_a_preempted_node_is_told_from_one_that_died(reason: str, signature: str) -> None:
    """Wording of ray-project/ray #63807 and of its gcs_actor_manager.cc."""
    head = "The actor died unexpectedly before finishing this task.\n\tpid: 79326\n\tip: 10.0.0.7\n"
    found = places(logs(run=f"{head}{DIED}\tthe actor's node {reason}\n"))
    assert found == [(signature, "likely", [(None, "10.0.0.7", "pid 79326")])]


PREEMPTED = (
    "{0}The actor died unexpectedly before finishing this task.\n\tpid: 7\n\tip: 10.0.0.7\n"
    "{0}The actor died because its node has died. Node Id: b157\n{0}\tthe actor's node was preempted: spot\n"
)
OTHER_HOST = (
    "{0}Task failed because the node it was running on is dead or unavailable. Node IP: 10.0.0.9, node ID: c1\n"
)
OTHER_WORKER = (
    "{0}A worker died or was killed while executing a task by an unexpected system error."
    " Worker IP address: 10.0.0.9 Worker port: 1 Worker PID: 9 Worker exit type: SYSTEM_ERROR\n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            PREEMPTED.format("") + OTHER_HOST.format(""),
            [("ray-node-preempted", "possible"), ("ray-node-dead", "possible")],
        ),
        (PREEMPTED.format("") + OTHER_WORKER.format(""), [("ray-node-preempted", "likely")]),
        (
            PREEMPTED.format("2026-01-10 10:00:00,1 ") + OTHER_HOST.format("2026-01-10 10:01:00,1 "),
            [("ray-node-preempted", "likely")],
        ),
        (
            OTHER_HOST.format("2026-01-10 10:00:00,1 ") + PREEMPTED.format("2026-01-10 10:01:00,1 "),
            [("ray-node-dead", "likely")],
        ),
    ],
)
def test_of_two_hosts_that_ended_the_first_is_the_cause_and_without_an_order_neither_is(
    text: str, found: list[tuple[str, str]]
) -> None:
    causes = places(logs(run=text))
    assert [(signature, confidence) for signature, confidence, _ in causes] == found
    if found[0][1] == "likely":
        ((_, _, ((_, host, _),)),) = causes
        assert host == ("10.0.0.9" if found[0][0] == "ray-node-dead" else "10.0.0.7")


@pytest.mark.parametrize(
    "line",
    [
        "trainer-1 exited with code 137",
        "ExitStatus: 137",
        "Training process finished. Exit code: 137",
        "worker 3 terminated with signal SIGKILL",
    ],
)
def test_the_exit_code_of_a_process_that_no_line_names_is_not_that_of_the_log(line: str) -> None:
    """horovod/horovod #2484 and others: the launcher's own log told of a worker."""
    assert places(logs(run=f"{line}\n")) == [("torchrun-sigkill", "likely", [])]


@pytest.mark.parametrize(
    "line",
    [
        "[video] ffmpeg exit code 139 for clip 17; clip skipped",
        "[video] ffmpeg exit code: 135, skipped",
        "INFO tokenizer helper exited with code 137, restarted",
    ],
)
def test_the_exit_code_of_a_helper_is_no_cause_where_the_job_goes_on(line: str) -> None:
    assert places(logs(run=f"epoch 1 loss 0.5\n{line}\nepoch 2 loss 0.4\nepoch 3 loss 0.3\n")) == []
    if "137" not in line:
        assert places(logs(run=f"{line}\n")) == []


def test_a_launcher_names_the_host_or_the_rank_of_its_exit_code() -> None:
    head = "RuntimeError: Horovod detected that one or more processes exited with non-zero status\n"
    found = places(logs(run=f"{head}Process name: w-1[0]\nExit code: 137\n"))
    assert found == [("torchrun-sigkill", "likely", [(None, "w-1", "")])]
    assert places(logs(run=f"{head}Process name: 3\nExit code: 139\n")) == [
        ("torch-signal-segv", "likely", [(3, "", "")])
    ]


def test_lines_that_kubernetes_stamps_are_read_as_those_of_the_program() -> None:
    """The format of the kubelet's files: kubernetes/kubernetes pkg/kubelet/kuberuntime/logs."""
    lines = [
        "[2025-07-25 07:53:08 TP2] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/w/scheduler.py", line 772, in event_loop_normal',
        "    result = self.run_batch(batch)",
        "KeyError: 'batch'",
    ]
    for head in ("2025-07-25T07:53:08.217485080+08:00 stdout F ", "2025-07-25T07:53:08.217485080Z "):
        diagnosis = logs(run="".join(f"{head}{line}\n" for line in lines))
        assert places(diagnosis) == [("exception-of-absence", "certain", [(2, "", "")])]
        assert diagnosis.causes[0].evidence[0].time is not None


def test_hosts_in_the_heads_of_ucx_and_nccl() -> None:
    assert (
        read_stamp("[1467152031.902965] [softiron-2:2132 :0] rc_verbs_iface.c:47   UCX  ERROR failed", 2026).host
        == "softiron-2"
    )
    assert read_stamp("8h200-2:14630:14692 [0] process:1723 NCCL WARN failed", 2026).host == "8h200-2"
    assert read_stamp("12:30:45:17 [0] NCCL INFO of no host", 2026).host == ""


def test_of_two_lists_of_failures_the_earlier_names_who_failed_first() -> None:
    row = "Root Cause (first observed failure):\n[0]:\n  time      : 2023-06-03_22:{0}\n  host      : n1\n  rank      : {1} (local_rank: 0)\n  exitcode  : 1 (pid: {1}9)\n"
    undecidable = logs(run=row.format("45:52", 0) + "=" * 60 + "\n" + row.format("45:01", 4)).undecidable
    assert undecidable and "rank 4 (host n1) fail first" in undecidable.reason


@pytest.mark.parametrize(
    ("line", "signature"),
    [
        ("*** SIGSEGV received at time=1656453935 on cpu 0 ***", "torch-signal-segv"),
        (
            "W0529 18:27:06.380875 40650 init.cc:217] *** SIGSEGV (@0x0) received by PID 40650 (TID 0x7f2c) from PID 0; stack trace: ***",
            "torch-signal-segv",
        ),
        ("*** SIGBUS received at time=1656453935 on cpu 0 ***", "torch-signal-bus"),
    ],
)
def test_what_handlers_of_crashes_print_is_of_the_process_itself(line: str, signature: str) -> None:
    assert [row[0] for row in places(logs(run=f"{line}\n"))] == [signature]


@pytest.mark.parametrize(
    ("line", "signatures"),
    [
        (
            "n1:27:27 [0] misc/socket.cc:379 NCCL WARN Call to bind failed : Cannot assign requested address",
            ["bind-address-not-own"],
        ),
        (
            "n1:27:27 [0] misc/socket.cc:379 NCCL WARN Call to bind failed : Address already in use",
            ["nccl-ports-exhausted"],
        ),
        (
            "[W socket.cpp:558] [c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address).\nstep 1 loss 2.5",
            [],
        ),
    ],
)
def test_an_address_of_another_host_is_told_from_a_port_in_use(line: str, signatures: list[str]) -> None:
    """rwth-i6/returnn #1470. A client that tries another address of localhost goes on."""
    assert [row[0] for row in places(logs(run=f"{line}\n"))] == signatures


def test_the_last_error_is_the_first_of_its_run() -> None:
    text = "ERROR: warm-up was slow\nready\nERROR: plan 7 was refused\nERROR: cannot go on\nERROR: bye\n"
    undecidable = logs(run=text).undecidable
    assert undecidable and "plan 7 was refused" in str(undecidable.reason)


def test_a_block_of_torchrun_without_a_pid_names_its_rank() -> None:
    """hpcaitech/ColossalAI #3582."""
    text = "Root Cause (first observed failure):\n[0]:\n  time      : 2023-04-17_17:02:33\n  host      : gpu21\n  rank      : 1 (local_rank: 0)\n  exitcode  : 1 \n  error_file: <N/A>\n"
    assert places(logs(run=text)) == [("worker-exited", "likely", [(1, "gpu21", "")])]


def test_a_process_that_was_killed_and_not_needed_is_only_possible() -> None:
    killed = "(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: a, IP: 10.0.0.1)\n"
    assert [row[1] for row in places(logs(run=killed + "step 3 loss 2\n"))] == ["possible"]
    assert [row[1] for row in places(logs(run="step 3 loss 2\n" + killed))] == ["certain"]


def test_prose_about_kubernetes_is_no_report_of_it() -> None:
    assert not logs(run="Reason: OOMKilled is explained below\n").causes


def test_the_exception_of_a_scheduler_of_sglang_is_of_the_worker_in_its_head() -> None:
    """The head stands before the first line alone: sgl-project/sglang python/sglang/srt/managers/scheduler.py."""
    text = (
        '[2025-03-09 00:57:15 TP2] Scheduler hit an exception: Traceback (most recent call last):\n  File "s.py", line 1, in x\n'
        "    f()\nValueError: bad\n\n[2025-03-09 00:57:16 TP0] Decode batch.\n"
        'Traceback (most recent call last):\n  File "launch.py", line 1, in x\nKeyError: 7\n'
    )
    ranks = {(c.signature, culprit.rank) for c in logs(serve=text).causes for culprit in c.culprits}
    assert ("python-exception", 2) in ranks and all(rank in (2, None) for _, rank in ranks)


REGISTERING = (
    "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks::0. This "
    "usually happens because a task triggered the barrier too early or too slowly.\n# of tasks that reached it: 3/4.\n"
    "The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:\n"
    "/job:jax_worker/replica:0/task:2\n\nRPC: /tensorflow.CoordinationService/RegisterTask\n"
)
NOT_REACHED = (
    "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Deadline Exceeded\n\n"
    "RPC: /tensorflow.CoordinationService/RegisterTask\n"
)


def test_process_0_of_jax_that_answered_with_the_names_of_others_was_reached() -> None:
    assert places(logs(train=REGISTERING)) == [("jax-barrier-absent", "likely", [(2, "", "")])]


def test_process_0_of_jax_that_did_not_answer_was_not_reached() -> None:
    assert [row[0] for row in places(logs(train=NOT_REACHED))] == ["jax-leader-unreached"]
    found = {row[0] for row in places(logs(first=REGISTERING, second=NOT_REACHED))}
    assert found == {"jax-leader-unreached", "jax-barrier-absent"}


def test_processes_of_jax_without_heartbeats_are_named() -> None:
    text = (
        "E1205 12:01:05.100000 coordination_service.cc:1010] The following tasks are unhealthy (stopped sending "
        "heartbeats):\n/job:jax_worker/replica:0/task:5\n/job:jax_worker/replica:0/task:7\n"
    )
    assert places(logs(train=text)) == [("jax-task-lost", "likely", [(5, "", ""), (7, "", "")])]


def test_a_pod_that_found_a_place_later_has_not_failed() -> None:
    waits = (
        "  Warning  FailedScheduling  5m  default-scheduler  0/4 nodes are available: 4 Insufficient nvidia.com/gpu.\n"
    )
    placed = "  Normal   Scheduled  4m  default-scheduler  Successfully assigned ml/train-0 to gpu-3\n"
    assert not logs(events=waits + placed).failed
    assert [row[0] for row in places(logs(events=placed + waits))] == ["kubernetes-unschedulable"]
