"""Dumps of the flight recorder: read without executing anything, and each rank's counts the same."""

from __future__ import annotations

import contextlib
import json
import pickle
import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.diagnose.decide import diagnose
from doctor.diagnose.diagnosis import ONE_OF_TWO, Diagnosis
from doctor.diagnose.read.flight_recorder import NoRecordingError, PickleRefusedError, read_plain_pickle, read_recording
from doctor.diagnose.read.readings import read_all
from doctor.diagnose.read.sources import find_sources
from doctor.diagnose.run import diagnose_found
from tests.diagnose.reported import exit_code
from tests.diagnose.test_rules import SIGNATURES, named

ENTRY = {
    "frames": [{"name": "all_reduce", "filename": "distributed_c10d.py", "line": 3245}],
    "pg_id": 0,
    "process_group": ("0", "default_pg"),
    "p2p_seq_id": 0,
    "time_created_ns": 1795270313384073457,
    "input_dtypes": ["Float"],
    "output_dtypes": ["Float"],
    "state": "scheduled",
    "time_discovered_started_ns": None,
    "timeout_ms": 5000,
    "is_p2p": False,
}
"""The fields of a real dump of torch 2.13 over gloo."""


def dump(
    *operations: str | tuple[str, int], world: int = 3, ended: bool = False, prefix: str = "gloo"
) -> dict[str, Any]:
    """The dump of one rank; an operation may have a size."""
    pairs = [item if isinstance(item, tuple) else (item, 16) for item in operations]
    entries = [
        {
            **ENTRY,
            "record_id": number,
            "collective_seq_id": number + 1,
            "op_id": number + 1,
            "profiling_name": f"{prefix}:{operation}",
            "input_sizes": [[size]],
            "output_sizes": [[size]],
            "retired": ended or number + 1 < len(pairs),
        }
        for number, (operation, size) in enumerate(pairs)
    ]
    ranks = str(list(range(world)))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "comm_lib_version": "", "entries": entries}


SUM = ("all_reduce",) * 4


def diagnosis(
    folder: Path, dumps: dict[int, dict[str, Any]], form: str = "pickle", name: str = "nccl_trace_rank_"
) -> Diagnosis:
    for rank, data in dumps.items():
        text = pickle.dumps(data, 2) if form == "pickle" else json.dumps(data).encode()
        (folder / f"{name}{rank}").write_bytes(text)
    return diagnose_found([str(folder)], SIGNATURES)


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("prefix", ["nccl", "hccl", "gloo"])
def test_the_rank_that_ran_one_collective_fewer_is_behind(tmp_path: Path, form: str, prefix: str) -> None:
    dumps = {0: dump(*SUM, prefix=prefix), 1: dump(*SUM[:3], prefix=prefix), 2: dump(*SUM, prefix=prefix)}
    observed_diagnosis = diagnosis(tmp_path, dumps, form, f"{prefix}_trace_rank_")
    assert (
        named(observed_diagnosis) == [("flight-recorder", "behind in sequence", [1])]
        and exit_code(observed_diagnosis) == 10
    )


def test_the_rank_with_another_collective_differs_whichever_file_comes_first(tmp_path: Path) -> None:
    other = dump("all_reduce", "all_reduce", "broadcast")
    for outlier in range(3):
        dumps = {rank: other if rank == outlier else dump(*SUM[:3]) for rank in range(3)}
        assert named(diagnosis(tmp_path, dumps)) == [("flight-recorder", "minority", [outlier])]


def test_the_rank_with_another_size_differs(tmp_path: Path) -> None:
    dumps = {rank: dump("all_reduce", ("all_reduce", 8 if rank == 2 else 16)) for rank in range(3)}
    assert named(diagnosis(tmp_path, dumps)) == [("flight-recorder", "minority", [2])]


def test_sizes_that_may_differ_are_not_compared(tmp_path: Path) -> None:
    dumps = {rank: dump(("all_to_all", rank), ("gather", rank), ("all_reduce", 16)) for rank in range(3)}
    assert not diagnosis(tmp_path, dumps).causes


