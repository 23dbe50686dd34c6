"""The rank table that a platform gives to its jobs: where it is, whether it is complete, which ranks it lists. Pure.

MindCluster's operator mounts ``hccl.json`` before it knows all devices, with ``"status": "initializing"``, and writes
``completed`` later ("hccl.json file description"); HCCL itself reads the file again every second until then. On
ModelArts ``RANK_TABLE_FILE`` names a folder, the file in it is ``jobstart_hccl.json``, and a job has to wait for
``completed`` in the same way (ModelArts, "training code adaptation for Ascend custom images").
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from doctor.engine.bounded_read import ReadFile, read_text_file, unreadable_reason
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job import NotARankTable, RankTable, read_rank_table
from doctor.job.variables import TABLE_VARIABLES

MINDCLUSTER = "/user/serverid/devindex/config/hccl.json"
FILES_IN_FOLDER = ("jobstart_hccl.json", "hccl.json")
COMPLETED = "completed"
POLL_INTERVAL = 1.0
"""Seconds between two reads of a table that is not complete, as HCCL does."""


class TablePosition(NamedTuple):
    """The numbers of a rank by the table."""

    local_rank: int
    local_world_size: int
    node_rank: int
    world_size: int


class MountedRankTable(msgspec.Struct, frozen=True):
    """The rank table as it is at one moment."""

    path: str
    variable: str = ""
    """The one that names it; empty: it lies where MindCluster puts it."""
    text: str = ""
    error: str = ""
    """Why it cannot be read."""

    @property
    def state(self) -> str:
        """Its status with quotes, else why it has none."""
        return self.error or _status(self.text)

    @property
    def is_pending(self) -> bool:
        """Whether its writer has begun and not finished."""
        return not self.error and self.state != f'"{COMPLETED}"'

    @property
    def content(self) -> RankTable | None:
        """None where it is not complete, or no rank table of a supported form."""
        if self.error or self.is_pending:
            return None
        try:
            return read_rank_table(self.path, self.text)
        except NotARankTable:
            return None

    def position(self, rank: int) -> TablePosition | None:
        """A rank's numbers; None where the table does not list it, or not all ranks of its host."""
        table = self.content
        for node_rank, server in enumerate(table.servers if table else ()):
            numbers = sorted(entry.rank_id for entry in server.ranks if entry.rank_id is not None)
            if rank in numbers and len(numbers) == len(server.ranks):
                return TablePosition(numbers.index(rank), len(numbers), node_rank, len(table.ranks) if table else 0)
        return None


def find_mounted_table(environ: Mapping[str, str], read_file: ReadFile) -> MountedRankTable | None:
    """The job's table: named by a variable, else where MindCluster mounts it. None where there is neither."""
    for variable in TABLE_VARIABLES:
        if environ.get(variable):
            return _load(environ[variable], variable, read_file)
    table = _load(MINDCLUSTER, "", read_file)
    return None if table.error else table


def _load(path: str, variable: str, read_file: ReadFile) -> MountedRankTable:
    try:
        return MountedRankTable(path, variable, read_file(path))
    except IsADirectoryError:
        files = [f"{path.rstrip('/')}/{name}" for name in FILES_IN_FOLDER]
        tables = [_load(file, variable, read_file) for file in files]
        return next((table for table in tables if not table.error), tables[0])
    except UnicodeDecodeError:
        return MountedRankTable(path, variable, error="it is not UTF-8 text")
    except (OSError, ValueError) as error:
        return MountedRankTable(path, variable, error=unreadable_reason(error))


def _status(text: str) -> str:
    if not text.strip():
        return "it is empty"
    try:
        tree = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return "it is not JSON"
    status = tree.get("status") if isinstance(tree, dict) else None
    return f'"{printable(status, 40)}"' if isinstance(status, str) else "it has no status"


def wait_for_table(
    path: str,
    until: float,
    *,
    read_file: ReadFile = read_text_file,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Waits until the table is complete. Returns the empty string, or why nothing in it can be checked.

    A file that is half written, or not there yet, is waited for as well. ``until``: seconds by ``clock``.
    """
    started = clock()
    while True:
        table = _load(path, "", read_file)
        if not table.error and not table.is_pending:
            return ""
        remaining = until - clock()
        if remaining <= 0:
            return _not_completed(table, clock() - started)
        sleep(min(POLL_INTERVAL, remaining))


def _not_completed(table: MountedRankTable, seconds: float) -> str:
    state = filled("its status is {0}", table.state) if table.state.startswith('"') else table.state
    hint = "is the Ascend Operator running, and does the device plugin report every device's IP?"
    return filled(
        'rank table {0}: {1} after {2} s, expected "{3}": {4}',
        printable(table.path),
        state,
        f"{seconds:.0f}",
        COMPLETED,
        hint,
    )
