"""What a watch that was killed has left is removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.watch import folder
from doctor.watch.folder import VARIABLE, WatchFolder, remove_remnants

WATCH = """
import sys
from doctor.watch import folder
folder.PLACES = (sys.argv[1],)
made = folder.WatchFolder.shared("job 7")[0] if sys.argv[2] == "shared" else folder.WatchFolder.create()
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where watches make their folders."""
    return tmp_path


class Watch:
    """A process that watches, as far as its folder is concerned."""

    def __init__(self, place: Path, way: str) -> None:
        command = [sys.executable, "-c", WATCH, str(place), way]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.folder = Path(self.process.stdout.readline().strip())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("way", ["own", "shared"])
def test_the_folder_of_a_watch_that_was_killed_is_removed_and_that_of_a_live_one_stays(place: Path, way: str) -> None:
    watch = Watch(place, way)
    try:
        assert (watch.folder / "hook" / "sitecustomize.py").is_file()
        assert remove_remnants([str(place)], VARIABLE) == []
        watch.kill()
        assert remove_remnants([str(place)], VARIABLE) == [str(watch.folder)]
        assert not watch.folder.exists()
    finally:
        watch.kill()


def test_ranks_that_outlive_their_watch_keep_its_folder(place: Path) -> None:
    watch = Watch(place, "own")
    environ = {**os.environ, VARIABLE: str(watch.folder)}
    rank = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        watch.kill()
        assert rank.stdout and rank.stdout.readline()
        assert remove_remnants([str(place)], VARIABLE) == []
    finally:
        rank.communicate(b"\n")
    assert remove_remnants([str(place)], VARIABLE) == [str(watch.folder)]


def test_what_is_not_this_users_folder_stays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious = place / "precious"
    precious.mkdir(mode=0o700)
    (place / "doctor-watch-link").symlink_to(precious)
    (place / "doctor-watch-file").write_text("")
    (place / "doctor-watch-open").mkdir(mode=0o755)
    (place / "doctor-watch-new").mkdir(mode=0o700)
    old = place / "doctor-watch-old"
    old.mkdir(mode=0o700)
    locked_elsewhere = place / "doctor-watch-lock"
    locked_elsewhere.mkdir(mode=0o700)
    (locked_elsewhere / "lock").symlink_to("/dev/null")
    for path in (old, precious):
        os.utime(path, (1, 1))
    assert remove_remnants([str(place)], VARIABLE) == [str(old)]
    monkeypatch.setattr(folder.os, "getuid", lambda: 12345)
    assert remove_remnants([str(place)], VARIABLE) == []


def test_in_a_folder_that_others_may_change_nothing_is_removed(place: Path) -> None:
    """They could put another folder there after this one was looked at."""
    old = place / "doctor-watch-old"
    old.mkdir(mode=0o700)
    os.utime(old, (1, 1))
    place.chmod(0o777)
    assert remove_remnants([str(place)], VARIABLE) == []
    place.chmod(0o1777)
    assert remove_remnants([str(place)], VARIABLE) == [str(old)]


def test_a_watch_removes_what_is_left_when_it_starts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "PLACES", (str(place),))
    watch = Watch(place, "own")
    watch.kill()
    new = WatchFolder.create()
    try:
        assert sorted(place.iterdir()) == [new.path]
    finally:
        new.remove()


def test_a_launch_takes_over_the_folder_of_the_same_launch_that_was_killed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "PLACES", (str(place),))
    watch = Watch(place, "shared")
    watch.kill()
    (watch.folder / "ranks" / "7").write_text("")
    new, watches = WatchFolder.shared("job 7")
    try:
        assert (new.path, watches) == (watch.folder, True)
        assert not list(new.ranks.iterdir())
        assert WatchFolder.shared("job 7")[1] is False
    finally:
        new.remove()
