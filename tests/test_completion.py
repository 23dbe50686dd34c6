"""Completion, with the real shells: bash, zsh and fish load the script that `doctor --show-completion` prints."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import pytest

from doctor.cli.app import COMMANDS
from doctor.cli.complete import is_safe_word
from doctor.cli.complete_hosts import (
    MAX_FILE_BYTES,
    MAX_HOSTS,
    SINFO_SECONDS,
    host_names,
    known_hosts_names,
    slurm_names,
    ssh_config_names,
)
from doctor.engine.catalog import check_files
from doctor.engine.check_files import AREAS
from doctor.report.explain.topics import topics
from tests.readable import readable
from tests.test_startup import HEAVY

BIN = Path(sys.executable).parent
KNOWN_HOSTS = """\
node001,10.0.0.1 ssh-ed25519 AAAA
[gw.site]:2222 ssh-rsa BBBB
|1|abc=|def= ssh-rsa CCCC
@revoked nodebad ssh-rsa DDDD
node$(touch${IFS}PWNED) ssh-rsa EEEE
node`touch<PWNED` ssh-rsa EEEE
node;touch<PWNED ssh-rsa EEEE
node'"((\x1b[31m ssh-rsa EEEE
"""
CONFIG = "Host nodecfg *.pattern !no\n  User ann\nHost node-two\n"
SHELLS = [
    pytest.param(shell, marks=pytest.mark.skipif(not shutil.which(shell), reason=f"{shell} is not installed"))
    for shell in ("bash", "zsh", "fish")
]


@pytest.fixture(scope="module", autouse=True)
def _no_dump_is_left() -> Iterator[None]:
    yield
    Path(DUMP).unlink(missing_ok=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home directory with ssh's files; names in known_hosts try to run commands."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "known_hosts").write_text(KNOWN_HOSTS)
    (tmp_path / ".ssh" / "config").write_text(CONFIG)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    """Nothing of this machine's Slurm or home takes part."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "_DOCTOR"))}
    return {**kept, "HOME": str(home), "PATH": f"{BIN}:/usr/bin:/bin", "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def complete(shell: str, line: str, home: Path) -> list[str]:
    """The candidates that a real shell offers for a line that ends at the cursor."""
    return {"bash": complete_bash, "zsh": complete_zsh, "fish": complete_fish}[shell](line, home)


@cache
def completion_script(shell: str) -> str:
    """What `doctor --show-completion` prints in a shell; the second command keeps the shell there to be found."""
    with TemporaryDirectory() as home:
        return run([shell, "-c", "doctor --show-completion; :"], Path(home))


def run(argv: list[str], home: Path) -> str:
    finished = subprocess.run(argv, cwd=home, env=environment(home), capture_output=True, text=True, timeout=60)
    assert finished.stderr == ""
    return finished.stdout


def complete_bash(line: str, home: Path) -> list[str]:
    parts = re.split(r" |(=)", line)  # as readline splits them: "=" is a word of its own
    parts = [word for word in parts if word is not None]
    script = """source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _doctor_completion doctor
[ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' "${COMPREPLY[@]}" """
    (home / "script").write_text(completion_script("bash"))
    return run(["bash", "--norc", "-c", script, "bash", *parts], home).splitlines()


def complete_fish(line: str, home: Path) -> list[str]:
    script = "source ./script; complete -C $argv[1]"
    (home / "script").write_text(completion_script("fish"))
    return [row.partition("\t")[0] for row in run(["fish", "--no-config", "-c", script, line], home).splitlines()]


DUMP = str(Path(gettempdir()) / f"doctor-test-zcompdump-{os.getpid()}")
"""Where zsh keeps what it learned of its completion functions, so that it learns it once."""
ZSH = r"""
autoload -Uz compinit; compinit -C -d $DUMP
source ~/script
compadd() {
    local -a offered
    builtin compadd -O offered "$@"
    print -rl -- "${offered[@]}" >>$HOME/offered
    builtin compadd "$@"
}
bindkey '^X' list-choices
print READ''Y
"""


def complete_zsh(line: str, home: Path) -> list[str]:
    """zsh completes only at a terminal: what its completion system is given is written down."""
    (home / "script").write_text(completion_script("zsh"))
    (home / "rc").write_text(ZSH)
    (home / "offered").write_text("")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(home)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**environment(home), "DUMP": DUMP})
    try:
        os.write(terminal, b"source ~/rc\n")
        wait_for(terminal, b"READY")
        os.write(terminal, line.encode())
        for _ in range(12):  # a shell whose editor had not begun to read takes the key when it comes again
            os.write(terminal, b"\x18")
            if wait_for(terminal, None, (home / "offered"), 5):
                break
        return list(dict.fromkeys((home / "offered").read_text().splitlines()))
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(child, 0)


