"""The program that works on a host, by every python3 that hosts may have, over plain pipes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from doctor.fix import remote_client as hands
from doctor.fix.bootstrap import executor_request
from doctor.fix.executor.file_state import LARGEST_FILE
from doctor.fix.remote_client import ConnectionLost, RemoteExecutor, RequestRejected
from doctor.remote.request import Request
from doctor.transport.local import Local
from tests.test_collector import PYTHONS

HOST = "here"


def test_its_command_is_safe_for_every_login_shell() -> None:
    """Words and single-quoted text: no exclamation mark for csh, no backslash for fish, nothing of ours unquoted."""
    command = executor_request(True, 1.0).command
    assert not set("!\\\n") & set(command)
    assert command.count("'") == 2
    assert command.startswith("exec sh -c '")


@pytest.fixture(params=PYTHONS, ids=lambda path: Path(path).parts[-3])
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hand() -> Iterator[RemoteExecutor]:
    one = RemoteExecutor(Local(), HOST, root=False)
    yield one
    one.close()


def described(data: bytes, mode: int = 0o644) -> dict[str, Any]:
    sha, uid, gid = hashlib.sha256(data).hexdigest(), os.geteuid(), os.getegid()
    return {"data": base64.b64encode(data).decode(), "sha": sha, "mode": mode, "uid": uid, "gid": gid}


def written(path: Path, data: bytes, sha: str = "", missing: tuple[str, ...] = (), mode: int = 0o644) -> dict[str, Any]:
    """A request to write a file of ours."""
    one = {**described(data, mode), "sha": sha, "path": str(path), "missing": list(missing)}
    return {"op": "write", **one}


def test_every_python_runs_it(python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_this(root: bool, lock: float) -> Request:
        request = executor_request(root, lock)
        command = request.command.replace("for p in python3 ", f"for p in {python} ")
        assert command != request.command
        return Request(command, request.stdin, request.marker)

    monkeypatch.setattr(hands, "executor_request", by_this)
    one, path = RemoteExecutor(Local(), HOST, root=True, lock=-1), tmp_path / "a" / "b"
    assert one.uid == os.geteuid()
    said = one.call("run", sh="echo out; echo err >&2; exit 3", limit=100)
    assert (said["code"], said["out"], said["err"]) == (3, "out\n", "err\n")
    seen = one.call("peek", path=str(path))
    assert (seen["kind"], seen["missing"], seen["trouble"]) == ("absent", [str(path.parent)], "")
    one.call(**written(path, b"\x00new\xff", missing=(str(path.parent),), mode=0o640))
    assert path.read_bytes() == b"\x00new\xff"
    assert path.stat().st_mode & 0o7777 == 0o640
    new = hashlib.sha256(b"\x00new\xff").hexdigest()
    gone = {"sha": ""}
    said = one.call("restore", path=str(path), old=gone, new=new, missing=[str(path.parent)], force=False)
    assert said == {"took": "removed"}
    assert list(tmp_path.iterdir()) == []
    assert "holders" in one.call("busy")
    one.close()


def test_a_command_has_no_stdin_and_its_own_session(hand: RemoteExecutor) -> None:
    said = hand.call("run", sh="cat; ps -o sid= -p $$ | tr -d ' '; echo $$", limit=100)
    session, pid = said["out"].split()
    assert session == pid


def test_a_command_that_does_not_end_is_ended_and_said_to_be(hand: RemoteExecutor) -> None:
    said = hand.call("run", 0.3, sh="echo one; sleep 60", limit=100)
    assert "did not end within 0.3 s" in said["trouble"]
    assert said["out"] == "one\n"


def test_a_command_that_prints_without_end_is_ended_in_time(hand: RemoteExecutor) -> None:
    result = hand.call("run", 0.3, sh="yes", limit=4)
    assert (result["out"], result["cut"], result["code"]) == ("y\ny\n", True, -9)
    assert "did not end within 0.3 s" in result["trouble"]


def test_what_a_command_leaves_behind_does_not_hold_it(hand: RemoteExecutor) -> None:
    began = time.monotonic()
    said = hand.call("run", 30, sh="sleep 5 & echo done", limit=100)
    assert (said["code"], said["out"]) == (0, "done\n")
    assert time.monotonic() - began < 4


def test_only_the_first_of_too_much_is_kept(hand: RemoteExecutor) -> None:
    said = hand.call("run", sh="yes | head -c 100000", limit=10)
    assert (said["out"], said["cut"], said["code"]) == ("y\ny\ny\ny\ny\n", True, 0)


def test_a_file_that_has_changed_is_not_written(hand: RemoteExecutor, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"theirs")
    with pytest.raises(RequestRejected, match="has changed since"):
        hand.call(**written(path, b"ours", sha=hashlib.sha256(b"old").hexdigest()))
    with pytest.raises(RequestRejected, match="has changed since"):
        hand.call(**written(path, b"ours"))
    assert path.read_bytes() == b"theirs"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_link_that_came_meanwhile_is_not_followed(hand: RemoteExecutor, tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestRejected, match="is a link by now"):
        hand.call(**written(tmp_path / "file", b"ours"))
    assert hand.call("peek", path=str(tmp_path / "file"))["real"] == str(tmp_path / "elsewhere")


def test_a_folder_that_anybody_may_write_is_no_place_for_root(hand: RemoteExecutor, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    seen = hand.call("peek", path=str(tmp_path / "file"))
    assert ("anybody may write" in seen["trouble"]) == (os.geteuid() == 0)


@pytest.mark.parametrize("path", ["/dev/null", "/", "/proc/self/mounts/x"])
def test_what_is_no_plain_file_is_not_touched(hand: RemoteExecutor, path: str) -> None:
    assert hand.call("peek", path=path)["trouble"]


def test_a_large_file_is_not_touched(hand: RemoteExecutor, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (LARGEST_FILE + 1))
    assert "longer than" in hand.call("peek", path=str(tmp_path / "large"))["trouble"]


def test_a_file_is_restored_with_its_mode_and_only_once(hand: RemoteExecutor, tmp_path: Path) -> None:
    path, new = tmp_path / "file", hashlib.sha256(b"new").hexdigest()
    path.write_bytes(b"new")
    words: dict[str, Any] = {
        "path": str(path),
        "old": described(b"old", 0o604),
        "new": new,
        "missing": [],
        "force": False,
    }
    assert hand.call("restore", **words) == {"took": "restored"}
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"old", 0o604)
    assert hand.call("restore", **words) == {"took": "already as before"}


def test_what_somebody_wrote_since_is_kept_unless_forced(hand: RemoteExecutor, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"theirs")
    words: dict[str, Any] = {"path": str(path), "old": described(b"old"), "new": "other", "missing": []}
    with pytest.raises(RequestRejected, match="was changed since"):
        hand.call("restore", force=False, **words)
    assert path.read_bytes() == b"theirs"
    hand.call("restore", force=True, **words)
    assert path.read_bytes() == b"old"


def test_a_folder_that_was_made_stays_when_somebody_uses_it(hand: RemoteExecutor, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    hand.call(**written(folder / "file", b"x", missing=(str(folder),)))
    (folder / "theirs").touch()
    new = hashlib.sha256(b"x").hexdigest()
    hand.call("restore", path=str(folder / "file"), old={"sha": ""}, new=new, missing=[str(folder)], force=False)
    assert [one.name for one in folder.iterdir()] == ["theirs"]


def test_one_at_a_time_works_on_a_host() -> None:
    first = RemoteExecutor(Local(), HOST, root=False, lock=20)
    with pytest.raises(ConnectionLost, match="another doctor fix is running on it"):
        RemoteExecutor(Local(), HOST, root=False, lock=0)
    RemoteExecutor(Local(), HOST, root=False).close()
    first.close()
    RemoteExecutor(Local(), HOST, root=False, lock=20).close()


def test_a_step_comes_to_its_end_when_nobody_listens_any_more(tmp_path: Path) -> None:
    gate, done, one = tmp_path / "gate", tmp_path / "done", executor_request(False, -1)
    os.mkfifo(gate)
    program = subprocess.Popen(shlex.split(one.command)[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin and program.stdout
    sh = f"echo begun >{gate}; read line <{gate}; echo $line >{done}"
    request = json.dumps({"op": "run", "seconds": 30, "limit": 9, "sh": sh})
    program.stdin.write(one.stdin + request.encode() + b"\n")
    program.stdin.close()
    assert gate.read_text() == "begun\n"
    program.stdout.close()
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        program.send_signal(number)
    gate.write_text("gone on\n")
    assert program.wait(20) == 0
    assert done.read_text() == "gone on\n"


class Liar:
    """A conversation with a host that answers what it likes."""

    host, err, code = HOST, b"", None

    def __init__(self, marker: str, *answers: str) -> None:
        self.lines = [f"{marker} {answer}".encode() for answer in answers]

    def send(self, data: bytes) -> None: ...

    def close(self, grace: float = 1.0) -> None: ...

    def __iter__(self) -> Iterator[bytes]:
        yield from [b"Welcome!", *self.lines]


HELLO = '{"uid": 0}'


@pytest.mark.parametrize(
    "answers",
    [
        ["{"],
        ["[]"],
        ["[" * 100000],
        ['{"uid": "root"}'],
        ["{}"],
        [HELLO, "3"],
        [HELLO, '{"code": "0", "out": "", "err": "", "cut": false}'],
        [HELLO, '{"out": ""}'],
        [HELLO],
    ],
)
def test_a_host_that_answers_what_it_likes_is_lost_and_no_bug_of_ours(
    answers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = executor_request(False, -1)
    monkeypatch.setattr(hands, "executor_request", lambda root, lock: one)
    transport = Local()
    monkeypatch.setattr(transport, "open_session", lambda host, command: Liar(one.marker, *answers))
    with pytest.raises(ConnectionLost):
        RemoteExecutor(transport, HOST, root=False).call("run", sh="true", limit=9)
