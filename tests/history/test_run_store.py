"""Where runs lie: bounded, private, whole or not at all; and what is not believed."""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.config.file import HistorySettings
from doctor.history.run_record import MAX_DECODED_BYTES, BadRecord, RunView, decode, encode
from doctor.history.run_store import HistoryFolder, NoHistory, open_history
from tests.history.runs import LINK, record

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=timezone.utc)


@contextmanager
def opened(state: Path, create: bool = True) -> Iterator[HistoryFolder]:
    with open_history({"XDG_STATE_HOME": str(state)}, create) as folder:
        yield folder


def test_a_run_comes_back_as_it_was() -> None:
    run_record = record(1, n1="E", n2="W", n3="A", n4=".", n5="?", n6="s")
    view = RunView(decode(encode(run_record)))
    assert view.record == run_record
    states = [view.state(LINK, f"n{number}") for number in range(1, 7)]
    assert states == ["error", "warning", "waived", "clear", None, None]


@given(st.binary(max_size=200))
def test_anything_else_is_no_record(data: bytes) -> None:
    for content in (data, zlib.compress(data), zlib.compress(msgspec.msgpack.encode([1, data]))):
        with pytest.raises(BadRecord):
            decode(content)


def test_a_small_file_of_many_bytes_is_not_unpacked() -> None:
    with pytest.raises(BadRecord):
        decode(zlib.compress(bytes(MAX_DECODED_BYTES + 1)))


def test_another_format_is_not_read() -> None:
    with pytest.raises(BadRecord, match="format 2"):
        decode(encode(msgspec.structs.replace(record(1, n1="."), format=2)))


def test_folder_and_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "state") as folder:
        name = folder.write(record(1, n1="E"), NOW)
    path = tmp_path / "new" / "state" / "doctor" / "history"
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((path / name).stat().st_mode) == 0o600
    assert os.listdir(path) == [name]


def test_it_keeps_no_more_than_the_settings_say(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        for hours in range(10):
            folder.write(record(hours, n1="."), NOW + timedelta(hours=hours))
        all_names = folder.names()
        folder.prune(HistorySettings(runs=6), NOW + timedelta(hours=10))
        assert folder.names() == all_names[-6:]
        folder.prune(HistorySettings(days=1), NOW + timedelta(days=1, hours=7, minutes=30))
        assert folder.names() == all_names[-2:]
        (Path(folder.path) / all_names[-2]).write_bytes(bytes(1 << 20))
        folder.prune(HistorySettings(mebibytes=1), NOW)
        assert folder.names() == all_names[-1:]


def test_it_removes_what_a_killed_run_left_and_nothing_else(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        path = Path(folder.path)
        remaining, fresh, other = (
            path / name for name in (f".{'20261121-140000-000000-00000000'}.run", ".x.run", "notes")
        )
        for file in (remaining, fresh, other):
            file.write_bytes(b"")
            os.utime(file, (0, 0))
        folder.prune(HistorySettings(), NOW)
        assert sorted(os.listdir(path)) == [".x.run", "notes"]


def test_a_damaged_file_is_counted_and_a_link_is_not_followed(tmp_path: Path) -> None:
    with opened(tmp_path) as folder:
        name = folder.write(record(1, n1="E"), NOW)
        (Path(folder.path) / name.replace("14", "15", 1)).write_bytes(b"x")
        (Path(folder.path) / name.replace("14", "16", 1)).symlink_to(Path(folder.path) / name)
        os.mkfifo(Path(folder.path) / name.replace("14", "17", 1))
        assert [run.started for run in folder.newest(9)] == ["2026-11-21T14:01:00Z"]
        assert folder.damaged == 3


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with opened(tmp_path) as folder:
        monkeypatch.setattr(os, "rename", full)
        with pytest.raises(OSError, match="No space"):
            folder.write(record(1, n1="E"), NOW)
        assert os.listdir(folder.path) == []


def test_many_runs_at_once_all_arrive(tmp_path: Path) -> None:
    def run(number: int) -> None:
        with opened(tmp_path) as folder:
            folder.write(record(number % 60, n1="E"), NOW)
            folder.prune(HistorySettings(runs=1000), NOW)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(run, range(200)))
    with opened(tmp_path) as folder:
        assert len(list(folder.newest(1000))) == 200
        assert folder.damaged == 0


class TestFolder:
    def test_without_a_home_there_is_nothing_to_say(self, tmp_path: Path) -> None:
        for environ in ({}, {"HOME": ""}, {"HOME": "relative"}, {"HOME": str(tmp_path / "absent")}):
            with pytest.raises(NoHistory, match=r"\A\Z"), open_history(environ, create=True):
                pass
        assert os.listdir(tmp_path) == []

    def test_a_folder_is_made_only_to_write(self, tmp_path: Path) -> None:
        with pytest.raises(NoHistory, match=r"\A\Z"), opened(tmp_path, create=False):
            pass
        assert os.listdir(tmp_path) == []

    def test_a_link_to_dev_null_keeps_none(self, tmp_path: Path) -> None:
        (tmp_path / "doctor").mkdir()
        (tmp_path / "doctor" / "history").symlink_to(os.devnull)
        with pytest.raises(NoHistory, match=r"\A\Z"), opened(tmp_path):
            pass

    @pytest.mark.parametrize("part", ["doctor", "doctor/history"])
    def test_a_link_is_not_followed(self, tmp_path: Path, part: str) -> None:
        (tmp_path / "elsewhere" / "history").mkdir(parents=True)
        (tmp_path / part).parent.mkdir(exist_ok=True)
        (tmp_path / part).symlink_to(tmp_path / "elsewhere")
        with pytest.raises(NoHistory, match=r"\S"), opened(tmp_path):
            pass
        assert os.listdir(tmp_path / "elsewhere" / "history") == []

    @pytest.mark.parametrize("part", ["doctor", "doctor/history"])
    def test_one_that_others_may_write_is_refused(self, tmp_path: Path, part: str) -> None:
        with opened(tmp_path):
            (tmp_path / part).chmod(0o777)
        with pytest.raises(NoHistory, match="others can write it"), opened(tmp_path):
            pass

    @pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")
    def test_another_users_is_refused_and_nothing_is_made_in_their_home(self, tmp_path: Path) -> None:
        with opened(tmp_path / "theirs"):
            os.chown(tmp_path / "theirs" / "doctor", 1234, 1234)
        with pytest.raises(NoHistory, match="is owned by user 1234"), opened(tmp_path / "theirs"):
            pass
        home = tmp_path / "home"
        home.mkdir()
        os.chown(home, 1234, 1234)
        with pytest.raises(NoHistory, match="belongs to user 1234"), open_history({"HOME": str(home)}, create=True):
            pass
        assert os.listdir(home) == []

    def test_a_file_in_its_place_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "doctor").write_text("")
        with pytest.raises(NoHistory, match=r"doctor/history: "), opened(tmp_path):
            pass
