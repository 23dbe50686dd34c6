"""How the executor is started on a host: as the login user, or as root."""

from __future__ import annotations

import json
from functools import cache

from doctor.fix.executor import MODULES
from doctor.remote.assemble import assemble
from doctor.remote.bootstrap import stdin_command
from doctor.remote.request import Request, new_marker


@cache
def source() -> bytes:
    """The executor's text."""
    return assemble(*MODULES).encode("ascii")


def executor_request(root: bool, lock: float) -> Request:
    """Starts the executor; ``lock``: seconds to wait for another one on that host, below 0 takes no lock."""
    marker = new_marker()
    first = json.dumps({"marker": marker, "lock": lock}).encode("ascii")
    return Request(stdin_command(source(), len(first), as_root=root), source(), first, marker)
