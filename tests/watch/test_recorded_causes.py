from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import msgspec

from doctor.watch.attach.inspector.recordings import recorder_dumps
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
