"""Files are there whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.config.atomic_write import write_atomic


def test_a_file_is_replaced_in_one_step_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(b"before")
    with path.open("rb") as reader:
        write_atomic(path, b"after")
        assert reader.read() == b"before"
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write_atomic(tmp_path / "link", b"x")
    assert (tmp_path / "real").read_bytes() == b"x"
    assert (tmp_path / "link").is_symlink()


def test_what_is_no_plain_file_is_written_into(tmp_path: Path) -> None:
    """The log of a container's end is a mount, and stderr a pipe: neither can be replaced."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from doctor.config.atomic_write import write_atomic; write_atomic('/dev/stderr', b'said')",
        ],
        stderr=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.stderr == b"said"


def test_a_folder_that_is_not_there_is_an_error_that_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "no" / "file", b"x")
    assert os.listdir(tmp_path) == []


@pytest.mark.hosts
def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    """A real file system of 64 KiB, full."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=True)
    try:
        path = tmp_path / "report.json"
        write_atomic(path, b"before")
        with pytest.raises(OSError, match="No space left"):
            write_atomic(path, bytes(1 << 17))
        assert path.read_bytes() == b"before"
        assert os.listdir(tmp_path) == ["report.json"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)
