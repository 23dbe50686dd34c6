from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from doctor.watch.attach.inspector.recordings import asked_ras, ras_addresses, recorder_dumps
from doctor.watch.attach.recorded_causes import recorded_causes
from tests.diagnose.test_flight_recorder import dump
from tests.diagnose.test_ras import INCOMPLETE
from tests.watch.test_odd_ranks import host, rank


def test_the_rank_that_is_behind_in_the_dumps(tmp_path: Path) -> None:
    ranks = []
    for number, operations in enumerate([("all_reduce", "all_reduce")] * 2 + [("all_reduce",)]):
        path = tmp_path / f"nccl_trace_rank_{number}"
        path.write_bytes(pickle.dumps(dump(*operations, ended=number == 2)))
        ranks.append(rank(number, dumps=[str(path)]))
    [sentence] = recorded_causes({"node1": host(*ranks)}, None)
    assert sentence.startswith("flight recorder: ")
    assert "rank 2" in sentence


def test_what_ras_says_of_a_process() -> None:
    [sentence] = recorded_causes({"node1": msgspec.structs.replace(host(rank(0)), ras=INCOMPLETE * 2)}, None)
    assert sentence.startswith("NCCL RAS: ")
    assert "process 3748990 on node1 does not answer" in sentence


def emulated_ras(answers: dict[bytes, bytes]) -> str:
    """The address of a server that answers one client line by line, as NCCL 2.24 does: emulated, not NCCL's own."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listener, listener.accept()[0] as client, client.makefile("rb") as lines:
            for line in lines:
                client.sendall(answers.get(line, b"ERROR: unknown\n"))
                if line.endswith(b"STATUS\n"):
                    return

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{listener.getsockname()[1]}"


PROTOCOL = {b"CLIENT PROTOCOL 2\n": b"SERVER PROTOCOL 2\n", b"TIMEOUT 5\n": b"OK\n"}


def test_ras_is_asked_by_its_socket() -> None:
    answer = asked_ras(emulated_ras({**PROTOCOL, b"VERBOSE STATUS\n": INCOMPLETE.encode()}))
    assert answer == INCOMPLETE
    [sentence] = recorded_causes({"node1": msgspec.structs.replace(host(rank(0)), ras=answer * 2)}, None)
    assert "process 3748990 on node1 does not answer" in sentence


def test_what_is_no_ras_says_nothing() -> None:
    assert asked_ras(emulated_ras({b"CLIENT PROTOCOL 2\n": b"HTTP/1.1 400 Bad Request\n"})) == ""
    assert asked_ras(emulated_ras({**PROTOCOL, b"TIMEOUT 5\n": b"no\n"})) == ""
    assert asked_ras("127.0.0.1:1") == "" and asked_ras("192.0.2.1:28028") == ""
    places = ["node1:28028", "[::1]:5", "x;y:1", "node1", "h:1"]
    environs = [{"NCCL_RAS_ADDR": place} for place in places] + [{"NCCL_RAS_ADDR": "off:1", "NCCL_RAS_ENABLE": "0"}]
    assert ras_addresses(environs) == ["[::1]:5", "h:1", "node1:28028"]


def test_without_a_recorder_nothing_is_said() -> None:
    assert recorded_causes({"node1": host(rank(0))}, None) == []


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
