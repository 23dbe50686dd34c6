"""How an agent is started on a host: one command, and what comes on its stdin."""

from __future__ import annotations

import json
import shlex

import msgspec

from doctor.smoke.run import programs

# Words and single-quoted text alone, so that sh, csh and fish read the same; no exclamation mark, no backslash.
_PYTHONS = "python3 /usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python"
_PROGRAM = (
    "import os,sys;sys.version_info<(3,6)and sys.exit(repr(sys.version_info));"
    # Not a byte more than asked for: what comes behind is the agent's own to read.
    "r=lambda n,d=bytes():d if len(d)==n else r(n,d+(os.read(0,n-len(d))or sys.exit(3)));"
    "exec(r(SOURCE));main(r(REQUEST))"
)
_BOOT = (
    f"for p in {_PYTHONS}; do command -v $p >/dev/null 2>&1 && "
    f'exec $p -I -S -c "{_PROGRAM}"; done; echo doctor-no-python >&2; exit 127'
)


class AgentRequest(msgspec.Struct, frozen=True):
    """A command, and what is sent to it before anything else."""

    command: str
    stdin: bytes


def build_request(
    marker: str, listen: bool = False, port: int = 0, within: tuple[str, ...] = (), python: str = ""
) -> AgentRequest:
    """For one host; ``within`` is put before the command, to start it in a container.

    ``python`` is the interpreter's path, where it is known; otherwise the host looks for one.
    """
    source, first = programs.agent(), prepare_request(marker, listen, port)
    boot = f'exec {shlex.quote(python)} -I -S -c "{_PROGRAM}"' if python else f"exec sh -c '{_BOOT}'"
    boot = boot.replace("SOURCE", str(len(source))).replace("REQUEST", str(len(first)))
    if within:
        boot = " ".join(["exec", *map(shlex.quote, within), boot.removeprefix("exec ")])
    return AgentRequest(boot, source + first)


def prepare_request(marker: str, listen: bool, port: int) -> bytes:
    """What an agent reads first: how to mark its lines, and whether the ranks meet on its host."""
    return json.dumps({"marker": marker, "prepare": {"listen": listen, "port": port}}).encode("ascii")


def start_failure_kind(err: str) -> str:
    """The kind of trouble of an agent that never said hello, by what came on stderr."""
    return "no-python" if "doctor-no-python" in err or "sys.version_info" in err else "shell"
