"""The library call that a thread waits in, and the thread that does a process's work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from doctor.smoke.programs.agent.system_calls import memory_maps
from doctor.watch.attach.inspector.native_calls import native_calls, readable_name
from doctor.watch.attach.inspector.python_stacks import frames_with_locals, rank_in_locals, working_thread
from doctor.watch.attach.inspector.rank_state import children_of, descendants_ran
from doctor.watch.attach.odd_ranks import find_odd
from doctor.watch.attach.rank_activity import activity
from tests.watch.test_odd_ranks import COMPUTES, host, looks, rank

LIBRARY = """
#include <pthread.h>
namespace c10d { struct Work { static void wait(long); }; }
__attribute__((noinline)) void c10d::Work::wait(long seconds) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    for (;;) pthread_cond_wait(&changed, &mutex);
}
"""
LOADS = "import ctypes, sys, threading, time; library = ctypes.CDLL(sys.argv[1]); "


def calls_of(*pids: int, seconds: float = 60.0) -> dict[int, list[str]]:
    return dict(native_calls(dict.fromkeys(pids, (0, 0)), seconds))  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("library")
    (folder / "work.cpp").write_text(LIBRARY)
    path = folder / "libtorch_cpu.so"
    argv = [compiler, "-O1", "-shared", "-fPIC", "-o", str(path), str(folder / "work.cpp"), "-lpthread"]
    subprocess.run(argv, check=True)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("library._ZN4c10d4Work4waitEl(1)", ["libtorch_cpu.so", "c10d::Work::wait"]),
        ("lock = threading.Lock(); lock.acquire(); lock.acquire()", ["", ""]),
        ("import queue; queue.SimpleQueue().get()", ["", ""]),
        ("library.usleep(100_000_000)", ["", ""]),
    ],
    ids=["library", "lock", "queue", "foreign call"],
)
def test_the_call_that_a_process_waits_in_is_read_from_its_stack(library: Path, text: str, expected: list[str]) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOADS + "print(flush=True); " + text, str(library)],
                               stdout=subprocess.PIPE)  # fmt: skip
    assert process.stdout is not None
    try:
        process.stdout.readline()
        limit = time.monotonic() + 60
        while calls_of(process.pid) != {process.pid: expected} and time.monotonic() < limit:
            time.sleep(0.05)
        assert calls_of(process.pid) == {process.pid: expected}
    finally:
        process.kill()
        process.communicate()


def test_a_process_that_is_gone_and_one_that_runs_are_in_no_call() -> None:
    calls = calls_of(1 << 22, os.getpid())
    assert calls[1 << 22] == [] and calls[os.getpid()] in ([], ["", ""])  # it may wait for the answer
    assert memory_maps(1 << 22) == ""  # type: ignore[no-untyped-call]


def test_what_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.watch.attach.inspector.native_calls.native_call", lambda *_: time.sleep(60))
    began = time.monotonic()
    assert calls_of(os.getpid(), seconds=0.2) == {}
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN4c10d4Work4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE", "c10d::Work::wait"),
        ("_ZNK4gloo7Context7getPairEi", "gloo::Context::getPair"),
        ("_Z5startv", "start"),
        ("PMPI_Allreduce", "PMPI_Allreduce"),
        ("_ZN", "_ZN"),
        ("_ZN999x", "x"),
    ],
)
def test_names_of_functions_stand_without_their_arguments(symbol: str, name: str) -> None:
    assert readable_name(symbol) == name  # type: ignore[no-untyped-call]


def test_who_waits_in_an_asynchronous_collective_waits_for_the_others() -> None:
    waits = [("main", "/job/train.py", 7)]
    native = ["libtorch_cpu.so", "c10d::Work::wait"]
    [finding] = find_odd({"node1": host(
        rank(0, looks("futex"), waits, native=native), rank(1, looks("futex"), waits, native=native),
        rank(2, looks("sleep"), COMPUTES), rank(3, looks("futex"), waits, native=native),
    )})  # fmt: skip
    assert finding.result == "odd" and [odd.rank for odd in finding.odd_ranks] == [2]
    assert (
        activity(rank(0, looks("futex"), waits, native=native), 4.0).text
        == "waits in c10d::Work::wait (main at train.py:7)"
    )


def test_who_stands_where_the_others_wait_is_no_other_though_its_call_was_not_read() -> None:
    waits = [("main", "/job/train.py", 7)]
    native = ["libtorch_cpu.so", "c10d::Work::wait"]
    ranks = [rank(number, looks("futex"), waits, native=native if number else []) for number in range(4)]
    [finding] = find_odd({"node1": host(*ranks)})
    assert finding.result == "undecided" and not finding.odd_ranks
    [finding] = find_odd({"node1": host(*ranks[:3], rank(3, looks("sleep"), COMPUTES))})
    assert [odd.rank for odd in finding.odd_ranks] == [3]


IN_LIBRARY, IN_INTERPRETER = ["libtorch_cpu.so", "c10d::Work::wait"], ["", ""]


@pytest.mark.parametrize(
    ("others", "own", "odd"),
    [
        ([IN_LIBRARY, IN_LIBRARY], IN_INTERPRETER, [2]),
        ([IN_LIBRARY], IN_INTERPRETER, [1]),
        ([IN_INTERPRETER, IN_INTERPRETER], IN_INTERPRETER, []),  # a collective of a thread of each
        ([IN_LIBRARY, IN_LIBRARY], [], []),
        ([[], []], IN_INTERPRETER, []),
        ([IN_INTERPRETER, IN_LIBRARY], IN_INTERPRETER, []),
    ],
)
def test_without_stacks_of_python_whose_interpreter_waits_is_odd_beside_others_in_a_library(
    others: list[list[str]], own: list[str], odd: list[int]
) -> None:
    calls = [*others, own]
    ranks = [rank(n, looks("futex"), stacks=[], world=len(calls), native=call) for n, call in enumerate(calls)]
    [finding] = find_odd({"node1": host(*ranks, py_spy=False)})
    assert [entry.rank for entry in finding.odd_ranks] == odd
    assert finding.result == ("odd" if odd else "undecided")


@pytest.mark.parametrize(
    ("native", "ran", "kind"),
    [
        (["libtorch_cpu.so", "at::parallel_for"], 0.0, "wait"),  # its own threads
        (["libjax_common.so", ""], 0.0, "collective"),
        (["libjax_common.so", ""], 2.0, "wait"),  # which compute
        (["libmpi.so.40", "PMPI_Recv"], 0.0, "collective"),
        ([], 0.0, "wait"),
        (["", ""], 0.0, "wait"),
    ],
)
def test_a_wait_in_another_library_is_none_for_the_others(native: list[str], ran: float, kind: str) -> None:
    seen = [
        look.__class__(look.state, "", look.call, "", 0.0, 0, number * ran, 0) for number, look in enumerate(looks())
    ]
    assert activity(rank(0, seen, [("main", "/job/train.py", 7)], native=native), 4.0).kind == kind


TORCH = "/x/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
POOLED = [("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py"), ("run", "/usr/lib/python3.11/threading.py")]
JOINS = [("_wait_for_tstate_lock", "/usr/lib/python3.11/threading.py"), ("main", "/job/train.py")]


def thread(number: int, *frames: tuple[str, str], name: str = "") -> dict[str, object]:
    rows = [{"name": function, "filename": path, "line": 7} for function, path in frames]
    return {"os_thread_id": number, "thread_name": name, "frames": rows}


@pytest.mark.parametrize(
    ("others", "chosen"),
    [
        ([[("all_reduce", TORCH), ("fit", "/job/train.py")]], True),
        ([[("download", "/job/train.py"), ("run", "/usr/lib/python3.11/threading.py")]], True),
        ([[("get", "/usr/lib/python3.11/queue.py"), ("run", "/job/log.py")]], False),
        ([[("wait", "/usr/lib/python3.11/threading.py"), ("run", "/job/log.py")]], False),
        ([[("next", "/x/site-packages/grpc/_channel.py")]], False),
        ([[("download", "/job/train.py")], [("beat", "/job/monitor.py")]], False),
        ([[("beat", "/job/monitor.py")], [("all_reduce", TORCH), ("fit", "/job/train.py")]], True),
        (
            [[("beat", "/job/monitor.py")], [("generate", "/job/serve.py"), ("_call_behavior", "/x/grpc/_server.py")]],
            True,
        ),
        ([POOLED, [("all_reduce", TORCH), *POOLED]], True),
        (
            [POOLED, [("_read_thread", "/x/site-packages/torch/_inductor/compile_worker/subproc_pool.py"), *POOLED]],
            False,
        ),
        ([], False),
    ],
    ids=[
        "collective",
        "works",
        "queue",
        "event",
        "library",
        "two",
        "two, one in a collective",
        "a call of gRPC",
        "asyncio.to_thread",
        "the compiler's",
        "none",
    ],
)
def test_where_the_main_thread_waits_for_another_that_one_is_looked_at(
    others: list[list[tuple[str, str]]], chosen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("doctor.watch.attach.inspector.python_stacks.thread_here", lambda _, number: number)
    rows = [thread(9 + number, *frames) for number, frames in enumerate(others)]
    data = json.dumps([thread(4, *JOINS, name="MainThread"), *rows]).encode()
    number, frames = working_thread(data, 4)  # type: ignore[no-untyped-call]
    assert (number > 4) == chosen and frames[0][0] == (others[-1][0][0] if chosen else JOINS[0][0])
    busy = json.dumps([thread(4, ("main", "/job/train.py")), *rows]).encode()
    assert working_thread(busy, 4)[0] == 4  # type: ignore[no-untyped-call]


SHOWN = """#!/bin/sh
cat <<'END'
[{"pid": 12024, "thread_name": "MainThread", "os_thread_id": 77, "frames": [
  {"name": "step", "filename": "/job/r.py", "line": 9, "locals": [
    {"name": "rank", "arg": false, "repr": "7"}]},
  {"name": "work", "filename": "/job/r.py", "line": 4, "locals": [
    {"name": "rank", "arg": true, "repr": "%s"}, {"name": "token", "arg": true, "repr": "\\"hunter2\\""}]},
  {"name": "_wrap", "filename": "/x/site-packages/torch/multiprocessing/spawn.py", "line": 87, "locals": [
    {"name": "rank", "arg": true, "repr": "9"}]},
  {"name": "<module>", "filename": "<string>", "line": 1, "locals": null}]}]
