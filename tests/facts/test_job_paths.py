"""What is read of paths: on this machine's own files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from doctor.facts.job_paths import read_paths


def test_files_folders_and_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    folder = tmp_path / "d"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "x").write_text("1")
    (folder / "link").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe")
    names = [str(tmp_path / name) for name in ("a", "d", "pipe", "gone", "a/under")]
    states = read_paths({"paths": names})
    assert states[names[0]] == {"kind": "file", "size": 3, "files": 1, "checksum": hashlib.sha256(b"abc").hexdigest()}
    assert (states[names[1]]["kind"], states[names[1]]["files"], states[names[1]]["size"]) == ("folder", 2, 1)
    assert states[names[2]]["problem"] == "neither a file nor a folder"
    assert [states[name]["kind"] for name in names[3:]] == ["", ""]


def test_a_folder_is_equal_by_its_content_and_names_not_by_its_place(tmp_path: Path) -> None:
    for name, text in (("one", "x"), ("two", "x"), ("three", "y")):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file").write_text(text)
    first, second, third = (
        read_paths({"paths": [str(tmp_path / name)]})[str(tmp_path / name)]["checksum"]
        for name in ("one", "two", "three")
    )
    assert first == second != third
    (tmp_path / "two" / "sub" / "file").rename(tmp_path / "two" / "sub" / "other")
    assert read_paths({"paths": [str(tmp_path / "two")]})[str(tmp_path / "two")]["checksum"] != first


def test_a_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    states = read_paths({"paths": [str(tmp_path / "a"), str(tmp_path / "link")]})
    assert len({state["checksum"] for state in states.values()}) == 1