def wait_for(terminal: int, text: bytes | None, path: Path | None = None, seconds: float = 20) -> bool:
    """Reads the terminal until a text comes; without one until a file holds something and the terminal is quiet.

    Returns: whether that came in time.
    """
    output, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        answers = readable([terminal], 0.3)
        if answers:
            output += os.read(terminal, 65536)
        if (text is not None and text in output) or (not answers and path and path.stat().st_size):
            return True
    assert text is None, output
    return False


@pytest.mark.parametrize("shell", SHELLS)
class TestShell:
    def test_commands_and_their_options(self, shell: str, home: Path) -> None:
        assert set(complete(shell, "doctor ", home)) >= set(COMMANDS)
        assert complete(shell, "doctor expl", home) == ["explain"]
        assert {"--hosts", "--hostfile"} == set(complete(shell, "doctor check --host", home))

    def test_checks_areas_topics_and_fixed_values(self, shell: str, home: Path) -> None:
        assert complete(shell, "doctor check --select connec", home) == ["connectivity"]
        assert complete(shell, "doctor check --ignore hccl-port-t", home) == ["hccl-port-taken"]
        assert complete(shell, "doctor explain job-s", home) == ["job-scripts"]
        assert complete(shell, "doctor explain firewall-b", home) == ["firewall-blocks-job"]
        assert complete(shell, "doctor fix raise-listen", home) == ["raise-listen-queues"]
        assert complete(shell, "doctor fix --color al", home) == ["always"]

    def test_an_option_and_its_value_in_one_word(self, shell: str, home: Path) -> None:
        expected = "connectivity" if shell == "bash" else "--select=connectivity"
        assert complete(shell, "doctor check --select=connec", home) == [expected]

    def test_hosts_and_nothing_that_a_shell_would_run(self, shell: str, home: Path) -> None:
        assert set(complete(shell, "doctor check node", home)) == {"node001", "nodecfg", "node-two"}
        assert complete(shell, "doctor check --hosts gw", home) == ["gw.site"]
        assert complete(shell, "doctor check node001,nodec", home) == ["node001,nodecfg"]
        assert not list(home.glob("PWNED*"))


def answer(home: Path, line: str, shell: str = "bash", **environ: str) -> subprocess.CompletedProcess[str]:
    """What `doctor` answers a shell's script."""
    fields = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    variables = {**environment(home), **fields, "_TYPER_COMPLETE_FISH_ACTION": "get-args", **environ}
    variables["_DOCTOR_COMPLETE"] = f"complete_{shell}"
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "doctor"], env=variables, capture_output=True, text=True, timeout=20
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("line", ["doctor ", "doctor check --select ", "doctor explain ", "doctor smoke n"])
def test_completing_imports_nothing_heavy(home: Path, line: str, shell: str) -> None:
    finished = answer(home, line, shell)
    assert finished.returncode == 0
    assert finished.stdout
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in finished.stderr.splitlines()}
    assert "typer" in imported
    assert imported & set(HEAVY) == set()


def test_everything_is_offered(home: Path) -> None:
    checks = {path.stem.replace("_", "-") for path, _ in check_files()}
    assert set(answer(home, "doctor list ").stdout.split()) == checks | set(AREAS)
    assert set(answer(home, "doctor explain ").stdout.split()) >= checks | set(topics())


