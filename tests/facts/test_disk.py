"""Room on the file systems that a job writes to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given

from doctor.engine.fact import Unreadable
from doctor.facts.disk import DiskSpace, list_file_systems
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6

ROOT_FILE_SYSTEM = {"path": "/", "size": 100, "free": 50, "files": 10, "files_free": 5, "read_only": False}


def test_the_facts_of_this_machine_are_read() -> None:
    disk_space = answered(DiskSpace, list_file_systems({}))
    assert disk_space.file_systems[0].path == "/"
    assert disk_space.file_systems[0].size > 0


def test_a_folder_that_is_not_there_yet_stands_for_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_PROCESS_LOG_PATH", "/no/such/folder")
    assert "/no/such/folder" not in [file_system["path"] for file_system in list_file_systems({})]


def test_every_file_system_once() -> None:
    paths = [file_system["path"] for file_system in list_file_systems({})]
    assert len(paths) == len(set(paths))


def test_the_jobs_own_folders_are_named_where_they_are_there(tmp_path: Path) -> None:
    listed = list_file_systems({"folders": [str(tmp_path), "/no/such/folder"]})
    assert [entry["job_folder"] for entry in listed if entry["job_folder"]] == [str(tmp_path)]
    assert len({(entry["path"], entry["read_only"]) for entry in listed}) == len(listed)


def test_the_jobs_temporary_folder_is_named_where_it_is_not_there(tmp_path: Path) -> None:
    for path, absent in ((tmp_path, []), (tmp_path / "absent" / "x", [str(tmp_path / "absent" / "x")])):
        listed = list_file_systems({"folders": [str(path), "/no/such"], "temporary_folder": str(path)})
        assert [entry["missing_folder"] for entry in listed if entry["missing_folder"]] == absent


def test_a_folder_that_a_job_writes_to_and_this_user_may_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*folders: str) -> list[str]:
        return [path for entry in list_file_systems({"folders": list(folders)}) for path in entry["refused"]]

    monkeypatch.setenv("HOME", str(tmp_path))
    assert refused() == []
    monkeypatch.setattr(os, "access", lambda path, mode: path != str(tmp_path))
    assert refused() == [str(tmp_path)]
    monkeypatch.setenv("HOME", str(tmp_path / "none"))
    assert refused() == [], "a user without a home folder"
    assert refused(str(tmp_path)) == [str(tmp_path)], "the job's own folder"


@pytest.mark.parametrize("observed", [[], [{**ROOT_FILE_SYSTEM, "free": 101}], [{**ROOT_FILE_SYSTEM, "free": -1}]])
def test_malformed_output_is_unreadable(observed: object) -> None:
    assert isinstance(answered(DiskSpace, observed), Unreadable)


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(DiskSpace, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(list_file_systems)
