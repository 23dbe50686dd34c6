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
from doctor.fix.executor import executor as program
from doctor.fix.executor.file_changes import RequestRejected as Rejected
from doctor.fix.executor.file_state import LARGEST_FILE
from doctor.fix.remote_client import (
    BusyResponse,
    ConnectionLost,
    Done,
    FilesResponse,
    FilterResponse,
    RecallResponse,
    RemoteExecutor,
    RequestRejected,
    RunResponse,
    executor_request,
)
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
def executor() -> Iterator[RemoteExecutor]:
    executor = RemoteExecutor(Local(), HOST, root=False)
    yield executor
    executor.close()


def described(data: bytes, mode: int = 0o644) -> dict[str, Any]:
    sha, uid, gid = hashlib.sha256(data).hexdigest(), os.geteuid(), os.getegid()
    return {"data": base64.b64encode(data).decode(), "sha": sha, "mode": mode, "uid": uid, "gid": gid, "xattrs": {}}


def written(path: Path, data: bytes, sha: str = "", absent: tuple[str, ...] = (), mode: int = 0o644) -> dict[str, Any]:
    """A request to write a file of ours."""
    return {**described(data, mode), "sha": sha, "path": str(path), "missing": list(absent)}


def test_every_python_runs_it(python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def by_this(root: bool, lock: float) -> Request:
        request = executor_request(root, lock)
        command = request.command.replace("for p in python3 ", f"for p in {python} ")
        assert command != request.command
        return Request(command, request.program, request.first, request.marker)

    monkeypatch.setattr(hands, "executor_request", by_this)
    executor, path = RemoteExecutor(Local(), HOST, root=True, lock=-1), tmp_path / "a" / "b"
    assert executor.uid == os.geteuid()
    responses = executor.call(RunResponse, "run", sh="echo out; echo err >&2; exit 3", limit=100)
    assert (responses.code, responses.out, responses.err) == (3, "out\n", "err\n")
    answer = executor.peek(str(path))
    assert (answer.kind, answer.missing, answer.trouble) == ("absent", [str(path.parent)], "")
    executor.call(Done, "write", **written(path, b"\x00new\xff", absent=(str(path.parent),), mode=0o640))
    assert path.read_bytes() == b"\x00new\xff"
    assert path.stat().st_mode & 0o7777 == 0o640
    new = hashlib.sha256(b"\x00new\xff").hexdigest()
    assert executor.call(Done, "write", path=str(path), sha=new, missing=[str(path.parent)], data=None).sha == ""
    assert list(tmp_path.iterdir()) == []
    responses = executor.call(
        FilterResponse, "filter", sh='sed "s/a/$v/"', values={"v": "$(b)\xe9"}, data="AGEK", limit=99
    )
    assert responses.data == "\0$(b)\xe9\n".encode()
    assert isinstance(executor.call(BusyResponse, "busy").holders, list)
    executor.close()


def test_a_command_has_no_stdin_and_its_own_session(executor: RemoteExecutor) -> None:
    responses = executor.call(RunResponse, "run", sh="cat; ps -o sid= -p $$ | tr -d ' '; echo $$", limit=100)
    session, pid = responses.out.split()
    assert session == pid


def test_a_command_that_does_not_end_is_ended_and_said_to_be(executor: RemoteExecutor) -> None:
    responses = executor.call(RunResponse, "run", 0.3, sh="echo one; sleep 60", limit=100)
    assert "did not end within 0.3 s" in responses.trouble
    assert responses.out == "one\n"


def test_a_command_that_prints_without_end_is_ended_in_time(executor: RemoteExecutor) -> None:
    result = executor.call(RunResponse, "run", 0.3, sh="yes", limit=4)
    assert (result.out, result.cut, result.code) == ("y\ny\n", True, -9)
    assert "did not end within 0.3 s" in result.trouble


def test_what_a_command_leaves_behind_does_not_hold_it(executor: RemoteExecutor) -> None:
    began = time.monotonic()
    responses = executor.call(RunResponse, "run", 30, sh="sleep 5 & echo done", limit=100)
    assert (responses.code, responses.out) == (0, "done\n")
    assert time.monotonic() - began < 4


def test_only_the_first_of_too_much_is_kept(executor: RemoteExecutor) -> None:
    responses = executor.call(RunResponse, "run", sh="yes | head -c 100000", limit=10)
    assert (responses.out, responses.cut, responses.code) == ("y\ny\ny\ny\ny\n", True, 0)


def test_a_file_that_has_changed_is_not_written(executor: RemoteExecutor, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"theirs")
    with pytest.raises(RequestRejected, match="has changed since"):
        executor.call(Done, "write", **written(path, b"ours", sha=hashlib.sha256(b"old").hexdigest()))
    with pytest.raises(RequestRejected, match="has changed since"):
        executor.call(Done, "write", **written(path, b"ours"))
    assert path.read_bytes() == b"theirs"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_link_that_came_meanwhile_is_not_followed(executor: RemoteExecutor, tmp_path: Path) -> None:
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RequestRejected, match="is now a link"):
        executor.call(Done, "write", **written(tmp_path / "file", b"ours"))
    assert executor.peek(str(tmp_path / "file")).real == str(tmp_path / "elsewhere")


