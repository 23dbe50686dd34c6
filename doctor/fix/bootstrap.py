"""How the program of `remote` is started on a host: as the login user, or as root."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import msgspec

SOURCE = Path(__file__).with_name("remote_executor.py").read_bytes()

# Words that sh, csh and fish read the same, as in doctor.collect.protocol; not a byte is read that is not asked for.
_PYTHONS = "python3 /usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python"
_PROGRAM = (
    "import os,sys;sys.version_info<(3,6)and sys.exit(repr(sys.version_info));"
    "r=lambda n,d=bytes():d if len(d)==n else r(n,d+(os.read(0,n-len(d))or sys.exit(3)));"
    "exec(r(SOURCE));main(r(REQUEST))"
)
_START = f"""for p in {_PYTHONS}; do command -v $p >/dev/null 2>&1 && exec $s $p -I -S -c "{_PROGRAM}"; done; """
_START += "echo doctor-no-python >&2; exit 127"
_AS_ROOT = "[ $(id -u) = 0 ] || s=$(echo sudo -n)"


class ExecuteRequest(msgspec.Struct, frozen=True):
    """A command, what is sent to it first, and what its lines begin with."""

    command: str
    stdin: bytes
    marker: str


def execute_request(root: bool, lock: float, python: str = "") -> ExecuteRequest:
    """Starts the program; ``lock``: seconds to wait for another one on that host, below 0 takes no lock."""
    marker = "doctor-" + secrets.token_hex(8)
    request = json.dumps({"marker": marker, "lock": lock}).encode("ascii")
    start = f"{'s=; ' + _AS_ROOT if root else 's='}; {_START}".replace(_PYTHONS, python or _PYTHONS)
    start = start.replace("SOURCE", str(len(SOURCE))).replace("REQUEST", str(len(request)))
    return ExecuteRequest(f"exec sh -c '{start}'", SOURCE + request, marker)
