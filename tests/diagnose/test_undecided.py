"""Where no rule names a cause, the report says what such a line comes from, and claims nothing."""

from __future__ import annotations

import json

import pytest

from doctor.diagnose.signature import load_signatures
from tests.diagnose.test_command import LOGS, run
from tests.diagnose.test_rules import BLOCK, logs
from tests.diagnose.test_rules import TIMED_OUT as TIMED_OUT_OF_GLOO

NO_MASTER = b"""\
[W416 15:39:40.531073896 socket.cpp:933] [c10d] The server socket on [::ffff:10.0.0.13]:40613 has timed out, will retry.
[E416 15:40:10.861069241 socket.cpp:1023] [c10d] The client socket has timed out after 300000ms while trying to \
connect to (node-a.example.org, 40613).
"""
"""Lines as in https://github.com/ModelTC/LightCompress/issues/365, with another address."""
TIMED_OUT = b"""\
[rank2]:[E626 05:06:30.929096625 ProcessGroupNCCL.cpp:632] [Rank 2] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum=120049, OpType=_ALLGATHER_BASE, NumelIn=16384000, NumelOut=131072000, Timeout(ms)=1800000) ran for \
1800065 milliseconds before timing out.
[rank7]:[E626 05:14:36.393067540 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's \
watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.
[rank5]:[E626 05:14:36.393819762 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 5] ProcessGroupNCCL's \
watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.
"""
"""Lines as in https://github.com/snowflakedb/ArcticTraining/issues/219."""
FLIGHT_RECORDER = "TORCH_NCCL_TRACE_BUFFER_SIZE"
SIGNATURES = load_signatures()


def test_the_causes_of_what_was_reported_are_listed_with_the_checks_that_look_for_them() -> None:
    signature = SIGNATURES["torch-client-socket-timeout"]
    result = run("-", text=NO_MASTER)
    assert result.exit_code == 12 and result.stdout.startswith("Undecidable: ")
    for text in (signature.causes[0], signature.confirm[0], signature.fix[0], f"--select {signature.checks[0]}"):
        assert text in " ".join(result.stdout.split())


def test_no_flight_recorder_is_asked_for_where_the_ranks_have_not_met() -> None:
    assert FLIGHT_RECORDER not in run("-", text=NO_MASTER).stdout
    assert FLIGHT_RECORDER in run("-", text=TIMED_OUT).stdout


def test_of_several_reports_that_of_most_ranks_is_shown_and_the_pages_of_the_others() -> None:
    most, other = SIGNATURES["nccl-heartbeat-monitor"], SIGNATURES["nccl-watchdog-timeout"]
    brief, full = (" ".join(run("-", *more, text=TIMED_OUT).stdout.split()) for more in ((), ("--verbose",)))
    assert most.causes[0] in brief and other.causes[0] not in brief
    assert f"doctor explain {other.id}" in brief
    assert most.causes[0] in full and other.causes[0] in full


def test_the_document_has_all_of_them_and_none_where_a_cause_was_found() -> None:
    undecidable = json.loads(run("-", "--json", text=TIMED_OUT).stdout)["undecidable"]
    assert [item["signature"] for item in undecidable["reported"]] == [
        "nccl-heartbeat-monitor",
        "nccl-watchdog-timeout",
    ]
    result = run(str(LOGS / "afd_notify_chain_to_local.dev*.log"), "--json")
    assert json.loads(result.stdout)["undecidable"] is None
    assert "Undecidable" not in run(str(LOGS / "afd_notify_chain_to_local.dev*.log")).stdout


def test_markdown_has_them_as_well() -> None:
    text = run("-", "-f", "md", text=NO_MASTER).stdout
    assert SIGNATURES["torch-client-socket-timeout"].title in text
    assert "Why it matters:" in text and "What to do:" in text
    signature = SIGNATURES["torch-client-socket-timeout"]
    assert all(cause in text for cause in signature.causes)


def test_logs_that_were_given_are_not_asked_for() -> None:
    """The ranks of two logs are not known: it is asked which they are, and for no other log."""
    waits = "RuntimeError: [gloo/x.cc:81] Timed out waiting 10000ms for recv operation to complete\n"
    result = logs(first=waits, second=waits)
    assert result.undecidable is not None
    assert not [text for text in result.undecidable.needed if "all other ranks" in text]
    assert [text for text in result.undecidable.needed if "logs of known ranks" in text]
    assert "the logs of all other ranks" in logs(only=waits).undecidable.needed  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("peer", "failed", "said"),
    [
        ("127.0.0.1", 1, "another rank of the same host ended early, most likely with exit code 0"),
        ("::1", 1, "another rank of the same host ended early, most likely with exit code 0"),
        ("127.0.0.1", 4, "the connection to another rank of the same host ended, and not why"),
        ("10.0.0.2", 1, "the connection to host 10.0.0.2 ended, and not why"),
    ],
)
def test_a_rank_that_left_with_exit_code_0_is_the_one_no_launcher_reports(peer: str, failed: int, said: str) -> None:
    """As two ranks of torchrun over gloo show it, one of which calls `sys.exit(0)` after a step."""
    closed = f"[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [{peer}]:16266\n"
    blocks = BLOCK.replace(" 1 (pid", " -15 (pid").replace("-15 (pid: 70", "1 (pid: 70").splitlines()
    undecidable = logs(train="\n".join([closed.strip(), *blocks[: 6 * failed]])).undecidable
    assert undecidable is not None and said in undecidable.reason, undecidable