@pytest.mark.parametrize("line", ["", "doctor 'unclosed", "doctor check --port x ", "doctor nonsense x", "\x00"[:0]])
def test_what_cannot_be_completed_is_silent(home: Path, line: str) -> None:
    finished = answer(home, line)
    messages = [row for row in finished.stderr.splitlines() if not row.startswith("import time:")]
    assert messages == []


def test_an_unknown_shell_gets_nothing(home: Path) -> None:
    finished = answer(home, "doctor ", "ksh")
    assert (finished.returncode, finished.stdout) == (1, "")


@pytest.mark.parametrize(
    "word", ["a b", "a;b", "$x", "`x`", "a'", 'a"', "a\\b", "a\nb", "a\x1b", "é", "(", "*", "~", ""]
)
def test_no_other_letter_passes(word: str) -> None:
    assert not is_safe_word(word)


@pytest.fixture
def sinfo(home: Path) -> Iterator[Path]:
    """A place for a program of that name, first in the PATH."""
    (home / "bin").mkdir()
    yield home / "bin" / "sinfo"


def with_sinfo(home: Path) -> dict[str, str]:
    return {**environment(home), "PATH": f"{home}/bin:/usr/bin:/bin"}


def test_slurms_nodes_come_first(home: Path, sinfo: Path) -> None:
    sinfo.write_text("#!/bin/sh\necho slurm1; echo 'slurm2;reboot'; echo slurm1; echo node001\n")
    sinfo.chmod(0o755)
    names = host_names(with_sinfo(home))
    assert names[:3] == ["slurm1", "node001", "nodecfg"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("script", ["echo a; sleep 60", "echo a; sleep 60 & exit", "yes", "exit 1", "kill -STOP $$"])
def test_a_sinfo_that_hangs_or_fails_costs_a_second_at_most(home: Path, sinfo: Path, script: str) -> None:
    sinfo.write_text(f"#!/bin/sh\n{script}\n")
    sinfo.chmod(0o755)
    began = time.monotonic()
    names = slurm_names(with_sinfo(home))
    assert time.monotonic() - began < SINFO_SECONDS + 1
    assert "a" not in names


def test_in_an_allocation_its_hosts_are_offered(home: Path) -> None:
    assert slurm_names({**environment(home), "SLURM_JOB_NODELIST": "n[08-10],m1"}) == ["n08", "n09", "n10", "m1"]
    assert slurm_names({"SLURM_JOB_NODELIST": "n1,n2"}) == ["n1", "n2"]
    assert slurm_names({"SLURM_JOB_NODELIST": "n[1-9999999999]"}) == []


def test_files_that_are_absent_large_or_no_files(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": "/nonexistent"}
    assert host_names(environ) == []
    (tmp_path / ".ssh").mkdir()
    os.mkfifo(tmp_path / ".ssh" / "config")
    line = "node{:07} ssh-ed25519 AAAA\n"
    (tmp_path / ".ssh" / "known_hosts").write_text("".join(line.format(number) for number in range(60_000)))
    assert (tmp_path / ".ssh" / "known_hosts").stat().st_size > MAX_FILE_BYTES
    names = host_names(environ)
    assert (len(names), names[0]) == (MAX_HOSTS, "node0000000")
    (tmp_path / ".ssh" / "known_hosts").write_bytes(b"\xff\xfe\x00 ssh-rsa A\nlonely\n\n   \nok ssh-rsa A\n")
    assert host_names(environ) == ["ok"]


def test_what_ssh_files_hold() -> None:
    assert list(known_hosts_names(KNOWN_HOSTS))[:3] == ["node001", "10.0.0.1", "gw.site"]
    assert list(ssh_config_names('host = "a" # b\n\tHost\tc d\nHostName e\nMatch host f\n')) == ["a", "c", "d"]


def test_install_writes_what_the_shell_reads(home: Path) -> None:
    script = "doctor --install-completion; :"
    run(["bash", "--norc", "-c", script], home)
    assert "_DOCTOR_COMPLETE=complete_bash" in (home / ".bash_completions" / "doctor.sh").read_text()
    assert "doctor.sh" in (home / ".bashrc").read_text()
