"""Tests marked `sample` take turns by the commit."""

from __future__ import annotations

from typing import Any

import pytest

from tests import sampling

NAMES = ["a.py::one[1]", "a.py::one[2]", "a.py::two", "a.py::Class::three", "a.py::Class::four", "b.py::alone"]


class Item:
    """What is asked of a test."""

    def __init__(self, nodeid: str, marked: bool = True) -> None:
        self.nodeid, self.marked = nodeid, marked

    def get_closest_marker(self, name: str) -> bool:
        return self.marked and name == "sample"


def run_in(revision: str) -> set[str]:
    items: list[Any] = [Item(name) for name in NAMES]
    return set(NAMES) - {item.nodeid for item in sampling.left_out(items, revision)}


def test_some_commits_run_all_tests_and_each_runs_a_part_of_every_group() -> None:
    parts = [run_in(f"{turn:08x}") for turn in range(sampling.PARTS)]
    assert set.union(*parts) == set(NAMES)
    assert set.intersection(*parts) == {"b.py::alone"}
    for part in parts:
        assert part & set(NAMES[:3]) and part & set(NAMES[3:5])


def test_a_test_that_is_not_marked_runs_always() -> None:
    items: list[Any] = [Item(name, marked=False) for name in NAMES]
    assert sampling.left_out(items, "00000000") == sampling.left_out(items, "00000001") == set()


def test_all_is_all() -> None:
    assert run_in("all") == set(NAMES)


def test_the_commit_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_TEST_SAMPLE", raising=False)
    assert int(sampling.commit(), 16) >= 0
    assert sampling.commit() == sampling.commit()
    monkeypatch.setenv("DOCTOR_TEST_SAMPLE", "all")
    assert sampling.commit() == "all"
