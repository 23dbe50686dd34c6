from __future__ import annotations

import os
from pathlib import Path

import pytest

from doctor.watch.report_files import ReportFiles


def test_a_file_that_was_there_before_the_watch_is_replaced_once(tmp_path: Path) -> None:
    path = tmp_path / "watch.json"
    path.write_text("of an earlier run")
    files = ReportFiles([str(path)])
    assert files.free_path(str(path)) == str(path)
    path.write_text("first")
    assert files.free_path(str(path)) == str(tmp_path / "watch-2.json")
    assert files.free_path(str(path)) == str(tmp_path / "watch-3.json")


def test_two_watches_with_one_file_do_not_write_over_each_other(tmp_path: Path) -> None:
    path = str(tmp_path / "watch.json")
    first, second = ReportFiles([path]), ReportFiles([path])
    places = [first.free_path(path), second.free_path(path)]
    assert places == [path, str(tmp_path / "watch-2.json")]


def test_a_file_that_another_watch_replaced_meanwhile_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "watch"
    path.write_text("of an earlier run")
    files = ReportFiles([str(path)])
    path.write_text("of another watch, written meanwhile")
    assert files.free_path(str(path)) == str(tmp_path / "watch-2")


@pytest.mark.parametrize("name", ["/dev/null", "/nonexistent/folder/watch.json"])
def test_what_is_no_file_keeps_its_name(name: str) -> None:
    files = ReportFiles([name])
    assert [files.free_path(name), files.free_path(name)] == [name, name]


def test_a_fifo_is_not_renamed(tmp_path: Path) -> None:
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    files = ReportFiles([path])
    assert [files.free_path(path), files.free_path(path)] == [path, path]
