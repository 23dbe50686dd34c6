"""The rank table that a platform hands to its jobs: where it is, whether it is complete yet, who stands in it. Pure.

MindCluster's operator mounts ``hccl.json`` before it knows all devices, with ``"status": "initializing"``, and writes
``completed`` later ("hccl.json file description"); HCCL itself reads the file again every second until then. On
ModelArts ``RANK_TABLE_FILE`` names a folder, the file in it is ``jobstart_hccl.json``, and a job has to wait for
``completed`` in the same way (ModelArts, "training code adaptation for Ascend custom images").
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from doctor.engine.sanitize import printable
from doctor.job import NotARankTable, RankTable, read_rank_table
from doctor.job.launch_config import RANK_TABLE_VARIABLES

MINDCLUSTER = "/user/serverid/devindex/config/hccl.json"
IN_A_FOLDER = ("jobstart_hccl.json", "hccl.json")
COMPLETED = "completed"
AGAIN = 1.0
"""Seconds between two looks at a table that is not complete, as HCCL does."""

ReadFile = Callable[[str], str]


class Seat(NamedTuple):
    """Where a rank stands in the table."""

    local: int
    local_world: int
    node: int
    world: int


class Table(msgspec.Struct, frozen=True):
    """The rank table as it is now."""

    path: str
    variable: str = ""
    """The one that names it; empty: it lies where MindCluster puts it."""
    text: str = ""
    error: str = ""
    """Why it cannot be read."""

    @property
    def state(self) -> str:
        """What it says of itself, or what it is in words."""
        if self.error:
            return self.error
        return _status(self.text)

    @property
    def waits(self) -> bool:
        """Whoever writes it has begun, and has not come to an end."""
        return not self.error and self.state != f'"{COMPLETED}"'

    @property
    def read(self) -> RankTable | None:
        """None where it is not complete, or no table that we know."""
        if self.error or self.waits:
            return None
        try:
            return read_rank_table(self.path, self.text)
        except NotARankTable:
            return None

    def seat(self, rank: int) -> Seat | None:
        """The place of a rank among those of its host; None where the table does not tell."""
        table = self.read
        for node, server in enumerate(table.servers if table else ()):
            numbers = sorted(one.rank_id for one in server.ranks if one.rank_id is not None)
            if rank in numbers and len(numbers) == len(server.ranks):
                return Seat(numbers.index(rank), len(numbers), node, len(table.ranks) if table else 0)
        return None


def find_table(environ: Mapping[str, str], read_file: ReadFile) -> Table | None:
    """The job's table: named by a variable, else where MindCluster mounts it. None where there is neither."""
    for variable in RANK_TABLE_VARIABLES:
        if environ.get(variable):
            return _load(environ[variable], variable, read_file)
    found = _load(MINDCLUSTER, "", read_file)
    return None if found.error else found


def _load(path: str, variable: str, read_file: ReadFile) -> Table:
    try:
        return Table(path, variable, read_file(path))
    except IsADirectoryError:
        inside = [f"{path.rstrip('/')}/{name}" for name in IN_A_FOLDER]
        found = [_load(one, variable, read_file) for one in inside]
        return next((one for one in found if not one.error), found[0])
    except UnicodeDecodeError:
        return Table(path, variable, error="it is not UTF-8 text")
    except (OSError, ValueError) as error:
        return Table(path, variable, error=printable(getattr(error, "strerror", None) or str(error)))


def _status(text: str) -> str:
    if not text.strip():
        return "it is empty"
    try:
        tree = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return "it is no JSON"
    status = tree.get("status") if isinstance(tree, dict) else None
    return f'"{printable(status, 40)}"' if isinstance(status, str) else "it has no status"


def wait_for_table(
    path: str,
    until: float,
    *,
    read_file: ReadFile = lambda path: Path(path).read_text("utf-8"),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Waits until the table is complete. Empty when it is, else what is to be told: nothing in it can be judged.

    ``until``: by ``clock``. What is half written, or not there yet, is waited for as well.
    """
    began = clock()
    while True:
        table = _load(path, "", read_file)
        if not table.error and not table.waits:
            return ""
        left = until - clock()
        if left <= 0:
            return _never(table, clock() - began)
        sleep(min(AGAIN, left))


def _never(table: Table, seconds: float) -> str:
    says = f"its status is {table.state}" if table.state.startswith('"') else table.state
    hint = "is the Ascend Operator running, and does the device plugin report every device's IP?"
    return f'rank table {printable(table.path)}: {says} after {seconds:.0f} s, expected "{COMPLETED}": {hint}'