def test_the_line_of_torchrun_s_agent_about_a_listed_worker_is_no_failure_of_another() -> None:
    """As torch 2.13 prints it above its list, without a rank, on a host where another rank had called sys.exit(0)."""
    agent = "E1128 02:34:36.002000 30215 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)"
    closed = "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:44171"
    block = BLOCK.replace(" 1 (pid", " -15 (pid").replace("-15 (pid: 70", "1 (pid: 70").splitlines()[:6]
    pid = next(line.partition("pid: ")[2].rstrip(" )") for line in block if "pid: " in line)
    text = "\n".join([closed, f"{agent} local_rank: 0 (pid: {pid}) of binary: /usr/bin/python", *block])
    undecidable = logs(train=text).undecidable
    assert undecidable is not None and "most likely with exit code 0" in undecidable.reason, undecidable


HCCL = (
    "[INFO] HCCL(860,):2025-12-31-07:42:50.708.882 [externalinput.cc:372] [860]HCCL_CONNECT_TIMEOUT set by default to "
    "[120]s\n"
    "[ERROR] HCCL(860,python):2025-12-31-07:45:11.177.194 [hccl_socket_manager.cc:778] [860][Wait][LinkEstablish]"
    "wait socket establish timeout, role[1] rank[3] timeout[600 s]\n"
)
SOCKETS = "EI0006: [PID: 860] 2025-12-31-07:45:20.444.436 Getting socket times out.\n"
ENDS = [
    (TIMED_OUT.decode(), "torch's watchdog keeps, ended the wait: 1800 s"),
    (
        "RuntimeError: [gloo/x.cc:81] Timed out waiting 9000ms for recv operation to complete\n",
        "message, ended the wait: 9 s",
    ),
    (NO_MASTER.decode(), "the store or of torchrun's rendezvous"),
    (HCCL, "HCCL_CONNECT_TIMEOUT ended the wait: 600 s"),
    (SOCKETS, "HCCL_CONNECT_TIMEOUT ended the wait"),
    (HCCL.partition("[ERROR]")[0] + SOCKETS, "HCCL_CONNECT_TIMEOUT ended the wait: 120 s"),
]


def test_a_closed_connection_before_a_timeout_ended_the_wait() -> None:
    closed = "[rank1]: RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.9]:19608\n"
    undecidable = logs(train=closed + NO_MASTER.decode()).undecidable
    assert undecidable is not None and "ended the wait" not in undecidable.reason


@pytest.mark.parametrize(("text", "said"), ENDS)
def test_which_timeout_of_which_layer_ended_the_wait_is_said(text: str, said: str) -> None:
    """With the value that was in force, where the logs show one."""
    undecidable = logs(train=text).undecidable
    assert undecidable is not None and said in undecidable.reason, undecidable


@pytest.mark.parametrize(
    "text",
    [
        "UDS: Binding to socket /tmp/nccl-socket-7 failed : Address already in use (98)",
        "Bootstrap Root : mismatch in info from procs, nranks 8 vs 4, nroots 1 vs 1, iroot 0 vs 0, offset 1 vs 1",
        "NET/IB : Unable to query port_num 1",
        "[Proxy Service] Poll failed: Bad address",
    ],
)
def test_a_warning_of_nccl_that_says_that_a_call_failed_is_a_failure_and_accuses_nobody(text: str) -> None:
    diagnosis = logs(train=f"node1:100:200 [0] misc/x.cc:10 NCCL WARN {text}")
    assert diagnosis.failed and diagnosis.undecidable and not diagnosis.causes


def test_a_warning_of_nccl_about_what_it_can_do_without_is_no_failure() -> None:
    warning = "n1:9:9 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]"
    assert not logs(train=f"{warning}\nn1:9:9 [0] NCCL INFO Using network Socket").failed


@pytest.mark.parametrize(
    ("error", "waiting", "culprits"),
    [
        ("OSError: [Errno 24] Too many open files", (1, 2, 3), [(0, "likely")]),
        ("OSError: [Errno 24] Too many open files", (1, 2), [(None, "certain")]),
        ("[rank3]: OSError: [Errno 24] Too many open files", (1, 2), [(3, "certain")]),
    ],
    ids=["one silent rank", "two silent ranks", "an error with a label"],
)
def test_an_error_of_unknown_rank_is_that_of_the_one_silent_rank(
    error: str, waiting: tuple[int, ...], culprits: list[tuple[int | None, str]]
) -> None:
    lines = [error, *(f"[rank{rank}]: {TIMED_OUT_OF_GLOO}" for rank in waiting), BLOCK]
    causes = logs(train="\n".join(lines)).causes
    assert [(cause.culprits[0].rank, cause.confidence) for cause in causes] == culprits


@pytest.mark.parametrize(
    ("other", "blamed"),
    [
        ("Connection closed by peer [127.0.0.1]:16266", [1]),
        ("op.preamble.length <= op.nbytes. 28 vs 20", []),  # gloo aborts a rank over the size that another one has
        ("bad file", []),  # none lost it
    ],
)
def test_a_rank_that_aborts_without_a_message(other: str, blamed: list[int]) -> None:
    """As torch 2.13 shows `os.abort()` of one of three ranks over gloo."""
    rows = BLOCK.replace("exitcode  : 1", "exitcode  : -15").split("\n[")
    first = rows[1].replace("-15", "-6")
    listed = "\n[".join([rows[0], rows[2]]) + f"\nRoot Cause (first observed failure):\n[{first}"
    lines = "\n".join(f"[rank{rank}]: RuntimeError: [gloo/transport/tcp/pair.cc:553] {other}" for rank in (0, 2))
    causes = [cause for cause in logs(train=f"{lines}\n{listed}").causes if cause.signature == "torch-signal-segv"]
    assert [culprit.rank for cause in causes for culprit in cause.culprits] == blamed