def test_a_folder_that_anybody_may_write_is_no_place_for_root(executor: RemoteExecutor, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    answer = executor.peek(str(tmp_path / "file"))
    assert ("anybody can write" in answer.trouble) == (os.geteuid() == 0)


@pytest.mark.parametrize("path", ["/dev/null", "/", "/proc/self/mounts/x"])
def test_what_is_no_plain_file_is_not_touched(executor: RemoteExecutor, path: str) -> None:
    assert executor.peek(path).trouble


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sets flags of files")
@pytest.mark.parametrize(("flag", "name"), [("i", "immutable (chattr +i)"), ("a", "append-only (chattr +a)")])
def test_what_a_flag_keeps_as_it_is_is_known_before_the_first_step(
    executor: RemoteExecutor, tmp_path: Path, flag: str, name: str
) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("as it is")
    folder.mkdir()
    for path in (file, folder):
        if subprocess.run(["chattr", f"+{flag}", path], capture_output=True).returncode:
            pytest.skip("the file system of the test has no such flags")
    try:
        assert executor.peek(str(file)).trouble == f"is {name}"
        assert executor.peek(str(folder / "new")).trouble == f"{folder} is {name}"
    finally:
        subprocess.run(["chattr", f"-{flag}", file, folder], check=True)


def test_a_large_file_is_not_touched(executor: RemoteExecutor, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (LARGEST_FILE + 1))
    assert "longer than" in executor.peek(str(tmp_path / "large")).trouble


def test_a_file_comes_back_with_mode_and_attributes(executor: RemoteExecutor, tmp_path: Path) -> None:
    path, new = tmp_path / "file", hashlib.sha256(b"new").hexdigest()
    path.write_bytes(b"new")
    os.setxattr(path, "user.label", b"\0x")
    answer = executor.peek(str(path))
    assert answer.xattrs == {"user.label": b"\0x"}
    executor.call(
        Done,
        "write",
        **{**written(path, b"old", sha=new, mode=0o604), "xattrs": {"user.label": base64.b64encode(b"\0x").decode()}},
    )
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"old", 0o604)
    assert os.getxattr(path, "user.label") == b"\0x"


def test_a_link_that_a_tool_replaced_is_a_link_again(executor: RemoteExecutor, tmp_path: Path) -> None:
    path, target = tmp_path / "conf", tmp_path / "real"
    target.write_bytes(b"theirs")
    path.write_bytes(b"tool")
    with pytest.raises(RequestRejected, match="has changed since"):
        executor.call(Done, "relink", path=str(path), link="real", sha=hashlib.sha256(b"other").hexdigest())
    executor.call(Done, "relink", path=str(path), link="real", sha=hashlib.sha256(b"tool").hexdigest())
    assert (path.readlink(), path.read_bytes()) == (Path("real"), b"theirs")


