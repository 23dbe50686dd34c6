from __future__ import annotations

import json
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from doctor.watch.attach import recorded_causes as attached_causes
from doctor.watch.attach.attached_run import main_job
from doctor.watch.attach.inspector import inspector, recordings
from doctor.watch.attach.inspector.rank_finder import asked_ranks, find_ranks
from doctor.watch.attach.inspector.recordings import asked_ras, heartbeat_logs, ras_addresses, recorder_dumps
from doctor.watch.attach.odd_ranks import find_odd
from doctor.watch.attach.rank_report import HostReport, ProcessReport, without_others
from doctor.watch.attach.recorded_causes import RecordedCause, recorded_causes
from tests.diagnose.test_flight_recorder import dump
from tests.diagnose.test_ras import INCOMPLETE
from tests.watch.test_odd_ranks import host, rank


def causes_of(reports: dict[str, HostReport]) -> list[RecordedCause]:
    return recorded_causes(reports, main_job(find_odd(reports)), None)


def behind(folder: Path, culprit: int, **fields: object) -> list[ProcessReport]:
    """Three ranks with a dump each; one has not begun its second operation."""
    folder.mkdir(exist_ok=True)
    ranks = []
    for number in range(3):
        operations = ("all_reduce",) if number == culprit else ("all_reduce", "all_reduce")
        path = folder / f"nccl_trace_rank_{number}"
        path.write_bytes(pickle.dumps(dump(*operations, ended=number == culprit)))
        ranks.append(rank(number, world=3, dumps=[str(path)], **fields))
    return ranks


def test_the_rank_that_is_behind_in_the_dumps(tmp_path: Path) -> None:
    ranks = behind(tmp_path, 2)
    [cause] = causes_of({"node1": host(*ranks)})
    assert cause.text.startswith("flight recorder: ")
    assert cause.ranks == (2,)


def test_the_dumps_of_another_job_are_not_those_of_this_one(tmp_path: Path) -> None:
    """Both jobs run on this host; the other one has a hang of its own, and fewer ranks."""
    other_job = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29501"}
    others = [
        msgspec.structs.replace(entry, pid=entry.pid + 1000, world=2, job=other_job)
        for entry in behind(tmp_path / "b", 0)[:2]
    ]
    [cause] = causes_of({"node1": host(*others, *behind(tmp_path / "a", 2))})
    assert cause.ranks == (2,)


def test_a_dump_that_either_of_two_jobs_may_have_written(tmp_path: Path) -> None:
    """Both write to ``/tmp/nccl_trace_rank_0``, and the last one remains."""
    ranks = behind(tmp_path, 2)
    other = msgspec.structs.replace(ranks[2], pid=5000, job={"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29501"})
    causes = causes_of({"node1": host(*ranks, other)})
    assert causes[0].text.endswith("nccl_trace_rank_2 was not read: another job may have written it")
    assert not any(cause.is_sure for cause in causes)


def test_of_two_slurm_jobs_the_one_that_is_named_has_the_ranks_and_the_other_its_own_dumps(tmp_path: Path) -> None:
    """On the same hosts; a process that names no job of Slurm may be of either."""
    ranks = [msgspec.structs.replace(entry, job={"SLURM_JOB_ID": "7"}) for entry in behind(tmp_path, 2)]
    other = msgspec.structs.replace(ranks[2], pid=5000, job={"SLURM_JOB_ID": "8"})
    unnamed = msgspec.structs.replace(ranks[2], pid=6000, rank=3, job={}, dumps=[])
    report = without_others(host(*ranks, other, unnamed), {"SLURM_JOB_ID": ["7", "6"]})
    assert [entry.pid for entry in report.ranks] == [100, 101, 102, 6000] and report.beside == [5000]
    causes = causes_of({"node1": report})
    assert causes[0].text.endswith("nccl_trace_rank_2 was not read: another job may have written it")
    assert without_others(report, {}) == report


def test_a_dump_that_a_rank_beside_those_that_were_asked_for_may_have_written(tmp_path: Path) -> None:
    """``--pid`` of one of two jobs of a user. Seen on an H200: one job's mismatch was told of five others."""
    ranks = behind(tmp_path, 2)
    report = msgspec.structs.replace(host(*ranks), beside_dumps=[path for entry in ranks for path in entry.dumps])
    [cause] = causes_of({"node1": report})
    assert cause.text.endswith("was not read: another job may have written it") and not cause.is_sure


