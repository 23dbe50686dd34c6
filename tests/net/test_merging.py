"""A host speaks for its own attempts and ports; what it says of others decides nothing, and all is bounded."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.net.assemble import MAX_ATTEMPTS_OF_A_HOST, MalformedAnswer, merge_answers, read_answer
from doctor.net.localize import localize
from doctor.net.matrix import OUTCOMES, AttemptOutcome, HostAnswer, Matrix, TestedPort
from tests.examples import examples

LISTENS = [{"port": 0, "state": "listening"}]
PORTS = [TestedPort("master", 29500)]


def merged(*answers: dict[str, Any] | None) -> Matrix:
    """The matrix of hosts with one port; None does not answer."""
    names = [f"n{host}" for host in range(len(answers))]
    read = {
        host: read_answer(host, answer, len(answers), 1) for host, answer in enumerate(answers) if answer is not None
    }
    return merge_answers(names, PORTS, read)


def listening(row: str, **more: Any) -> dict[str, Any]:
    return {"rows": [row], "listeners": LISTENS, **more}


def test_a_silent_host_is_unknown_and_its_peers_are_innocent() -> None:
    matrix = merged(listening("-od"), listening("o-r"), None)
    assert matrix.silent == (2,)
    assert matrix.rows[0] == ("-o?", "o-?", "..-")
    assert localize(matrix).causes == ()
    assert str(matrix.coverage()) == "tested 1 of 3 pairs in both directions, 1 port, 2 of 4 attempts unknown"


def test_a_target_that_does_not_say_that_it_listens_makes_no_failure() -> None:
    matrix = merged(listening("-d"), {"rows": ["o-"]})
    assert OUTCOMES[matrix.rows[0][0][1]] is AttemptOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("state", "letter", "outcome"),
    [
        ("bound", "r", AttemptOutcome.BOUND),
        ("bound", "s", AttemptOutcome.BOUND),
        ("failed", "d", AttemptOutcome.NO_LISTENER),
        ("bound", "o", AttemptOutcome.DISPUTED),
        ("external", "d", AttemptOutcome.DROPPED),
        ("external", "o", AttemptOutcome.OPEN),
    ],
)
def test_a_host_decides_what_its_own_port_is(state: str, letter: str, outcome: AttemptOutcome) -> None:
    matrix = merged(
        listening("-" + letter), {"rows": ["o-"], "listeners": [{"port": 0, "state": state, "detail": "pid 7 redis"}]}
    )
    assert OUTCOMES[matrix.rows[0][0][1]] is outcome
    assert matrix.listeners[1].detail == "pid 7 redis"


def test_a_source_cannot_say_that_a_port_of_another_is_bound() -> None:
    answer = read_answer(0, {"rows": ["-b"]}, 2, 1)
    assert (answer.rows, answer.rejected) == (("-?",), 1)


def test_an_open_attempt_that_the_target_did_not_see_is_disputed() -> None:
    matrix = merged(listening("-oo"), listening("o-o", accepted=["..o"]), listening("oo-", accepted=["oo."]))
    assert OUTCOMES[matrix.rows[0][0][1]] is AttemptOutcome.DISPUTED
    assert OUTCOMES[matrix.rows[0][2][1]] is AttemptOutcome.OPEN
    assert localize(matrix).causes == ()


def test_statements_for_another_host_are_counted_and_dropped() -> None:
    answer = read_answer(
        0,
        {
            "rows": ["-d."],
            "attempts": [
                {"source": 1, "target": 2, "port": 0, "outcome": "dropped"},
                {"target": 1, "port": 0, "outcome": "open"},
                {"target": 0, "port": 0},
                {"target": 1, "port": 0, "detail": "\x1b[2J" + "x" * 10_000},
                {"target": 1, "port": 0},
            ],
            "listeners": [{"host": 1, "port": 0, "state": "bound"}, {"port": 9, "state": "bound"}],
            "speeds": [{"source": 2, "target": 1}, {"target": 1, "latency_median": float("nan"), "bytes": -4}],
        },
        3,
        1,
    )
    (attempt,) = answer.attempts
    assert attempt.outcome is AttemptOutcome.DROPPED
    assert len(attempt.detail) <= 200
    assert attempt.detail.isprintable()
    assert answer.listeners == ()
    assert (answer.speeds[0].latency_median, answer.speeds[0].bytes) == (None, 0)
    assert answer.rejected == 4 + 2 + 1


def test_a_flood_is_bounded() -> None:
    flood = [{"target": target, "port": port} for target in range(1, 100) for port in range(100)]
    answer = read_answer(0, {"rows": ["d" * 100] * 100, "attempts": flood, "listeners": LISTENS * 10_000}, 100, 100)
    assert len(answer.attempts) == MAX_ATTEMPTS_OF_A_HOST
    assert len(answer.listeners) == 1
    assert answer.rejected >= len(flood) - MAX_ATTEMPTS_OF_A_HOST


@pytest.mark.parametrize("answer", [None, [], "x", 3])
def test_no_object_is_no_answer(answer: object) -> None:
    with pytest.raises(MalformedAnswer, match="no object"):
        read_answer(0, answer, 2, 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["rows", "attempts", "listeners", "speeds", "accepted", "target", "port", "state", "detail"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=30,
)


@settings(max_examples=examples(60), deadline=None)
@given(st.dictionaries(st.sampled_from(["rows", "attempts", "listeners", "speeds", "accepted"]), JSON))
def test_any_answer_gives_rows_of_the_right_form(raw: dict[str, Any]) -> None:
    answer = read_answer(1, raw, 3, 2)
    assert [len(row) for row in answer.rows] == [3, 3]
    assert all(row[1] == "-" and set(row) <= set("-ordushw?.") for row in answer.rows)
    matrix = merge_answers("abc", [*PORTS, TestedPort("ssh", 22)], {1: answer})
    assert localize(matrix).causes == (), "one host's word accuses nobody else"


def test_a_matrix_survives_json() -> None:
    matrix = merged(
        listening("-h", attempts=[{"target": 1, "port": 0, "largest_bytes": 1400, "seconds": 0.2}]),
        listening("o-", speeds=[{"target": 0, "latency_median": 5e-5, "retransmissions": 3, "bytes": 1000}]),
    )
    assert matrix.attempts[0].largest_bytes == 1400
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(matrix)), Matrix) == matrix
    assert msgspec.convert(msgspec.to_builtins(matrix, str_keys=True), Matrix, strict=False) == matrix
    assert list(matrix.failures()) == [(0, 1, 0, AttemptOutcome.HALF_OPEN)]
    assert HostAnswer(0, ()).attempts == ()
