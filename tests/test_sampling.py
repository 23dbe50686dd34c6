"""Tests marked `sample`, and costly ones, take turns by the commit."""

from __future__ import annotations

from typing import Any

import pytest

from tests import sampling

NAMES = ["a.py::one[1]", "a.py::one[2]", "a.py::two", "a.py::Class::three", "a.py::Class::four", "b.py::alone"]


class Item:
    """What is asked of a test."""

    def __init__(self, nodeid: str, marker: str = "sample") -> None:
        self.nodeid, self.marker = nodeid, marker

    def get_closest_marker(self, name: str) -> bool:
        return self.marker == name


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
    items: list[Any] = [Item(name, marker="") for name in NAMES]
    assert sampling.left_out(items, "00000000") == sampling.left_out(items, "00000001") == set()


def test_all_is_all() -> None:
    assert run_in("all") == set(NAMES)


def test_the_commit_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_TEST_SAMPLE", raising=False)
    assert int(sampling.commit(), 16) >= 0
    assert sampling.commit() == sampling.commit()
    monkeypatch.setenv("DOCTOR_TEST_SAMPLE", "all")
    assert sampling.commit() == "all"


@pytest.fixture
def costly(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    seconds = {f"tests/smoke/test_{number}.py::test_it": 40.0 - number for number in range(sampling.PARTS)}
    monkeypatch.setattr(sampling, "costly", lambda: seconds)
    return seconds


def test_costly_tests_of_a_folder_take_turns_with_equal_shares_of_the_seconds(costly: dict[str, float]) -> None:
    items: list[Any] = [Item(name, "") for name in costly]
    parts = [{item.nodeid for item in items} for _ in range(sampling.PARTS)]
    for turn, part in enumerate(parts):
        part -= {item.nodeid for item in sampling.left_out(items, f"{turn:08x}")}
    assert set.union(*parts) == set(costly)
    assert sum(map(len, parts)) == len(costly)
    sums = [sum(costly[name] for name in part) / len(part) for part in parts]
    assert max(sums) - min(sums) < sampling.PARTS


def test_what_every_commit_proves_and_the_few_of_a_file_run_always(costly: dict[str, float]) -> None:
    every: list[Any] = [Item(name, "every") for name in costly]
    few: list[Any] = [Item(name, "") for name in list(costly)[: sampling.PARTS - 1]]
    assert sampling.left_out(every, "00000000") == sampling.left_out(few, "00000000") == set()


def test_folders_with_few_costly_tests_take_turns_together(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"tests/{folder}/test_it.py::test_it[/dev/{number}]" for folder in ("fix", "net") for number in range(9)]
    names += [f"tests/test_it.py::test_it[/dev/{number}]" for number in range(6)]
    monkeypatch.setattr(sampling, "costly", lambda: dict.fromkeys(names, 1.0))
    items: list[Any] = [Item(name, "") for name in names]
    assert len(items) - len(sampling.left_out(items, "00000000")) == len(items) // sampling.PARTS


def test_the_costly_tests_are_named_as_their_files_have_them() -> None:
    """A renamed test would run for every commit: take its new name into the list."""
    texts = {file: (sampling.ROOT / file).read_text(encoding="utf-8") for file in files(sampling.costly())}
    names = [(nodeid.partition("::")[0], nodeid.partition("[")[0].split("::")[-1]) for nodeid in sampling.costly()]
    assert [name for file, name in names if f"def {name}(" not in texts[file]] == []
    assert min(sampling.costly().values()) >= sampling.COSTLY_SECONDS


def files(nodeids: dict[str, float]) -> set[str]:
    return {nodeid.partition("::")[0] for nodeid in nodeids}