def test_a_dump_at_the_place_of_every_job_is_never_sure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job that wrote it may have ended since."""
    monkeypatch.setattr(attached_causes, "_OF_ANY_JOB", re.compile(rf"{re.escape(str(tmp_path))}/nccl_trace_rank_"))
    [cause] = causes_of({"node1": host(*behind(tmp_path, 2))})
    assert (cause.ranks, cause.is_sure) == ((2,), False)
    assert cause.text.endswith("is where any job of this user writes: one that has ended may have")


@pytest.mark.parametrize(
    ("path", "is_shared"),
    [
        ("/tmp/nccl_trace_rank_3", True),
        ("/tmp/hccl_trace_rank_11", True),
        ("/home/ann/.cache/torch/comm_lib_trace_rank_0", True),
        ("/tmp/run7/nccl_trace_rank_3", False),
        ("/data/fr_3", False),
    ],
)
def test_the_places_of_every_job(path: str, is_shared: bool) -> None:
    assert bool(attached_causes._OF_ANY_JOB.match(path)) == is_shared


def test_what_ras_says_of_a_process() -> None:
    [cause] = causes_of({"node1": msgspec.structs.replace(host(rank(0)), ras=INCOMPLETE * 2)})
    assert cause.text.startswith("NCCL RAS got no answer from process 3748990 on node1")
    assert (cause.ranks, cause.pids, cause.is_sure) == ((7,), (3748990,), True)


def emulated_ras(answers: dict[bytes, bytes], clients: int = 1) -> str:
    """The address of a server that answers as the thread of NCCL does.

    Source: NCCL 2.24.3 to 2.30, src/ras/client_support.cc. Commands end with a line feed, a carriage return before it
    is dropped, and their case does not matter; another one is answered with ``ERROR: Unknown command``; after the
    status the connection is closed. This is an emulation: no GPU was there for NCCL's own.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener:
            for _ in range(clients):
                with listener.accept()[0] as client, client.makefile("rb") as lines:
                    for line in lines:
                        command = line.rstrip(b"\r\n").lower()
                        client.sendall(answers.get(command, b"ERROR: Unknown command " + command + b"\n"))
                        if command.endswith(b"status"):
                            break

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


PROTOCOL = {b"client protocol 2": b"SERVER PROTOCOL 2\n", b"timeout 5": b"OK\n"}


def test_ras_is_asked_by_its_socket() -> None:
    answer = asked_ras(emulated_ras({**PROTOCOL, b"verbose status": INCOMPLETE.encode()}))
    assert answer == INCOMPLETE
    [cause] = causes_of({"node1": msgspec.structs.replace(host(rank(0)), ras=answer * 2)})
    assert "no answer from process 3748990 on node1" in cause.text


def test_a_process_that_does_not_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranks of a host share one port (SO_REUSEPORT); the kernel may choose the one that is stopped."""
    monkeypatch.setattr(recordings, "RAS_PATIENCE", 0.1)
    monkeypatch.setattr(recordings, "RAS_TRIES", 64)
    answering = emulated_ras({**PROTOCOL, b"verbose status": INCOMPLETE.encode()})
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        addresses = iter([f"127.0.0.1:{silent.getsockname()[1]}"] * 3 + [answering])
        connect = recordings.ras_connection
        monkeypatch.setattr(recordings, "ras_connection", lambda _: connect(next(addresses)))
        assert asked_ras("127.0.0.1:28028") == INCOMPLETE


def test_what_is_no_ras_says_nothing() -> None:
    assert asked_ras(emulated_ras({b"client protocol 2": b"HTTP/1.1 400 Bad Request\n"})) == ""
    assert asked_ras(emulated_ras({**PROTOCOL, b"timeout 5": b"no\n"})) == ""
    assert asked_ras("127.0.0.1:1") == "" and asked_ras("192.0.2.1:28028") == ""
    places = ["node1:28028", "[::1]:5", "x;y:1", "node1", "h:1"]
    environs = [{"NCCL_RAS_ADDR": place} for place in places] + [{"NCCL_RAS_ADDR": "off:1", "NCCL_RAS_ENABLE": "0"}]
    assert ras_addresses(environs) == ["[::1]:5", "h:1", "node1:28028"]


LOST = (
    "[INFO] HCCL(686,python):2025-10-23-07:52:59.191.363 [heartbeat.cc:951] [8970][TaskExecStage][HeartbeatAbnormal]"
    "local rank [127.10.0.1/1]: crimer rank [127.10.0.2/2] status[LOST] by informer rank [127.10.0.3/3]\n"
)
"""Source: hicann/hccl, docs/zh/user_guide/fault_diagnosis/task_exec_stage.md."""


@pytest.mark.parametrize("place", ["ascend/log/run/plog/plog-{pid}_20251023075259191.log", "stdout"])
def test_what_hccl_s_heartbeat_says_in_the_logs_of_a_rank(tmp_path: Path, place: str) -> None:
    with (tmp_path / "stdout").open("w") as output:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=output)
    try:
        path = tmp_path / place.format(pid=process.pid)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(LOST)
        other = tmp_path / f"ascend/log/run/plog/plog-{process.pid}1_20251023075259191.log"
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_text(LOST)
        result = heartbeat_logs(process.pid, {"HOME": str(tmp_path)})
        assert result == [str(path)]
        [cause] = causes_of({"node1": host(rank(0, heartbeat_logs=result))})
        assert cause.text.startswith("HCCL's heartbeat names ") and "lost" in cause.text
        assert cause.places == (("127.10.0.2", 2),) and not cause.may_pass
    finally:
        process.communicate(b"\n")


def test_a_log_whose_name_is_not_utf_8_does_not_damage_the_answer(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(folder)
    job = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    program = "import sys; print('[HeartbeatAbnormal]', flush=True); sys.stdin.read()"
    with (
        open(folder + b"/out.log", "wb") as log,
        subprocess.Popen(
            [sys.executable, "-c", program], env={**os.environ, **job}, stdin=subprocess.PIPE, stdout=log
        ) as process,
    ):
        while not os.path.getsize(log.fileno()):
            time.sleep(0.01)
        command = [sys.executable, "-m", "doctor", "watch", "--attach", "--json", "--interval", "1", "--py-spy", "off"]
        done = subprocess.run([*command, "--pid", str(process.pid)], capture_output=True, text=True, timeout=60)
        process.kill()
    assert done.stderr == ""
    assert json.loads(done.stdout)["exit"] == done.returncode


def test_without_a_recorder_nothing_is_said() -> None:
    assert causes_of({"node1": host(rank(0))}) == []


def test_only_dumps_that_the_rank_has_written_count(tmp_path: Path) -> None:
    """Not those of an earlier job, nor what is no file."""
    prefix = tmp_path / "trace_"
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
    )
    try:
        environ = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(prefix)}
        (tmp_path / "trace_3").write_text("x")
        (tmp_path / "trace_4").write_text("x")
        os.utime(tmp_path / "trace_4", (1, 1))
        (tmp_path / "trace_5").mkdir()
        assert recorder_dumps(process.pid, 3, environ)[0] == str(tmp_path / "trace_3")
        assert str(tmp_path / "trace_4") not in recorder_dumps(process.pid, 4, environ)
        assert str(tmp_path / "trace_5") not in recorder_dumps(process.pid, 5, environ)
    finally:
        process.communicate(b"\n")


BEHIND = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          2            1          2        2

Communicators... (0.003s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         2         2         2   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (99e0dac245c7ffc3) MISMATCH
  Communicator ranks have different AllReduce operation counts
  Rank 0 has launched up to operation 124 -- GPU 0 managed by process 1646 on node 127.0.0.1
  Rank 1 has launched up to operation 120 -- GPU 0 managed by process 1647 on node 127.0.0.1

"""
"""NCCL 2.28.9 itself, on an H100: rank 1 slept before its 121st all_reduce."""