def test_what_a_power_failure_left_beside_a_file_goes(executor: RemoteExecutor, tmp_path: Path) -> None:
    path = tmp_path / ".doctor-fix-0123456789ab"
    path.write_text("half")
    executor.call(Done, "tidy", path=str(tmp_path / "file"))
    assert not path.exists()
    path.write_text("half")
    executor.call(Done, "write", **written(tmp_path / "file", b"x"))
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_was_made_stays_when_somebody_uses_it(executor: RemoteExecutor, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    executor.call(Done, "write", **written(folder / "file", b"x", absent=(str(folder),)))
    (folder / "theirs").touch()
    sha = hashlib.sha256(b"x").hexdigest()
    executor.call(Done, "write", path=str(folder / "file"), sha=sha, missing=[str(folder)], data=None)
    assert [path.name for path in folder.iterdir()] == ["theirs"]


def test_a_pattern_names_its_files_and_not_too_many(executor: RemoteExecutor, tmp_path: Path) -> None:
    for name in ("a.xml", "b.xml", "c.txt"):
        (tmp_path / name).write_text(name)
    assert list(executor.call(FilesResponse, "peek_many", pattern=f"{tmp_path}/*.xml").files) == [
        f"{tmp_path}/{name}" for name in ("a.xml", "b.xml")
    ]
    assert executor.call(FilesResponse, "peek_many", pattern=f"{tmp_path}/no").files[f"{tmp_path}/no"].kind == "absent"
    for number in range(70):
        (tmp_path / f"{number}.xml").touch()
    with pytest.raises(RequestRejected, match="more than 64 files match"):
        executor.call(FilesResponse, "peek_many", pattern=f"{tmp_path}/*.xml")


def test_values_come_in_the_environment_and_an_absent_one_ends_the_command(executor: RemoteExecutor) -> None:
    evil = "$(touch /tmp/x)';\"`"
    responses = executor.call(RunResponse, "run", sh='printf %s "$v"', values={"v": evil}, limit=100)
    assert responses.out == evil
    assert executor.call(RunResponse, "run", sh='echo "$absent"', limit=100).code


def test_the_state_after_a_step_is_kept_for_a_lost_controller(executor: RemoteExecutor, tmp_path: Path) -> None:
    token, file = "0123456789abcdef" * 2, tmp_path / "file"
    expected = {"sh": f"cat {file}", "files": [str(file)]}
    responses = executor.call(RunResponse, "run", sh=f"echo new >{file}", limit=100, token=token, state=expected)
    assert responses.state
    assert (responses.state.output, responses.state.files[str(file)][str(file)].kind) == ("new", "file")
    if os.geteuid() == 0:
        assert executor.call(RecallResponse, "recall", token=token).state == responses.state
    executor.call(Done, "forget", token=token)
    assert executor.call(RecallResponse, "recall", token=token).state is None
    assert executor.call(RecallResponse, "recall", token="../../etc/passwd").state is None


def test_one_at_a_time_works_on_a_host() -> None:
    first = RemoteExecutor(Local(), HOST, root=False, lock=60)
    with pytest.raises(ConnectionLost, match=r"another doctor fix is running on it \(process \d+\)"):
        RemoteExecutor(Local(), HOST, root=False, lock=0)
    RemoteExecutor(Local(), HOST, root=False).close()
    first.close()
    RemoteExecutor(Local(), HOST, root=False, lock=60).close()


def test_no_other_user_can_hold_or_name_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a file where only root can make one, not a name that anybody may take first."""
    path = tmp_path / "lock"
    monkeypatch.setattr(program, "lock_path", lambda: str(path))
    fd, name = program.lock_host(0)
    assert path.stat().st_mode & 0o777 == 0o600
    program.unlock(fd, name)
    assert not path.exists()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Rejected, match="cannot be opened"):
        program.lock_host(0)
    path.unlink()
    path.touch()
    os.chown(path, 65534, 65534)
    with pytest.raises(Rejected, match="belongs to user 65534"):
        program.lock_host(0)
    assert program.ROOT_LOCK.startswith("/run/")


@pytest.mark.parametrize("module", ["step_commands", "executor"])
def test_no_limit_of_time_goes_by_the_clock_that_a_step_may_set(module: str) -> None:
    text = (Path(program.__file__).parent / f"{module}.py").read_text()
    assert "time.time()" not in text


def test_a_step_comes_to_its_end_when_nobody_listens_any_more(tmp_path: Path) -> None:
    gate, done, sample_request = tmp_path / "gate", tmp_path / "done", executor_request(False, -1)
    os.mkfifo(gate)
    program = subprocess.Popen(shlex.split(sample_request.command)[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdin and program.stdout
    sh = f"echo begun >{gate}; read line <{gate}; echo $line >{done}"
    request = json.dumps({"op": "run", "seconds": 30, "limit": 9, "sh": sh})
    program.stdin.write(sample_request.stdin + request.encode() + b"\n")
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
    request = executor_request(False, -1)
    monkeypatch.setattr(hands, "executor_request", lambda root, lock: request)
    transport = Local()
    monkeypatch.setattr(transport, "open_session", lambda host, command: Liar(request.marker, *answers))
    with pytest.raises(ConnectionLost):
        RemoteExecutor(transport, HOST, root=False).call(RunResponse, "run", sh="true", limit=9)
