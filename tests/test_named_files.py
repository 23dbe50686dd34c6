"""Every file that an option names: one that is no regular file, or endless, is one line, at once; and nothing is
written through another user's link, or into a pipe that nobody reads.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from doctor.config.atomic_write import GrowingFile, write_atomic
from doctor.engine.bounded_read import read_bounded, read_bounded_text
from doctor.engine.errors import InputError
from doctor.session.named_files import require_connection_files, require_rank_table
from doctor.transport.launcher.gateway_routes import topology_path
from doctor.transport.options import SshOptions
from doctor.transport.ssh.config_files import syntax_error
from tests import preloaded

ROOT = Path(__file__).parents[1]
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("DOCTOR_", "SLURM_", "RANK_"))}
OTHER_USER = 65534


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)


def folder(path: Path) -> None:
    path.mkdir()


def absent(path: Path) -> None:
    """Nothing there."""


KINDS = {
    pipe: "is not a regular file",
    endless: "is not a regular file",
    huge: "is larger than ",
    folder: "Is a directory",
    absent: "No such file",
}
COMMANDS = {
    "from": ["check", "--from", "FILE"],
    "hostfile": ["check", "--hostfile", "FILE"],
    "rank table of the hosts": ["check", "--rank-table", "FILE"],
    "ssh configuration": ["check", "no-such-host", "-F", "FILE"],
    "settings": ["check", "--config", "FILE"],
    "report": ["report", "FILE"],
    "expected hosts": ["merge", "DIR", "--hostfile", "FILE"],
    "baseline": ["smoke", "no-such-host", "--baseline", "FILE"],
    "subset": ["rank-table", "--hostfile", "FILE"],
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_a_file_that_cannot_be_read_to_its_end_is_one_line(
    arguments: list[str], kind: Callable[[Path], None], tmp_path: Path
) -> None:
    kind(tmp_path / "file")
    argv = [word.replace("FILE", str(tmp_path / "file")).replace("DIR", str(tmp_path)) for word in arguments]
    code, err = run_here(argv, tmp_path)
    assert code in (2, 78), err
    assert err.count("\n") == 1
    assert re.search(rf"^doctor: .*{KINDS[kind]}.*; expected ", err), err


@pytest.mark.skipif(not shutil.which("ssh"), reason="ssh reads the file")
@pytest.mark.parametrize(
    ("command", "line", "reason"),
    [
        ("check", "Nonsense yes", "line 2: Bad configuration option: nonsense"),
        ("rank-table", "Port many", "line 2: Bad port 'many'."),
        ("preflight --hosts", "Port many", "line 2: Bad port 'many'."),
    ],
)
def test_an_ssh_configuration_that_ssh_rejects_is_one_line(
    command: str, line: str, reason: str, tmp_path: Path
) -> None:
    """The caller's mistake, and no fault of the hosts, none of which can be reached with it."""
    (tmp_path / "config").write_text(f"Host another\n  {line}\n")
    code, err = run_here([*command.split(), "no-such-host", "-F", str(tmp_path / "config")], tmp_path)
    assert (code, err.count("\n")) == (78, 1), err
    assert f"-F {tmp_path}/config: {reason}; expected a configuration file that ssh accepts" in err


@pytest.mark.parametrize("text", ["", "[main]\na: b\n", "[routes]\na: b\nb: a\n", "[routes]\nn[1-\n", "\0\x1b[31m"])
def test_a_topology_that_clush_rejects_is_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "t").write_text(text)
    argv = ["check", "no-such-host", "--transport", "tree", "--gateways", str(tmp_path / "t")]
    code, err = run_here(argv, tmp_path)
    assert (code, err.count("\n")) == (78, 1), err
    assert "expected a topology.conf that clush accepts" in err and "\x1b" not in err


@pytest.mark.parametrize("command", ["check", "net", "smoke", "rank-table", "preflight --hosts", "watch --attach"])
@pytest.mark.parametrize("text", [None, "[routes]\na: b\nb: a\n"])
def test_a_tree_without_a_topology_visits_no_host(command: str, text: str | None, tmp_path: Path) -> None:
    """That is the caller's mistake: none of the hosts has a fault."""
    folder = tmp_path / ".config/clustershell"
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "topology.conf").write_text(text)
    elif topology_path({}):
        pytest.skip("this machine has a topology.conf")
    code, err = run_here([*command.split(), "no-such-host,nor-this", "--transport", "tree"], tmp_path)
    assert (code, err.count("\n")) == (78, 1), err
    absent = "--transport tree: there is no topology.conf of ClusterShell; expected --gateways FILE"
    assert (absent if text is None else "expected a topology.conf that clush accepts") in err


