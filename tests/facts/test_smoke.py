"""What ranks said, read back: every event of the contract, what was not reached, and garbage."""

from __future__ import annotations

import json
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Fact, Output, Unreadable, Visit
from doctor.engine.record import HostRecord
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.events import StageFact
from doctor.facts.smoke.first_stages import SmokeBinding, SmokeStart
from doctor.facts.smoke.training import SmokeTraining
from doctor.session.saved_parts import smoke_run
from doctor.smoke.model import SmokeRun
from doctor.smoke.protocol import STAGE_FACTS
from tests.checks.smoke import ran

FACTS: list[type[Fact]] = list(STAGE_FACTS)

EVENTS: dict[str, list[dict[str, Any]]] = {
    "SmokeStart": [
        {
            "ev": "imported",
            "rank": -1,
            "seconds": 0.8,
            "torch": "2.13.0",
            "numpy": None,
            "python": "3.8.1",
            "text": "",
        },
        {
            "ev": "try",
            "rank": 1,
            "problem": "refused",
            "text": "w1 port 29400 refuses connections",
            "address": "w1:29400",
        },
        {
            "ev": "joined",
            "rank": 0,
            "seconds": 0.1,
            "host": "w1",
            "device": {"index": 0, "name": "H200", "id": "GPU-1"},
            "torch": "2.13.0",
            "numpy": "2.1",
            "world": 2,
        },
        {
            "ev": "error",
            "rank": 1,
            "kind": "ValueError",
            "text": "bad",
            "secondary": False,
            "stage": "training",
            "trace": ["a.py:3 f"],
        },
        {"ev": "exit", "rank": 1, "status": 9},
    ],
    "SmokeCollectives": [
        {"ev": "checked", "rank": 0, "gid": 0, "op": "all_reduce", "dtypes": ["float32"], "count": 9},
        {
            "ev": "wrong",
            "rank": 0,
            "gid": 0,
            "op": "all_reduce",
            "dtype": "int8",
            "numel": 9,
            "root": -1,
            "index": 3,
            "expected": 4.0,
            "got": "nan",
            "wrong": 1,
        },
        {"ev": "unsupported", "rank": 0, "gid": 0, "op": "reduce_scatter", "dtype": "bool", "text": "no"},
        {"ev": "speed", "rank": 0, "gid": 0, "op": "all_reduce", "bytes": 4, "seconds": [0.001]},
    ],
    "SmokePairs": [{"ev": "pair", "rank": 0, "peer": 1, "round": 0, "bytes": 4, "seconds": [0.1], "confirm": False}],
    "SmokeTraining": [
        {"ev": "reference", "rank": 0, "losses": [4.1, None], "grads": [1.0, None], "params": 2**64 - 1, "init": 1},
        {"ev": "reference-blocks", "rank": 0, "step": 0, "ids": [1, 2], "masks": [3, 4]},
        {"ev": "reference-update", "rank": 0, "update": {"head": 0.5}},
        {"ev": "begin", "rank": 0, "layout": 0, "before": 1, "params": 2, "replicated": 3},
        {
            "ev": "step",
            "rank": 0,
            "layout": 0,
            "step": 0,
            "loss": None,
            "blocks": [0],
            "ids": [1],
            "masks": [2],
            "rng": {"python": 1, "numpy": None},
            "grad_local": 1.0,
            "grad": 1.0,
            "grad_digest": 5,
            "params": 6,
            "replicated": 7,
            "bad": "loss",
        },
        {"ev": "end", "rank": 0, "layout": 0, "update": {"head": 0.5}, "seconds": 0.1},
    ],
    "SmokeLearning": [{"ev": "learn", "rank": 0, "step": 0, "loss": 4.1}],
    "SmokeLoader": [
        {
            "ev": "loader",
            "rank": 0,
            "workers": 2,
            "digests": {"python": 1, "numpy": None},
            "seeds": [1, 2],
            "seconds": 0.2,
            "text": "",
        }
    ],
    "SmokeDevices": [
        {
            "ev": "device",
            "rank": 0,
            "test": "product int8",
            "model": "NVIDIA H200",
            "amount": 1e12,
            "seconds": [0.001],
            "fingerprint": 7,
        },
        {
            "ev": "miscomputed",
            "rank": 0,
            "test": "product int8",
            "comparison": "exact",
            "wrong": 1,
            "compared": 3,
            "row": 5,
            "column": 7,
            "elements": 1,
            "expected": 3.0,
            "got": "4.0",
        },
        {"ev": "untested", "rank": 0, "test": "product float16", "text": "not implemented"},
    ],
    "SmokeBinding": [{"ev": "bound", "rank": 0, "cpus": "0-1,4", "permitted": "0-63"}],
    "SmokePace": [{"ev": "pace", "rank": 0, "input": [0.001], "compute": [0.002]}],
    "SmokeNative": [{"ev": "native", "rank": 0, "layout": 0, "api": "DDP", "losses": [4.1], "text": ""}],
}


def record(fact: type[Fact], out: str) -> HostRecord:
    return HostRecord(Visit(), {fact.__name__: {"": Output(out=out)}})


def read_smoke_fact(fact: type[Fact], **more: Any) -> Fact | Absent:
    return read_fact(record(fact, json.dumps({"reached": True, "events": EVENTS[fact.__name__], **more})), fact)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.__name__)
