"""`doctor bundle-logs`: what is taken of this host and of others, what is hidden, what is left out, and its diagnosis.

The vendors' tools do not exist here: those below are emulated, and write what the sources in `support.toml` say.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.diagnose.bundle.contents import SCHEMA, Contents, bundle_summary
from doctor.diagnose.bundle.pack import _PACKED, BLOCK, Packing, safe_part, safe_path
from doctor.diagnose.bundle.read import bundle_contents
from doctor.diagnose.bundle.spool import Header, HostSpool, Room, Spooled
from doctor.diagnose.bundle.support import BundleRequest, diagnosed_sections, support
from doctor.diagnose.bundler.file_text import FileText, NotText
from doctor.diagnose.bundler.tool_run import ToolRun
from doctor.diagnose.fetch.collect import validate_places
from doctor.engine import language
from tests import preloaded
from tests.test_one_way_out import SECRETS, assert_hidden

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {
    "npu-smi": 'if [ "$2" = -l ]; then echo "  NPU ID   : 0"; else echo "npu-smi $*"; fi',
    "msnpureport": "[ $1 = -f ] && mkdir -p 1124/slog && echo 'slog api_key=abcd1234secret' >1124/slog/d.log",
    "asys": 'd=${2#--output=}/asys_output_1; mkdir "$d"; ln -s /etc/passwd "$d/link"; echo ok >"$d/software_info.txt"',
}
QUICK = ("--no-tools", "--python", "true", "--since", "all")
WAITS = "2026-11-21 12:00:30 [rank{0}]: RuntimeError: [gloo/x.cc:81] Timed out waiting 10000ms for recv operation\n"
RAISES = "[rank2]: Traceback (most recent call last)\n[rank2]:   File 'x.py', line 3\n[rank2]: ValueError: bad batch\n"


def home_of(folder: Path, tools: bool = True) -> dict[str, str]:
    """The environment of a user with CANN's logs, and with the vendors' tools."""
    home, programs = folder / "home", folder / "bin"
    for path in (home / "ascend/log/run/plog", home / "job", programs, folder / "tmp"):
        path.mkdir(parents=True)
    for name, text in TOOLS.items() if tools else ():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environ = {"HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin", "TMPDIR": str(folder / "tmp")}
    return {**environ, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "XDG_STATE_HOME": str(folder / "state")}


def doctor(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "doctor", *arguments]
    done = preloaded.run(
        argv, env=environ, cwd=environ["HOME"], capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback (most" not in done.stderr, done.stderr
    return done


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {
            member.name: content.read()
            for member in archive
            if member.isreg() and (content := archive.extractfile(member))
        }


def contents_of(files: dict[str, bytes]) -> Contents:
    return msgspec.json.decode(files["CONTENTS.json"], type=Contents)


def test_a_bundle_of_this_host(tmp_path: Path) -> None:
    """Before a job and after it: tools, plog, environment; no secret in any member; the table tells each file."""
    environ = home_of(tmp_path)
    plog = Path(environ["HOME"], "ascend/log/run/plog")
    leaking = "".join(f"line: {text}\n" for text, _ in SECRETS)
    (plog / "plog-1.log").write_text(leaking)
    (plog / "plog-2.log.gz").write_bytes(gzip.compress(leaking.encode()))
    (plog / "odd\n..name").write_text("odd\n")
    (plog / "away").symlink_to("/etc/passwd")
    (plog / "core").write_bytes(b"\x7fELF" + b"x" * 100)
    (plog / "old.zip").write_bytes(b"PK\x03\x04" + b"x" * 100)
    (plog / "model.pt").write_bytes(b"x" * 100)
    os.mkfifo(plog / "pipe")
    environ |= {"HF_TOKEN": "value of two words", "JOB": "7"}
    doctor(environ, "bundle-logs", *QUICK[1:3], "--devices-only", "--out", "before.tar.gz")
    done = doctor(environ, "bundle-logs", "--before", "before.tar.gz", "--out", "after.tar.gz")
    assert done.returncode == 0, (done.stdout, done.stderr)
    files = members(Path(environ["HOME"], "after.tar.gz"))
    table = contents_of(files)
    assert table.schema == SCHEMA
    assert [name for name in files if name.startswith("/") or ".." in name.split("/")] == []
    assert_hidden(b"".join(files.values()).decode("utf-8", "replace"), "bundle")
    for entry in table.files:
        data = files[entry.member]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (entry.bytes, entry.sha256), entry.member
    names = {name.partition("/")[2] for name in files}
    below = environ["HOME"].strip("/") + "/ascend/log/run/plog"
    assert {f"process_log/{below}/plog-1.log", f"process_log/{below}/plog-2.log"} <= names
    assert {"environment_check/npu_info_before.txt", "environment_check/npu_info_after.txt"} <= names
    assert files["localhost/environment_check/npu_info_after.txt"].count(b"npu-smi info -t health -i 0 -c 0") == 2
    variables = files["localhost/environment/environment.txt"].decode()
    assert 'HF_TOKEN="[hidden]"' in variables and 'JOB="7"' in variables
    if not os.geteuid():
        assert files["localhost/device_log/1124/slog/d.log"] == b"slog api_key=[hidden]\n"
    assert "asys/asys_output_1/software_info.txt" in names and not any("link" in name for name in names)
    reasons = {row.reason for row in table.left_out}
    assert {"a link", "no regular file", "a program, or the memory of one", "no log by its name"} <= reasons
    assert "an archive: secrets in it cannot be searched for" in reasons
    assert "not installed" in reasons and "nvidia-smi: not installed" in done.stdout
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_tool_that_hangs_leaves_time_for_the_logs(tmp_path: Path) -> None:
    environ = home_of(tmp_path)
    Path(tmp_path, "bin/npu-smi").write_text("#!/bin/sh\nsleep 1000\n")
    mindie = Path(environ["HOME"], "mindie/log/debug")
    mindie.mkdir(parents=True)
    (mindie / "mindie-server.log").write_text("[ERROR] [MIE04E02041C] [endpoint] Failed to listen\n")
    done = doctor(environ, "bundle-logs", "--no-tools", "--timeout", "8", "--out", "hung.tar.gz")
    assert done.returncode == 0, (done.stdout, done.stderr)
    names = set(members(Path(environ["HOME"], "hung.tar.gz")))
    assert any(name.endswith("mindie/log/debug/mindie-server.log") for name in names), names
    assert {"localhost/environment_check/host_info_after.txt", "localhost/versions/ascend.txt"} <= names
    assert "npu_info_after.txt: did not end in its time" in done.stdout


def put_logs(folder: Path, last: str) -> None:
    """Ranks 0 and 1 wait for rank 2."""
    folder.mkdir(parents=True, exist_ok=True)
    steps = "".join(f"2026-11-21 11:{minute:02}:00 step {minute} loss 0.1\n" for minute in range(40))
    for rank in (0, 1):
        (folder / f"rank_{rank}.log").write_text(steps + WAITS.format(rank))
    (folder / "rank_2.log").write_text(steps + last)


def diagnosed(environ: dict[str, str], *paths: str) -> tuple[int, dict[str, Any]]:
    done = doctor(environ, "diagnose", *paths, "--json", "--no-history")
    return done.returncode, json.loads(done.stdout)


def test_the_diagnosis_of_a_bundle_is_that_of_its_logs(tmp_path: Path) -> None:
    """And a log that was left out makes nobody guilty."""
    environ = home_of(tmp_path, tools=False)
    folder = Path(environ["HOME"], "job")
    put_logs(folder, RAISES)
    done = doctor(environ, "bundle-logs", *QUICK, "--logs", "job", "--out", "b.tar.gz")
    assert done.returncode == 0, done.stderr
    code, document = diagnosed(environ, "b.tar.gz")
    code_of_folder, from_folder = diagnosed(environ, "job")
    assert (code, code_of_folder) == (10, 10)
    for diagnosis in (document, from_folder):
        (cause,) = diagnosis["causes"]
        found = (cause["ranks"], cause["signature"])
        assert found == ([2], "python-exception"), (cause["evidence"], diagnosis["files"], sorted(folder.iterdir()))
    (folder / "rank_2.log").write_bytes(b"\1\0" * 500)
    doctor(environ, "bundle-logs", *QUICK, "--logs", "job", "--out", "c.tar.gz")
    code, document = diagnosed(environ, "c.tar.gz")
    assert (code, document["causes"]) == (12, [])
    (unread,) = document["unread"]
    assert "no text" in unread and "rank_2.log" in unread


def test_a_place_that_does_not_exist_is_one_line_and_lets_the_diagnosis_stand(tmp_path: Path) -> None:
    environ = home_of(tmp_path, tools=False)
    put_logs(Path(environ["HOME"], "job"), RAISES)
    done = doctor(environ, "bundle-logs", *QUICK, "--logs", "job", "--logs", "jbo/*.log", "--out", "b.tar.gz")
    said = [line for line in done.stdout.splitlines() if "jbo" in line]
    assert done.returncode == 0 and said == ["--logs ~/jbo/*.log: nothing is there on any host"]
    code, document = diagnosed(environ, "b.tar.gz")
    assert (code, document["unread"]) == (10, []) and "does not exist there" in (
        members(Path(environ["HOME"], "b.tar.gz"))["CONTENTS.txt"].decode()
    )


def test_a_relative_place_of_this_host_is_below_the_current_folder_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert validate_places(["logs", "lo*", "job", "/var/x"], is_here=True) == (
        f"{tmp_path}/logs",
        f"{tmp_path}/lo*",
        "~/job",
        "/var/x",
    )
    assert validate_places(["logs"]) == ("~/logs",)


def test_several_bundles_are_one_job(tmp_path: Path) -> None:
    for host, rank, text in (("n1", 0, WAITS.format(0)), ("n2", 1, WAITS.format(1)), ("n3", 2, RAISES)):
        pack_one(tmp_path / f"{host}.tar.gz", host, {f"/logs/rank_{rank}.log": text})
    environ = home_of(tmp_path / "user", tools=False)
    code, document = diagnosed(environ, *(str(tmp_path / f"n{number}.tar.gz") for number in (1, 2, 3)))
    (cause,) = document["causes"]
    assert (code, cause["ranks"], cause["hosts"]) == (10, [2], ["n3"])


def test_a_host_without_an_answer_makes_nobody_guilty(tmp_path: Path) -> None:
    logs = {f"/logs/rank_{rank}.log": WAITS.format(rank) for rank in (0, 1)}
    pack_one(tmp_path / "b.tar.gz", "n1", logs, errors={"n2": "it refuses connections"})
    code, document = diagnosed(home_of(tmp_path / "user", tools=False), str(tmp_path / "b.tar.gz"))
    assert (code, document["causes"]) == (12, [])
    assert document["unread"] == ["the logs of n2: it refuses connections"]


def pack_one(path: Path, host: str, logs: dict[str, str], errors: dict[str, str] | None = None) -> bytes:
    """A bundle of one host that answered."""
    spooled = []
    for number, (name, text) in enumerate(logs.items()):
        file = path.parent / f"{path.name}.{number}"
        file.write_text(text)
        spooled.append(Spooled(Header("job", name, name, len(text), 1e9 + number, number), file, True, ""))
    packing = Packing({host: spooled})
    contents = Contents(
        schema=SCHEMA, doctor="1", collected="2026-11-24T00:00:00Z", source="1 host", since=0.0, places=[],
        hosts=[host, *(errors or {})], files=packing.entries(), left_out=[], errors=errors or {},
    )  # fmt: skip
    file_ = io.BytesIO()
    packing.write(contents, file_)
    path.write_bytes(file_.getvalue())
    return file_.getvalue()


def test_the_same_files_give_the_same_archive(tmp_path: Path) -> None:
    logs = {"/a/x.log": "1\n", "/a/../../x y.log": "2\n", "/a/x_y.log": "3\n"}
    first = pack_one(tmp_path / "a.tar.gz", "n1", logs)
    assert pack_one(tmp_path / "a.tar.gz", "n1", dict(reversed(logs.items()))) != b""
    assert pack_one(tmp_path / "a.tar.gz", "n1", logs) == first
    assert sorted(members(tmp_path / "a.tar.gz"))[2:] == ["n1/job/a/_/_/x_y.log", "n1/job/a/x.log", "n1/job/a/x_y.log"]
    with tarfile.open(tmp_path / "a.tar.gz") as archive:
        assert {(member.uid, member.uname, member.mode) for member in archive} == {(0, "", 0o644)}


def test_names_lead_nowhere_else() -> None:
    assert [safe_part(text) for text in ("..", ".", "/", "-x", "a\nb", "../x", "x" * 300)] == [
        "_", "_", "_", "_-x", "a_b", ".._x", "x" * 100,
    ]  # fmt: skip
    for text in ("../../etc/passwd", "/./..//x", "\0/..\\..", "", "a/" * 5000):
        parts = safe_path(text).split("/")
        assert parts and ".." not in parts and "" not in parts and len(safe_path(text)) <= 400


def message(kind: bytes, body: bytes) -> bytes:
    import base64
    import zlib

    return base64.b64encode(zlib.compress(kind + body))


def test_a_host_that_does_not_keep_to_its_request(tmp_path: Path) -> None:
    """Sections that nobody asked for, data without a file, more than the limit, garbage: cut, and said."""

    def spool(limit: int = 100, room: int = 1000) -> HostSpool:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return HostSpool(folder, frozenset({"job"}), limit, Room(room))

    begin = message(b"F", b'{"section": "job", "name": "../../x", "origin": "/x\\u001b[2J"}')
    for bad in (
        message(b"F", b'{"section": "../etc", "name": "x", "origin": ""}'),
        message(b"D", b"data"), message(b"E", b'{"complete": true, "note": ""}'), message(b"Q", b""), b"%%%",
        message(b"F", b"[" * 5000), message(b"F", b"{}"), message(b"D", b"x" * (2 << 20)),
    ):  # fmt: skip
        spooled = spool()
        spooled.take(bad)
        assert spooled.error and not spooled.files
    for spooled in (spool(limit=4), spool(room=4)):
        spooled.take(begin)
        spooled.take(message(b"D", b"xxx"))
        spooled.take(message(b"D", b"yyy"))
        assert "limit of bytes" in spooled.error
        (file,) = spooled.files
        assert (file.path.read_bytes(), file.complete, file.header.origin) == (b"xxx", False, "/x\\x1b[2J")
    spooled = spool()
    spooled.take(begin)
    spooled.take(message(b"D", b"half"))
    spooled.close()
    assert not spooled.is_done and not spooled.files[0].complete


def test_a_private_key_is_hidden_wherever_a_block_ends(tmp_path: Path) -> None:
    """The key begins before the first block's end and ends behind it."""
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "QUJDRA+/\n" * 200 + "-----END RSA PRIVATE KEY-----\n"
    line = "x" * 99 + "\n"
    for offset in (BLOCK - 900, BLOCK - 10):
        head = line * (offset // 100) + "y" * (offset % 100 - 1) + "\n" if offset % 100 else line * (offset // 100)
        pack_one(tmp_path / "k.tar.gz", "n1", {"/k.log": head + key + line})
        text = members(tmp_path / "k.tar.gz")["n1/job/k.log"].decode()
        assert "QUJDRA" not in text and text.startswith(head) and text.endswith(line)


@pytest.mark.parametrize(("empty", "code"), [(2010, 12), (3, 0)])
def test_many_empty_files_leave_no_log_out_and_what_a_limit_left_out_is_not_whole(
    empty: int, code: int, tmp_path: Path
) -> None:
    environ = home_of(tmp_path, tools=False)
    job = Path(environ["HOME"], "job")
    (job / "rank0.log").write_text("step 1\n")
    os.utime(job / "rank0.log", (1e9, 1e9))
    for number in range(empty):
        (job / f"done-{number}").touch()
    done = doctor(environ, "bundle-logs", *QUICK, "--logs", str(job), "--out", "all.tar.gz")
    assert done.returncode == code, (done.stdout, done.stderr)
    files = members(Path(environ["HOME"], "all.tar.gz"))
    assert b"step 1\n" in files.values()
    assert ("more than 2000 files" in files["CONTENTS.txt"].decode()) == (code == 12)


@pytest.mark.parametrize("packed", [False, True])
def test_a_long_log_keeps_its_ends(tmp_path: Path, packed: bool) -> None:
    lines = b"".join(b"line %07d\n" % number for number in range(400_000))
    path = tmp_path / "x.log"
    path.write_bytes(gzip.compress(lines, 1) if packed else lines)
    text = FileText(str(path), path.stat(), 1 << 20)
    data = b"".join(text.pieces())
    head, _, rest = data.partition(b"[")
    size, _, tail = rest.partition(b" ")
    assert lines.startswith(head.rstrip(b"\n")) and lines.endswith(tail.partition(b"\n")[2]) and not text.complete
    assert len(head.rstrip(b"\n")) + int(size) + len(tail.partition(b"\n")[2]) == pytest.approx(len(lines), abs=2)
    assert len(data) < (1 << 20) + (1 << 19)


def test_a_file_that_another_has_replaced_is_not_read(tmp_path: Path) -> None:
    path, other = tmp_path / "x.log", tmp_path / "y.log"
    path.write_text("mine\n")
    state = path.stat()
    other.write_text("another's\n")
    other.replace(path)
    with pytest.raises(OSError, match="replaced"):
        FileText(str(path), state, 100)
    path.write_bytes(b"\0" * 50 + b"\1\0\2\0" * 50)
    with pytest.raises(NotText):
        list(FileText(str(path), path.stat(), 1000).pieces())


@pytest.mark.parametrize(
    ("script", "seconds", "problem"),
    [("sleep 1000 & sleep 1000", 0.5, "did not end"),
     ("head -c 3000000 /dev/zero >x; sleep 1000", 60, "wrote more"),
     ("yes", 0.5, "did not end"), ("exit 3", 60, "ended with an error"), ("sleep 1000 & echo left behind", 60, "")],
)  # fmt: skip
def test_a_tool_is_bounded(tmp_path: Path, script: str, seconds: float, problem: str) -> None:
    """In time and in what it writes; and what it started ends with it."""
    run = ToolRun(script + " # " + str(tmp_path), str(tmp_path), seconds, 1 << 20, lambda: False)
    run.run(dict(os.environ))
    assert problem in run.problem and bool(problem) == bool(run.problem)
    assert len(run.text) <= 1 << 20
    deadline = time.monotonic() + 60
    while remaining := [pid for pid in Path("/proc").glob("[0-9]*") if str(tmp_path).encode() in command_line(pid)]:
        assert time.monotonic() < deadline, remaining
        time.sleep(0.05)


def command_line(process: Path) -> bytes:
    """Of a process that may have ended; one that only waits to be reaped has none."""
    try:
        return (process / "cmdline").read_bytes() if process.name != str(os.getpid()) else b""
    except OSError:
        return b""


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    environ = home_of(tmp_path)
    if os.geteuid():
        pytest.skip("msnpureport needs root")
    started = tmp_path / "started"
    Path(tmp_path, "bin/msnpureport").write_text(f"#!/bin/sh\necho $PPID >{started}; sleep 1000\n")
    argv = [sys.executable, "-m", "doctor", "bundle-logs", *QUICK[1:], "--out", "x.tar.gz"]
    process = subprocess.Popen(argv, env=environ, cwd=environ["HOME"], stderr=subprocess.PIPE, text=True)
    while not started.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130 and "Traceback" not in errors
    deadline = time.monotonic() + 60
    while remaining := list((tmp_path / "tmp").iterdir()):
        assert time.monotonic() < deadline, remaining
        time.sleep(0.05)
    assert not Path(environ["HOME"], "x.tar.gz").exists()


@pytest.mark.parametrize(
    "arguments",
    [("--out", "/nowhere/x.tar.gz"), ("--out", "."), ("--since", "yesterday"), ("--python", "-c"),
     ("--devices-only", "--sos"), ("--before", "missing.tar.gz"), ("--logs", "a\nb"), ("--timeout", "nan")],
)  # fmt: skip
def test_bad_options_are_one_line(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = doctor(home_of(tmp_path, tools=False), "bundle-logs", *arguments)
    assert done.returncode in (2, 78) and not done.stdout
    assert len(done.stderr.split("Error: ")[-1].strip().splitlines()) == 1, done.stderr


def test_other_archives_are_no_bundles(tmp_path: Path) -> None:
    for name, member, text in (
        ("a.tar", "x.log", b"x"), ("b.tar", "CONTENTS.json", b"{}"), ("c.tar", "CONTENTS.json", b'{"schema": "x"}'),
    ):  # fmt: skip
        with tarfile.open(tmp_path / name, "w") as archive:
            info = tarfile.TarInfo(member)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
        assert bundle_contents(str(tmp_path / name)) is None
    (tmp_path / "d.tar.gz").write_bytes(b"\x1f\x8b" + b"x" * 100)
    assert bundle_contents(str(tmp_path / "d.tar.gz")) is None


def test_the_table_of_commands() -> None:
    table = support()
    assert all(row.source and row.section == safe_part(row.section) for row in [*table.place, *table.command])
    assert all((row.most > 0) == row.folder and 0 < row.seconds <= 600 for row in table.command)
    assert diagnosed_sections() == {"job", "process_log", "mindie", "nccl", "device_log"}
    for row in table.command:
        subprocess.run(["sh", "-n", "-c", row.script], check=True)
    request = BundleRequest(places=(), since=0.0, limit=1, seconds=1.0, devices_only=True)
    assert {row["section"] for row in request.fields(frozenset())["commands"]} == {"environment_check"}


def test_the_summary_is_in_the_language_of_the_reader(tmp_path: Path) -> None:
    archive = tmp_path / "b.tar.gz"
    archive.write_bytes(b"x")
    rows = [{"host": "n1", "section": "asys", "reason": "not installed", "count": 1, "examples": ["asys"]}]
    contents = msgspec.convert(
        {
            "schema": SCHEMA,
            "doctor": "1",
            "collected": "2026-11-24T10:15:00Z",
            "source": "",
            "since": 0.0,
            "places": [],
            "hosts": ["n1"],
            "files": [],
            "left_out": rows,
            "errors": {},
        },
        Contents,
    )
    language.select("zh", {})
    try:
        lines = bundle_summary(contents, archive).splitlines()
    finally:
        language.select("en", {})
    assert lines[0].startswith("n1：") and lines[1] == "  asys：asys：未安装"


@pytest.mark.parametrize("name", ["logs.zip", "logs.tar.xz", "LOGS.ZIP"])
def test_a_name_of_another_kind_of_archive_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "doctor", "bundle-logs", "localhost", "--out", str(tmp_path / name)]
    done = preloaded.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "expected a name such as logs.tar.gz" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_log_that_was_inflated_has_no_name_of_a_compressed_one() -> None:
    assert _PACKED.sub("", "var/log/messages-1.gz") == "var/log/messages-1"
    assert _PACKED.sub("", ".gz") == ".gz" and _PACKED.sub("", "a/.xz") == "a/.xz"