def test_of_two_ranks_that_differ_either_may_be_wrong(tmp_path: Path) -> None:
    observed_diagnosis = diagnosis(tmp_path, {0: dump("all_reduce", world=2), 1: dump("broadcast", world=2)})
    (cause,) = observed_diagnosis.causes
    assert (cause.rule, cause.confidence, [c.rank for c in cause.culprits]) == (ONE_OF_TWO, "possible", [0, 1])


def test_half_of_the_ranks_behind_name_nobody(tmp_path: Path) -> None:
    dumps = {rank: dump(*SUM[: 4 - rank % 2], world=4) for rank in range(4)}
    assert not diagnosis(tmp_path, dumps).causes


def test_a_rank_without_a_dump_has_not_joined_unless_all_have_ended(tmp_path: Path) -> None:
    waiting = {rank: dump(*SUM) for rank in (0, 2)}
    assert named(diagnosis(tmp_path, waiting)) == [("rank-silent", "silence", [1])]
    ended = {rank: dump(*SUM, ended=True) for rank in (0, 2)}
    assert not diagnosis(tmp_path, ended).causes


def test_the_members_of_a_process_group_show_the_rank_that_left_nothing(tmp_path: Path) -> None:
    """Rank 3 was stopped; it left neither a line nor a dump, and rank 1 only lost rank 0, which had timed out."""
    timed_out = "RuntimeError: Timed out waiting 8000ms for recv operation to complete"
    closed = "RuntimeError: Connection closed by peer [127.0.0.1]:54923."
    lines = [f"[rank{rank}]: {text}" for rank, text in ((0, timed_out), (2, timed_out), (1, closed))]
    (tmp_path / "train.log").write_text("\n".join(lines))
    dumps = {rank: dump(*SUM, world=4, ended=True) for rank in range(3)}
    assert named(diagnosis(tmp_path, dumps)) == [("rank-silent", "silence", [3])]


SIZE = "what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 512 vs 256. Received data size"


def test_the_rank_that_aborted_over_another_size_is_wrong_if_all_others_agree_else_its_sender(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text(SIZE if rank == 1 else "step 1\n")
    agreeing = {rank: dump(*SUM) for rank in (0, 2)}
    assert named(diagnosis(tmp_path, agreeing)) == [("flight-recorder", "minority", [1])]
    larger = {0: dump(*SUM), 2: dump(*SUM[:3], ("all_reduce", 32))}
    assert named(diagnosis(tmp_path, larger)) == [("flight-recorder", "minority", [2])]


def test_dumps_of_a_job_that_goes_on_are_no_sure_verdict(tmp_path: Path) -> None:
    dumps = {rank: dump(*SUM[: 3 if rank == 1 else 4]) for rank in range(3)}
    assert [cause.confidence for cause in diagnosis(tmp_path, dumps).causes] == ["possible"]
    (tmp_path / "rank_0.log").write_text("RuntimeError: Timed out waiting 6000ms for recv operation to complete\n")
    assert [cause.confidence for cause in diagnose_found([str(tmp_path)], SIGNATURES).causes] == ["likely"]


def test_a_ranks_own_fault_outranks_the_dumps(tmp_path: Path) -> None:
    (tmp_path / "rank_2.log").write_text("[rank2]: ValueError: cannot reshape the batch\n")
    dumps = {rank: dump(*SUM[: 3 if rank == 1 else 4]) for rank in range(3)}
    assert named(diagnosis(tmp_path, dumps)) == [("python-exception", "local fault", [2])]


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/owned-by-a-pickle"),))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_hostile_pickle_is_refused_in_one_line_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"entries": [Evil()]}, protocol))
    observed_diagnosis = diagnose_found([str(tmp_path)], SIGNATURES)
    (notes,) = [summary.notes for summary in observed_diagnosis.files]
    assert "other than plain values" in notes[0] and "\n" not in notes[0]
    assert not Path("/tmp/owned-by-a-pickle").exists() and not observed_diagnosis.causes


@pytest.mark.sample
@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02" + b"]" * 3_000_000,
        b"\x80\x02" + b"K\x01" + b"\x85" * 3_000_000 + b".",
        b"\x80\x02}" + b"K\x01" + b"\x85" * 300_000 + b"K\x01s.",
        b"\x80\x02" + b"K\x01q\x00" * 3_000_000 + b".",
        None,
        b"\x80\x02X\xff\xff\xff\xffabc.",
        b"\x80\x02\x8b\xff\xff\xff\x7fabc.",
        b"\x80\x02(((((.",
        b"\x80\x02",
    ],
    ids=["lists", "tuples", "deep key", "memory", "numbers", "length", "number", "marks", "empty"],
)
def test_a_pickle_that_would_take_memory_or_depth_is_refused_soon(data: bytes | None) -> None:
    if data is None:  # made here: each worker collects all tests
        data = b"\x80\x02" + b"".join(b"K\x01r" + number.to_bytes(4, "little") for number in range(700_000))
    start = time.process_time()
    with pytest.raises(NoRecordingError):
        read_recording([data])
    assert time.process_time() - start < 6.0