class TestEveryStage:
    def test_each_of_its_events_is_kept(self, fact: type[Fact]) -> None:
        observed_fact = read_smoke_fact(fact)
        assert isinstance(observed_fact, fact), observed_fact
        kept = [entry for name in fact.__struct_fields__ if name != "unread" for entry in getattr(observed_fact, name)]
        assert len(kept) == len(EVENTS[fact.__name__])
        assert not observed_fact.unread

    def test_what_was_not_reached_is_unknown_and_why(self, fact: type[Fact]) -> None:
        observed_fact = read_smoke_fact(
            fact, reached=False, events=[], why="it ended before", because="smoke-rank-died"
        )
        assert observed_fact == Unreadable("it ended before")
        assert isinstance(observed_fact, Unreadable) and observed_fact.root_cause == "smoke-rank-died"

    def test_silence_is_not_health(self, fact: type[Fact]) -> None:
        assert isinstance(read_smoke_fact(fact, events=[]), Unreadable)

    def test_a_rank_that_said_nothing_is_unread(self, fact: type[Fact]) -> None:
        observed_fact = read_smoke_fact(fact, ranks=[0, 7])
        assert isinstance(observed_fact, Fact) and list(observed_fact.unread) == ["rank 7"]

    def test_a_stage_that_was_not_planned_is_absent(self, fact: type[Fact]) -> None:
        observed_fact = read_smoke_fact(fact, planned=False, reached=False)
        assert isinstance(observed_fact, Absent) and not isinstance(observed_fact, Unreadable)

    def test_without_a_smoke_run_it_is_absent(self, fact: type[Fact]) -> None:
        observed_fact = read_fact(HostRecord(Visit()), fact)
        assert isinstance(observed_fact, Absent) and not isinstance(observed_fact, Unreadable)
        assert "no smoke run; run doctor smoke" in str(observed_fact)

    def test_a_host_that_was_not_reached_is_unknown(self, fact: type[Fact]) -> None:
        observed_fact = read_fact(HostRecord(Visit("timeout", "no answer")), fact)
        assert isinstance(observed_fact, Unreadable) and observed_fact.root_cause == "host-unreachable"

    @given(out=st.binary(max_size=60))
    def test_garbage_is_unknown(self, fact: type[Fact], out: bytes) -> None:
        assert isinstance(read_fact(record(fact, out.decode("utf-8", "replace")), fact), Unreadable)

    @given(
        value=st.recursive(
            st.none() | st.integers() | st.floats() | st.text(),
            lambda v: st.lists(v) | st.dictionaries(st.text(), v),
            max_leaves=8,
        )
    )
    def test_other_json_is_unknown(self, fact: type[Fact], value: Any) -> None:
        text = json.dumps({"reached": True, "events": [value]})
        assert isinstance(read_fact(record(fact, text), fact), Unreadable)


def test_events_of_another_stage_are_not_understood() -> None:
    mixed = json.dumps({"reached": True, "events": EVENTS["SmokeStart"] + EVENTS["SmokeTraining"]})
    assert isinstance(read_fact(record(SmokeStart, mixed), SmokeStart), Unreadable)


@pytest.mark.parametrize("cpus", ["", "4,0", "0-", "3-1", "0,0", "x", "0-99999", "0-1" + ",1" * 9])
def test_cpus_that_are_no_list_are_not_known(cpus: str) -> None:
    event = {**EVENTS["SmokeBinding"][0], "cpus": cpus}
    fact = read_smoke_fact(SmokeBinding, events=[event])
    assert isinstance(fact, SmokeBinding) and not fact.by_rank
    assert fact.unread == {"rank 0": "the CPUs on which it may run are not known"}


def test_numbers_that_are_none_stay_so() -> None:
    training = read_smoke_fact(SmokeTraining)
    assert isinstance(training, SmokeTraining)
    assert training.reference[0].losses == (4.1, None) and training.steps[0].bad == "loss"
    collectives = read_smoke_fact(SmokeCollectives)
    assert isinstance(collectives, SmokeCollectives)
    assert collectives.wrong[0].got == "nan"


def test_the_run_itself_comes_back_from_what_was_saved() -> None:
    import msgspec

    run = ran(4, 2, groups={0: ("world", (0, 1, 2, 3)), 1: ("dp2 0,2", (0, 2))})
    saved = json.loads(json.dumps(msgspec.to_builtins(run, str_keys=True)))
    assert smoke_run(saved) == run
    assert isinstance(smoke_run({}), Absent)
    broken = smoke_run({**saved, "ended": "somehow"})
    assert isinstance(broken, Unreadable) and "smoke run" in str(broken)
    assert isinstance(run, SmokeRun)


@pytest.mark.parametrize("fact", [fact for fact in StageFact.__subclasses__() if "read" not in vars(fact)])
def test_each_field_of_a_stage_s_fact_holds_the_events_of_its_place(fact: type[StageFact]) -> None:
    hints = get_type_hints(fact)
    names = [name for name in fact.__struct_fields__ if name not in StageFact.__struct_fields__]
    assert [get_args(hints[name])[0] for name in names] == list(fact.event_types)
