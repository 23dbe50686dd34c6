"""The look of every report, letter by letter. After a change that is meant: ``python -m tests.report.golden``."""

from __future__ import annotations

import re

import pytest

from tests.report.golden import FOLDER, files

FILES = dict(files())


@pytest.mark.parametrize("name", FILES)
def test_it_looks_as_it_did(name: str) -> None:
    assert FILES[name]() == (FOLDER / name).read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    assert {file.name for file in FOLDER.glob("*.txt")} == set(FILES)


@pytest.mark.parametrize("name", [name for name in FILES if ".zh" in name])
def test_no_sentence_ends_twice_in_chinese(name: str) -> None:
    assert not re.findall(r".{0,20}[。；，：][。；，：].{0,20}|.{0,20}。\.(?!\w)", (FOLDER / name).read_text("utf-8"))