END
"""


@pytest.mark.parametrize(("text", "expected"), [("5", 5), ("<Group at 0x7>", None), ('\\\\"5\\\\"', None), ("-", None)])
def test_the_rank_that_a_function_of_the_program_was_given_is_read(
    text: str, expected: int | None, tmp_path: Path
) -> None:
    """In the form of py-spy 0.4.3 with ``--locals``."""
    (tmp_path / "py-spy").write_text(SHOWN % text)
    (tmp_path / "py-spy").chmod(0o700)
    until = time.monotonic() + 60
    assert rank_in_locals(frames_with_locals(12024, str(tmp_path / "py-spy"), until)) == expected  # type: ignore[no-untyped-call]
    assert rank_in_locals(frames_with_locals(12024, str(tmp_path / "none"), until)) is None  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'[{"frames": 3}]', b'[{"os_thread_id": "x", "frames": []}]'])
def test_what_is_no_answer_of_py_spy_gives_no_stack(data: bytes) -> None:
    assert working_thread(data, 4) is None  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("call", "file", "text"),
    [
        ("open", "/data/shard-7.tar", ", whose worker (pid 7) is in open of /data/shard-7.tar"),
        ("recv", "socket", ", whose worker (pid 7) is in recv of socket"),
        ("sleep", "", ", whose worker (pid 7) is in sleep"),
        ("read", "pipe", ""),
        ("poll", "", ""),
    ],
)
def test_the_worker_that_holds_a_loader_up_is_named(call: str, file: str, text: str) -> None:
    loader = [("_next_data", "/x/site-packages/torch/utils/data/dataloader.py", 3)]
    seen = activity(rank(0, looks("poll"), loader, children=[(7, "S", call, file)]), 4.0)
    assert seen.text == "waits for its data loader" + text


def test_a_data_set_that_is_read_without_a_worker_is_told_by_its_own_call() -> None:
    loader = ("_next_data", "/x/site-packages/torch/utils/data/dataloader.py", 3)
    own = ("__getitem__", "/home/u/data.py", 7)
    seen = activity(rank(0, looks("open", file="/data/7.tar"), [own, loader], children=[(7, "S", "sleep", "")]), 4.0)
    assert (seen.kind, seen.text) == ("file", "is blocked in open of /data/7.tar (__getitem__ at data.py:7)")


@pytest.mark.parametrize(
    ("native", "text"),
    [
        (["", ""], "waits for another of its threads, or for a lock (hook at train.py:7)"),
        (["libtorch_cpu.so", "c10d::Work::wait"], "waits in backward (hook at train.py:7)"),
        ([], "waits in backward (hook at train.py:7)"),
    ],
)
def test_a_lock_in_a_hook_of_the_backward_pass_is_no_collective(native: list[str], text: str) -> None:
    stack = [("hook", "/job/train.py", 7), ("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py", 3)]
    assert activity(rank(0, looks("futex"), stack, native=native), 4.0).text == text


@pytest.mark.parametrize(
    ("function", "call", "kind", "text"),
    [
        ("SimpleQueue.get", "read", "loader", "waits for an object in a queue of processes, as of a data loader"),
        ("SimpleQueue.put", "write", "wait", "waits until another process takes objects from their queue"),
        ("Queue.join_thread", "futex", "wait", "waits until another process takes objects from their queue"),
    ],
)
def test_who_puts_objects_into_a_queue_waits_for_their_reader(function: str, call: str, kind: str, text: str) -> None:
    stack = [(function, "/usr/lib/python3.11/multiprocessing/queues.py", 3)]
    seen = activity(rank(0, looks(call, file="pipe"), stack), 4.0)
    assert (seen.kind, seen.text) == (kind, text)


def test_a_stopped_process_at_the_other_end_of_a_message_is_told() -> None:
    stack = [("Connection._recv", "/usr/lib/python3.11/multiprocessing/connection.py", 3)]
    seen = msgspec.structs.replace(rank(1, looks("read", file="socket"), stack), rank=None)
    texts = [activity(msgspec.structs.replace(seen, answering=[("pid 9 (x)", it)]), 4.0).text for it in (False, True)]
    assert texts == ["waits for a message", "waits for a message; at its other end is pid 9 (x), which is stopped"]


def test_the_process_below_a_shell_that_holds_a_rank_up_is_named(tmp_path: Path) -> None:
    """As `system` in C and `subprocess` with a shell start it."""
    path = tmp_path / "shard-7.tar"
    os.mkfifo(path)
    process = subprocess.Popen(["sh", "-c", 'sh -c "cat $0; true"; true', str(path)], start_new_session=True)
    try:
        limit = time.monotonic() + 60
        while not {"open", "wait"} <= (calls := {row[2]: row for row in children_of(process.pid)}).keys():
            assert time.monotonic() < limit, calls
            time.sleep(0.05)
        assert calls["wait"][0] != calls["open"][0]  # the inner shell, and what it has started
        children = [(pid, state, call, str(path)) for pid, state, call, _ in calls.values()]
        seen = activity(rank(0, looks("wait"), children=children), 4.0)
        assert seen.text == f"waits for a child process: pid {calls['open'][0]} is in open of {path}"
    finally:
        os.killpg(process.pid, 9)
        process.wait()


FORWARD = [("forward", "/x/site-packages/torch/nn/modules/linear.py", 3), ("evaluate", "/job/train.py", 9)]
SORTED = [("best", "/job/train.py", 4), ("evaluate", "/job/train.py", 10)]
RUNS = [("run", "/usr/lib/python3.11/subprocess.py", 3), ("compile_kernels", "/job/train.py", 9)]
POOL = [("next", "/usr/lib/python3.11/multiprocessing/pool.py", 861), ("evaluate", "/job/train.py", 9)]


@pytest.mark.parametrize("number", [2, None], ids=["ranks", "without numbers"])
@pytest.mark.parametrize(
    ("call", "stacks", "children_ran", "result"),
    [
        ("running", [FORWARD, SORTED], [], "undecided"),
        ("running", [FORWARD, FORWARD], [], "odd"),
        ("running", [FORWARD, [(name, path, line + 1) for name, path, line in FORWARD]], [], "odd"),
        ("running", [FORWARD, []], [], "odd"),
        ("wait", [RUNS, RUNS], [1.0, 3.5], "undecided"),
        ("wait", [RUNS, RUNS], [1.0, 1.01], "odd"),
        ("wait", [RUNS, RUNS], [], "odd"),
        ("futex", [POOL, POOL], [1.0, 4.5], "undecided"),
        ("futex", [POOL, POOL], [1.0, 1.5], "odd"),
    ],
)
def test_who_works_at_changing_places_is_not_accused(
    number: int | None, call: str, stacks: list[list[tuple[str, str, int]]], children_ran: list[float], result: str
) -> None:
    waits = [("wait", TORCH, 10), ("evaluate", "/job/train.py", 7)]
    ran = 2.0 if call == "running" else 0.0
    busy = rank(2, looks(call, ran=ran), stacks=stacks, children_ran=children_ran)
    ranks = [*(rank(other, looks("futex"), waits, off_cpu=900.0) for other in (0, 1, 3)), busy]
    if number is None:
        ranks = [msgspec.structs.replace(report, rank=None, group=100) for report in ranks]
    [finding] = find_odd({"node1": host(*ranks)})
    assert finding.result == result and (result == "undecided") == ("works meanwhile" in finding.text)


def test_the_time_of_children_grows_while_they_compute() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    try:
        limit = time.monotonic() + 60
        while descendants_ran(process.pid) < 0.3 and time.monotonic() < limit:  # type: ignore[no-untyped-call]
            time.sleep(0.05)
        assert descendants_ran(process.pid) >= 0.3  # type: ignore[no-untyped-call]
        assert descendants_ran(1 << 22) <= 0  # type: ignore[no-untyped-call]
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def test_a_rank_that_starts_one_child_after_the_other_works() -> None:
    """Each child of a busy host hardly runs, but a call of `wait` that never ended does not switch."""
    seen = activity(rank(0, looks("wait", switches=2), stacks=[RUNS, RUNS], children_ran=[1.0, 1.1]), 4.0)
    assert seen.kind == "child" and seen.works
