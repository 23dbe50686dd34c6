"""A secret that a user's processes share, and nobody else has."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from doctor.config.user_key import user_key


def environ(home: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(home)}


def test_processes_that_start_at_once_have_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: user_key(environ(tmp_path)), range(32)))
    assert len(keys) == 1 and len(keys.pop()) == 32
    assert stat.S_IMODE((tmp_path / "doctor/key").stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "doctor") == ["key"]


def test_two_users_have_two(tmp_path: Path) -> None:
    assert user_key(environ(tmp_path / "a")) != user_key(environ(tmp_path / "b"))


def test_none_where_none_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert user_key({}) == user_key(environ(tmp_path / "file")) == ""


@pytest.mark.parametrize("text", ["", "short\n", "z" * 32])
def test_what_is_no_key(text: str, tmp_path: Path) -> None:
    path = tmp_path / "doctor/key"
    path.parent.mkdir()
    path.touch(0o600)
    path.write_text(text)
    assert user_key(environ(tmp_path)) == ""


def test_one_that_others_can_read_or_a_link_is_no_secret(tmp_path: Path) -> None:
    key = user_key(environ(tmp_path))
    path = tmp_path / "doctor/key"
    path.chmod(0o644)
    assert user_key(environ(tmp_path)) == ""
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert user_key(environ(tmp_path)) == "" != key