def test_lists_that_share_their_items_are_never_written_out() -> None:
    """Printed, 40 lists that hold the next one twice are a tebibyte."""
    shared: Any = 1
    for _ in range(40):
        shared = [shared, shared]
    deep: Any = 1
    for _ in range(900):
        deep = (deep,)
    for value in (shared, deep, 7**700):
        fields = {
            "collective_seq_id": 1,
            "process_group": [value, value],
            "pg_id": value,
            "profiling_name": value,
            "input_dtypes": [value],
            "input_sizes": [[value]],
        }
        data = {"entries": [fields, {**fields, "process_group": 0}], "pg_config": {"name": {"ranks": [value, 3]}}}
        (group,) = read_recording([pickle.dumps(data, 2)]).groups
        assert (group.name, group.ranks, [call.operation for call in group.collectives.values()]) == ("", [3], ["?"])


def test_json_that_is_no_dump_is_refused(tmp_path: Path) -> None:
    for text in (b'{"pg_config": ' + b"[" * 200_000, b'{"pg_config": {}, "entries": 3}', b'{"pg_status": 1'):
        with pytest.raises(NoRecordingError):
            read_recording([text])


PICKLED_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4) | st.tuples(inner)
    ),
    max_leaves=20,
)


@given(value=PICKLED_VALUES, protocol=st.integers(2, 5))
def test_plain_values_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(value, protocol)) == value


@given(data=st.binary(max_size=300))
def test_arbitrary_bytes_after_the_head_of_a_pickle_end_in_a_refusal_or_a_value(data: bytes) -> None:
    with contextlib.suppress(NoRecordingError):
        read_recording([b"\x80\x02" + data])
    with contextlib.suppress(PickleRefusedError):
        read_plain_pickle(b"\x80\x04" + data)


@given(
    value=PICKLED_VALUES,
    entry=st.dictionaries(st.sampled_from(sorted({*ENTRY, "collective_seq_id", "input_sizes"})), PICKLED_VALUES),
)
def test_a_dump_with_any_values_in_its_fields_is_read_or_refused(value: Any, entry: dict[str, Any]) -> None:
    for data in ({"entries": value, "pg_config": value}, {"entries": [entry], "pg_config": {"0": value}}, [entry]):
        with contextlib.suppress(NoRecordingError):
            read_recording([pickle.dumps(data, 2)])


def test_the_order_of_dumps_does_not_change_the_verdict(tmp_path: Path) -> None:
    diagnosis(tmp_path, {rank: dump(*SUM[: 3 if rank in (5, 6) else 4], world=16) for rank in range(15)})
    readings = read_all(find_sources([str(tmp_path)]), SIGNATURES)
    expected = diagnose(readings, SIGNATURES)
    for seed in range(4):
        random.Random(seed).shuffle(readings)
        assert diagnose(readings, SIGNATURES) == expected
