"""Silent hosts: lost, or only not heard of by the controller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pytest

from doctor.smoke.run import channels, silence
from doctor.smoke.run.channels import AgentEndpoint, Channels
from tests.smoke.scripted import Agent, Line, life
from tests.smoke.test_launch import WISH, agent, play, trouble, well

EVENT_AGE = 0.1
PATIENT = msgspec.structs.replace(WISH, timeout=5.0)


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "UNANSWERED_LIMIT": 1.0,
        "LIMIT": 2.0,
        "UNOBSERVED_LIMIT": 3.0,
        "STANDSTILL": 0.9,
        "WAITING": 0.2,
        "ANSWER": 0.2,
        "PROBE_INTERVAL": 0.3,
    }.items():
        monkeypatch.setattr(silence, name, seconds)


def snap(rank: int, number: int, age: float) -> dict[str, object]:
    fields = {"rank": rank, "stamp": number * 2, "state": "collective", "stage": "training", "op": "all_reduce"}
    call = [0, number, "all_reduce", "float32", 8, -1, number, "training"]
    return {**fields, "group": 0, "seq": number, "entered": {"0": number}, "calls": [call], "age": age, "numel": 8}


def peers(moving: bool, result: str = "") -> Agent:
    """The host that is heard of: ranks 0 and 1 go through collectives with the silent ones, or wait in the first."""

    def live_lines(ranks: Sequence[int]) -> Iterator[Line]:
        yield from life(ranks)
        for turn in range(60):
            number = 1 + turn * moving
            yield {"snaps": [{**snap(rank, number, 0.0 if moving else turn * EVENT_AGE)} for rank in ranks]}
            yield EVENT_AGE

    observed_agent = agent("a", lambda ranks: list(live_lines(ranks)))
    observed_agent.answers["sockets"] = [{"sockets": [[0, "10.0.0.2", 4000, 0, 0]], "listening": []}]
    observed_agent.answers["probe"] = [{"probes": [["10.0.0.2", 4000, result, 0.1]]}] if result else []
    return observed_agent


def silent() -> Agent:
    return agent("b", lambda ranks: [*life(ranks), 30.0], addresses={"eth0": ["10.0.0.2"]})


def test_a_host_that_gives_nobody_an_answer_is_lost() -> None:
    smoked, a, seconds = play(silent(), peers(moving=False, result="dropped"))
    failure = trouble(smoked)
    assert (failure.kind, failure.culprit_ranks, failure.limit) == ("silent", (2, 3), 1.0)
    assert "no other host gets an answer" in failure.text
    assert [["10.0.0.2", 4000]] in [order["targets"] for order in a.orders_of("probe")]  # beside that of the store
    assert seconds < 2.5


def test_a_host_whose_kernel_alone_answers_is_lost_too() -> None:
    """At the limit that a rank has: until then all of it may be stopped, and go on."""
    failure = trouble(play(silent(), peers(moving=False, result="refused"), PATIENT)[0])
    assert (failure.kind, failure.culprit_ranks, failure.limit) == ("silent", (2, 3), 4.0)
    assert "its kernel answers" in failure.text


def test_a_host_that_is_stopped_for_longer_than_an_agent_may_be_silent_goes_on() -> None:
    """The others wait in a collective for its ranks, and come out of it."""
    waits = peers(moving=False, result="refused")
    starts = waits.starts
    waits.starts = lambda ranks: [*list(starts(ranks))[:90], *well(ranks)]
    run = play(agent("b", lambda ranks: [*life(ranks), 3.7, *well(ranks)]), waits, PATIENT)[0].run
    assert (run.ended, run.failures) == ("complete", ())
    assert [note for note in run.notes if note.startswith("No message of b came for ")]


def test_this_host_is_not_accused_where_its_agent_is_stopped() -> None:
    """Nothing is known of its ranks: they may be well."""
    failure = trouble(play(silent(), agent("a", lambda ranks: [*life(ranks), 30.0]), PATIENT, local=True)[0])
    assert (failure.kind, failure.limit) == ("unobserved", 4.0)


def test_a_host_that_trains_on_is_not_accused() -> None:
    failure = trouble(play(silent(), peers(moving=True, result="dropped"))[0])
    assert (failure.kind, failure.culprit_ranks) == ("unobserved", (2, 3))
    assert "completed collectives with the other hosts" in failure.text


def test_nobody_can_tell_why_all_others_are_silent() -> None:
    failure = trouble(play(silent(), agent("a", lambda ranks: [*life(ranks), 30.0]))[0])
    assert (failure.kind, failure.culprit_ranks) == ("unobserved", (0, 1, 2, 3))


def test_a_host_that_is_heard_of_again() -> None:
    back = agent("b", lambda ranks: [*life(ranks), 1.5, *[{"snaps": []}, EVENT_AGE] * 5, None])
    failure = trouble(play(back, peers(moving=True))[0])
    assert (failure.kind, failure.certainty) == ("silent", "certain"), "its agent has ended; the pause was none"


def test_after_a_host_stood_still_its_ranks_have_their_limits_time_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent was stopped for 6 s with its ranks: the time fades by the clock, however many lines come meanwhile."""
    now = [100.0]
    monkeypatch.setattr(channels.time, "monotonic", lambda: now[0])
    run = Channels({"b": AgentEndpoint("b", lambda: None)}, "MARKER")  # type: ignore[arg-type, return-value]
    run.take_message("b", b'{"snaps": [], "late": 6.0}')
    network_limit, waited = 3.0, 6.0
    for _ in range(100):
        now[0] += 0.01
        run.pump(0)
    assert waited + 1.0 < network_limit + run.cpu_wait
    for _ in range(120):
        now[0] += 0.1
        run.pump(0)
    assert run.cpu_wait == 0.0