@pytest.mark.parametrize(
    "line", ["preflight --gang EMPTY", "preflight --gang EMPTY --gang-key none", "smoke --when-idle EMPTY"]
)
def test_a_variable_that_is_not_set_turns_no_guard_off(line: str, tmp_path: Path) -> None:
    code, err = run_here([word.replace("EMPTY", "") for word in line.split()], tmp_path)
    assert code in (2, 78), err
    assert "--gang '': expected" in err or "--when-idle" in err


def test_an_ssh_configuration_with_a_match_runs_nothing_before_a_visit(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(f"Match exec 'touch {tmp_path}/ran'\n  Nonsense yes\n")
    assert syntax_error(str(tmp_path / "config")) == ""
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("parent", ["absent", "file"])
def test_a_rank_table_that_cannot_be_written_is_one_line_before_any_host_is_visited(
    parent: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    code, err = run_here(["rank-table", "no-such-host", "--out", str(tmp_path / parent / "table.json")], tmp_path)
    assert (code, err.count("\n")) == (78, 1), err
    assert re.search(r"--out .*/table.json: .*; expected a file that can be written", err)


@pytest.mark.parametrize("option", ["--save", "-f"])
def test_a_folder_that_takes_no_files_is_found_before_any_host_is_visited(option: str, tmp_path: Path) -> None:
    target = "/proc/x" if option == "--save" else "json=/proc/x"
    code, err = run_here(["check", "no-such-host", option, target], tmp_path)
    assert (code, err.count("\n")) == (78, 1), err
    assert "no file can be made in /proc" in err and "expected a file that can be written" in err


def test_metrics_that_cannot_be_written_are_found_before_the_job_starts(tmp_path: Path) -> None:
    argv = ["watch", "--prometheus", "/proc/x", "--", "touch", str(tmp_path / "started")]
    code, err = run_here(argv, tmp_path)
    assert (code, err.count("\n")) == (78, 1) and "--prometheus /proc/x: no file can be made in /proc" in err
    assert not (tmp_path / "started").exists()


def run_here(argv: list[str], home: Path) -> tuple[int, str]:
    """Exit code and stderr of a command, which has a few seconds and 3 GiB of memory."""
    doctor, limits = [sys.executable, "-m", "doctor", *argv], {resource.RLIMIT_AS: 3 << 30}
    environ = {**CLEAN, "HOME": str(home)}
    done = preloaded.run(doctor, limits=limits, cwd=ROOT, env=environ, capture_output=True, timeout=60)
    return done.returncode, done.stderr.decode()


def test_text_is_read_as_it_always_was(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a\r\nb\rc\n")
    assert read_bounded_text(tmp_path / "x") == "a\nb\nc\n"
    assert read_bounded(os.devnull) == b""
    assert read_bounded("/proc/self/status").startswith(b"Name:")
    with pytest.raises(OSError, match="larger than 10 B"):
        read_bounded("/proc/self/status", 10)


def test_a_file_is_opened_at_the_start_and_read_by_what_needs_it_alone(tmp_path: Path) -> None:
    """The memory of a process is a regular file of which the first byte cannot be read."""
    with pytest.raises(OSError, match="Input/output error"):
        read_bounded("/proc/self/mem")
    require_rank_table("/proc/self/mem")
    require_connection_files(SshOptions(identity=("/proc/self/mem",)))
    with pytest.raises(InputError, match=r"--rank-table .*: Is a directory; expected a rank table"):
        require_rank_table(str(tmp_path))


class TestLinksOfOthers:
    """A folder that others may write to, as uid 65534 left it."""

    @pytest.fixture
    def shared(self, tmp_path: Path) -> Path:
        if os.geteuid() != 0:
            pytest.skip("needs root, to make links of another user")
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        (tmp_path / "victim").write_text("before")
        return shared

    def theirs(self, path: Path, target: str) -> Path:
        path.symlink_to(target)
        os.chown(path, OTHER_USER, OTHER_USER, follow_symlinks=False)
        return path

    @pytest.mark.parametrize("writer", [write_atomic, lambda path, data: GrowingFile(path).write(data)])
    @pytest.mark.parametrize("target", ["../victim", "../new", "chain"])
    def test_a_link_is_replaced_and_not_followed(
        self, shared: Path, target: str, writer: Callable[[Path, bytes], None]
    ) -> None:
        (shared / "chain").symlink_to("../victim")
        link = self.theirs(shared / "n1.json", target)
        writer(link, b"record")
        assert (link.read_bytes(), link.is_symlink()) == (b"record", False)
        assert (shared.parent / "victim").read_text() == "before"
        assert not (shared.parent / "new").exists()

    def test_our_own_link_is_not_followed_where_others_can_replace_it(self, shared: Path) -> None:
        (shared / "n1.json").symlink_to("../victim")
        write_atomic(shared / "n1.json", b"record")
        assert (shared.parent / "victim").read_text() == "before"

    def test_a_folder_behind_their_link_is_refused(self, shared: Path) -> None:
        (shared.parent / "private").mkdir()
        link = self.theirs(shared / "seen", "../private")
        with pytest.raises(OSError, match="is a link of user 65534; expected a folder"):
            write_atomic(link / "n1.json", b"record")
        assert os.listdir(shared.parent / "private") == []

    def test_their_pipe_and_their_hard_link_are_replaced(self, shared: Path) -> None:
        os.mkfifo(shared / "pipe")
        os.chown(shared / "pipe", OTHER_USER, OTHER_USER)
        os.link(shared.parent / "victim", shared / "hard")
        write_atomic(shared / "pipe", b"record")
        GrowingFile(str(shared / "hard")).write(b"record")
        assert (shared / "pipe").read_bytes() == (shared / "hard").read_bytes() == b"record"
        assert (shared.parent / "victim").read_text() == "before"

    def test_every_command_writes_that_way(self, shared: Path) -> None:
        """One function for all: no module opens a path of the user for writing by itself."""
        names = {
            str(path.relative_to(ROOT))
            for path in (ROOT / "doctor").rglob("*.py")
            if re.search(r"O_WRONLY|O_TRUNC|\bopen\([^()]*, \"[wa]b?\"|write_text|write_bytes", path.read_text("utf-8"))
        }
        allowed = {
            "doctor/config/atomic_write.py",
            "doctor/config/user_key.py",  # in our own state folder, by O_EXCL
            "doctor/collect/collector/jobs.py",  # its own stdout
            "doctor/history/private_folder.py",  # in our own state folder, by O_EXCL and relative to its handle
            "doctor/engine/streams.py",  # /dev/null
            "doctor/facts/launcher_logins.py",  # on the host, in a new folder of its own
            "doctor/facts/firewall/boot_rules.py",  # in a file system that it has mounted for itself alone
            "doctor/session/console.py",  # mkstemp
            "doctor/transport/openssh/openssh_transport.py",  # in a temporary folder of its own
            "doctor/watch/attach/recorded_causes.py",  # the same
            "doctor/watch/data_folder.py",  # in the folder of `doctor.watch.folder`
            "doctor/watch/folder.py",  # in a folder of its own, that only this user can enter
            "doctor/watch/output_pump.py",  # its own stdout, and the copy in the folder of `doctor.watch.folder`
            "doctor/watch/hook/channel.py",  # the same, in the job
            "doctor/watch/hook/rank_files.py",  # the same
            "doctor/watch/hook/resume_marks.py",  # the same
            "doctor/watch/loss/heartbeat_lines.py",  # in a temporary folder of its own
            "doctor/watch/report_files.py",  # an empty file by O_EXCL, which holds a name for atomic_write
        }
        on_hosts = ("doctor/smoke/programs/", "doctor/fix/executor/")
        assert {path for path in names if not path.startswith(on_hosts)} <= allowed


class TestPipes:
    def test_one_that_nobody_reads(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        began = time.monotonic()
        with pytest.raises(OSError, match="is a pipe without a reader"):
            write_atomic(tmp_path / "pipe", b"x")
        assert time.monotonic() - began < 5

    def test_one_whose_reader_stopped(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            with pytest.raises(OSError, match="nothing was read from it"):
                write_atomic(tmp_path / "pipe", bytes(1 << 20))
        finally:
            os.close(reader)

    def test_one_that_is_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with (tmp_path / "copy").open("wb") as copy, subprocess.Popen(["cat", tmp_path / "pipe"], stdout=copy):
            for _ in range(500):
                try:
                    write_atomic(tmp_path / "pipe", bytes(1 << 20))
                    break
                except OSError:
                    time.sleep(0.02)
        assert (tmp_path / "copy").stat().st_size == 1 << 20

    def test_the_budget_of_preflight_holds(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        arguments = ["preflight", "--select", "memory-short", "--budget", "20s", "--report", str(tmp_path / "pipe")]
        code, err = run_here(arguments, tmp_path)
        assert code in (0, 11), err
        assert "is a pipe without a reader" in err


def test_a_saved_run_with_foreign_keys_is_an_input_error(tmp_path: Path) -> None:
    run = {"schema": "doctor.run/5", "source": "x", "started": "2026-01-01T00:00:00Z", "seconds": 1, "hosts": {}}
    for broken in ({"launch": {"x": 1}}, {"rank_table": {"x": 1}}, {"hosts": {"a": {}}}, {"smoke": {"x": 1}}):
        (tmp_path / "run.json").write_text(json.dumps({**run, **broken}))
        for arguments in (["check", "--from"], ["report"]):
            code, err = run_here([*arguments, str(tmp_path / "run.json")], tmp_path)
            assert (code, err.count("\n")) == (78, 1), err
