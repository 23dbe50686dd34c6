"""Host names for the shell's completion: from ssh's files and from Slurm, in bounded time, and never an exception.

What these files and programs hold is untrusted: only host names of letters, digits, dots, dashes and underscores pass.
"""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

MAX_FILE_BYTES = 1 << 20
"""Bytes read of one file, and of sinfo's output."""
MAX_HOSTS = 2000
"""Host names offered."""
SINFO_SECONDS = 1.0
"""Seconds that sinfo gets."""

_HOST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}", re.ASCII)


def host_names(environ: Mapping[str, str]) -> list[str]:
    """The hosts that a user is likely to mean: Slurm's, then those of ~/.ssh/config, then of ~/.ssh/known_hosts."""
    ssh_folder = Path(environ.get("HOME") or "/nonexistent") / ".ssh"
    names: dict[str, None] = {}
    for name in (
        *slurm_names(environ),
        *ssh_config_names(_read_start(ssh_folder / "config")),
        *known_hosts_names(_read_start(ssh_folder / "known_hosts")),
    ):
        if _HOST_NAME.fullmatch(name):
            names.setdefault(name)
    return list(names)[:MAX_HOSTS]


def _read_start(path: Path) -> str:
    """The complete lines among the first bytes of a regular file; empty for anything else."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    with contextlib.suppress(OSError), os.fdopen(handle, "rb") as file:
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return _complete_lines(file.read(MAX_FILE_BYTES + 1))
    return ""


def _complete_lines(data: bytes) -> str:
    """Text of at most `MAX_FILE_BYTES`; a line that this cuts is dropped, for half a name is a wrong one."""
    if len(data) > MAX_FILE_BYTES:
        data = data[:MAX_FILE_BYTES].rpartition(b"\n")[0]
    return data.decode("utf-8", "replace")


def known_hosts_names(text: str) -> Iterator[str]:
    r"""The names of a known_hosts file. Hashed names, patterns and lines with a marker are passed over.

    >>> list(known_hosts_names("node1,10.0.0.1 ssh-ed25519 AAAA\n[gw]:2222 ssh-rsa B\n|1|x|y ssh-rsa C\n"))
    ['node1', '10.0.0.1', 'gw']
    """
    for line in text.splitlines():
        fields = line.split(maxsplit=1)
        if len(fields) == 2 and fields[0][0] not in "#@|":
            for name in fields[0].split(","):
                bracketed = re.fullmatch(r"\[([^\]]*)\]:\d+", name, re.ASCII)
                yield bracketed[1] if bracketed else name


def ssh_config_names(text: str) -> Iterator[str]:
    r"""The names in the Host lines of an ssh configuration; patterns are passed over by the caller's rule for names.

    >>> list(ssh_config_names("Host node1 node2\n  User ann\nhost=gw\nMatch host x\n"))
    ['node1', 'node2', 'gw']
    """
    for line in text.splitlines():
        match = re.match(r'\s*host(?:\s*=\s*|\s+)"?([^"#]*)', line, re.I)
        if match:
            yield from match[1].split()


def slurm_names(environ: Mapping[str, str]) -> list[str]:
    """The hosts of the Slurm allocation that this shell is in; outside of one, the nodes that sinfo names, if any."""
    nodelist = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not nodelist:
        return _sinfo_names(environ)
    if "[" not in nodelist:
        return nodelist.split(",")
    from doctor.hosts.nodeset import InventoryError, expand_nodeset

    try:
        return expand_nodeset(nodelist, "SLURM_JOB_NODELIST")
    except InventoryError:
        return []


def _sinfo_names(environ: Mapping[str, str]) -> list[str]:
    try:
        process = subprocess.Popen(
            ["sinfo", "--noheader", "--Node", "--format", "%N"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,
        )
    except (OSError, ValueError):
        return []
    output = _read_until(process, time.monotonic() + SINFO_SECONDS)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.1)
    return _complete_lines(output).split()


def _read_until(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """What a process writes until it closes its stdout; nothing of a process that is too slow."""
    assert process.stdout is not None
    output = b""
    with process.stdout as pipe, selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while len(output) <= MAX_FILE_BYTES:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not selector.select(remaining):
                return b""
            part = os.read(pipe.fileno(), 1 << 16)
            if not part:
                break
            output += part
    return output
