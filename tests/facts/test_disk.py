"""Room on the file systems that a job writes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from doctor.engine.fact import Unreadable
from doctor.facts.disk import DiskSpace, list_file_systems
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6

ONE = {"path": "/", "size": 100, "free": 50, "files": 10, "files_free": 5, "read_only": False}


def test_the_facts_of_this_machine_are_read() -> None:
    found = answered(DiskSpace, list_file_systems({}))
    assert found.file_systems[0].path == "/"
    assert found.file_systems[0].size > 0


def test_a_folder_that_is_not_there_yet_stands_for_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", "/no/such/folder")
    assert "/no/such/folder" not in [one["path"] for one in list_file_systems({})]


def test_every_file_system_once() -> None:
    paths = [one["path"] for one in list_file_systems({})]
    assert len(paths) == len(set(paths))


def test_the_jobs_own_folders_are_named_where_they_are_there(tmp_path: Path) -> None:
    listed = list_file_systems({"folders": [str(tmp_path), "/no/such/folder"]})
    assert [one["job_folder"] for one in listed if one["job_folder"]] == [str(tmp_path)]
    assert len({(one["path"], one["read_only"]) for one in listed}) == len(listed)


def test_the_jobs_temporary_folder_is_named_where_it_is_not_there(tmp_path: Path) -> None:
    for path, missing in ((tmp_path, []), (tmp_path / "absent" / "x", [str(tmp_path / "absent" / "x")])):
        listed = list_file_systems({"folders": [str(path), "/no/such"], "temporary_folder": str(path)})
        assert [one["missing_folder"] for one in listed if one["missing_folder"]] == missing


@pytest.mark.parametrize("seen", [[], [{**ONE, "free": 101}], [{**ONE, "free": -1}]])
def test_malformed_output_is_unreadable(seen: object) -> None:
    assert isinstance(answered(DiskSpace, seen), Unreadable)


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(DiskSpace, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(list_file_systems)
