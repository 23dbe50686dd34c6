"""Waiting for the rank table that a platform writes while the job starts."""

from __future__ import annotations

import pytest

from doctor.environment.mounted_rank_table import MINDCLUSTER, wait_for_table
from tests.environment.contexts import INITIALIZING, TABLE


def wait(texts: list[str | None], until: float = 10.0) -> tuple[str, float]:
    """What is said in the end, and when. ``texts``: the file at each read, the last one for good; None: no file."""
    now, remaining = [0.0], list(texts)

    def read(path: str) -> str:
        text = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if text is None:
            raise FileNotFoundError(2, "No such file or directory")
        return text

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return wait_for_table(MINDCLUSTER, until, read_file=read, clock=lambda: now[0], sleep=sleep), now[0]


def test_a_complete_table_is_not_waited_for() -> None:
    assert wait([TABLE]) == ("", 0.0)


def test_until_the_operator_is_done() -> None:
    """Missing, half written, and begun are all on the way."""
    assert wait([None, "", '{"status": "compl', INITIALIZING, TABLE]) == ("", 4.0)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (INITIALIZING, 'its status is "initializing"'),
        (None, "No such file or directory"),
        ("{", "it is not JSON"),
        ("", "it is empty"),
        ("[]", "it has no status"),
        ('{"status": "\x1b[31m\\u001b[2J"}', "it is not JSON"),
        ('{"status": "\\u001b[2J"}', 'its status is "\\x1b[2J"'),
    ],
)
def test_one_that_never_is(text: str | None, state: str) -> None:
    note, now = wait([text], until=2.5)
    assert note.startswith(f'rank table {MINDCLUSTER}: {state} after 2 s, expected "completed": ')
    assert now == 2.5
