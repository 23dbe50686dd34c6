"""What is read of paths: on this machine's own files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from doctor.engine.fact import Absent
from doctor.facts.host_variables import NcclFiles, read_nccl_files
from doctor.facts.path_contents import read_paths
from tests.facts.answers import answered


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


def test_the_files_of_nccl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in src/misc/param.cc of NCCL: what an earlier file sets stays."""
    monkeypatch.setattr("doctor.facts.host_variables._GPU_FILES", ("null",))
    mine = tmp_path / "mine"
    mine.write_text("# a remark\nNCCL_ALGO=Rings\r\nNCCL_NET\nLD_PRELOAD=/x\nNCCL_ALGO=Tree\nNCCL_DEBUG=\x1b[31mINFO\n")
    asked = read_nccl_files({"environ": {"NCCL_CONF_FILE": str(mine)}})
    assert asked is not None and asked[str(mine)] == mine.read_bytes().decode()
    files = answered(NcclFiles, {**asked, "/etc/nccl.conf": "NCCL_ALGO=Ring\nNCCL_PROTO=LL\n"})
    assert (files.variables["NCCL_ALGO"], files.variables["NCCL_PROTO"]) == ("Rings", "LL")
    assert files.paths == {"NCCL_ALGO": str(mine), "NCCL_DEBUG": str(mine), "NCCL_PROTO": "/etc/nccl.conf"}
    assert "\x1b" not in files.variables["NCCL_DEBUG"]
    os.mkfifo(tmp_path / "pipe")
    assert (read_nccl_files({"environ": {"NCCL_CONF_FILE": str(tmp_path / "pipe")}}) or {})[
        str(tmp_path / "pipe")
    ] == ""


def test_no_files_of_nccl_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.facts.host_variables._GPU_FILES", ("absent",))
    assert isinstance(answered(NcclFiles, read_nccl_files({})), Absent)