def test_of_which_processes_ras_speaks() -> None:
    """NCCL's RAS of a host answers for the job that came first, whoever else runs there."""
    [cause] = causes_of({"node1": msgspec.structs.replace(host(rank(0)), ras=BEHIND * 2)})
    assert (cause.ranks, cause.members, cause.is_sure) == ((1,), (1646, 1647), True)


@pytest.mark.parametrize(("fields", "count"), [({"beside": [1646, 1647]}, 0), ({"beside": [9]}, 1), ({}, 1)])
def test_what_ras_says_of_ranks_that_were_not_asked_for(fields: dict[str, list[int]], count: int) -> None:
    """``--pid`` of one of several jobs. Seen on an H200: the RAS of another job was told of a healthy one."""
    report = msgspec.structs.replace(host(rank(0)), ras=BEHIND * 2, **fields)
    assert len(causes_of({"node1": report})) == count


def test_a_launcher_that_the_user_names_means_its_ranks(tmp_path: Path) -> None:
    """``--pid`` of torchrun. Seen on an H200: it was looked at as a rank that moves, and its hung job was healthy."""
    child = "import os, sys; os.write(1, b'%d\\n' % os.getpid()); sys.stdin.read()"  # at once: both write to one pipe
    parent = (
        "import os, subprocess, sys; "
        f"[subprocess.Popen([sys.executable, '-c', {child!r}], env=dict(os.environ, RANK=str(n), WORLD_SIZE='2')) "
        "for n in range(2)]; sys.stdin.read()"
    )
    words = [sys.executable, "-c", parent]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None and launcher.stdin is not None
        ranks = sorted(int(launcher.stdout.readline()) for _ in range(2))
        every = find_ranks([])
        assert asked_ranks([launcher.pid], every) == {launcher.pid: ranks}
        assert asked_ranks([ranks[0]], every) == {ranks[0]: [ranks[0]]}
        assert asked_ranks([os.getpid() + (1 << 22)], every) == {os.getpid() + (1 << 22): [os.getpid() + (1 << 22)]}
        place = {"TORCH_FR_DUMP_TEMP_FILE": str(tmp_path / "fr_")}
        (tmp_path / "fr_0").write_bytes(b"")
        named = [entry for entry in every if entry["pid"] in ranks]
        for entry in named:
            entry["environ"].update(place)
        assert inspector.dumps_of(named) == [str(tmp_path / "fr_0")]
        launcher.stdin.close()
