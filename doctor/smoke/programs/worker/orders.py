"""What a worker is ordered by its agent, and the events that it reports to it: one line of JSON each."""

from __future__ import annotations

import json
import os
import select
from typing import Any, TypedDict

from doctor.remote.runtime.host_texts import with_texts
from doctor.smoke.programs.process_groups import Plan

PART_LENGTH = select.PIPE_BUF // 2 - 100
"""Characters of an event in one part. As text inside of JSON a character may take two."""


class Orders(TypedDict):
    """What the process of one or more ranks is started for. Files are numbers of open ones that it inherits."""

    plan: Plan
    mine: list[int]
    """Its ranks."""
    start: str
    master: tuple[str, int]
    hosts_store: bool
    agent: int
    """The process id of the agent."""
    index: dict[str, int]
    """Each rank's page in the file ``box``."""
    box: int
    events: int
    store: int
    errors: dict[str, int]
    """By the rank, what becomes its output."""
    stacks: dict[str, int]


class EventWriter:
    """Writes to a pipe that all ranks of the host share.

    Each line is one write of less than PIPE_BUF bytes, so that lines of two ranks never mix. A longer event, such as
    a group of a thousand ranks, is written in parts, which the agent joins.
    """

    def __init__(self, file: int, rank: int) -> None:
        self.file, self.rank = file, rank

    def emit(self, event: str, **values: Any) -> None:
        """Example: ``emit("step", loss=4.1)`` on rank 3 writes ``{"loss":4.1,"ev":"step","rank":3}``."""
        message = with_texts(dict(values, ev=event, rank=values.get("rank", self.rank)))
        line = json.dumps(message, separators=(",", ":"))
        if len(line) < select.PIPE_BUF:
            os.write(self.file, line.encode("ascii") + b"\n")
            return
        for start in range(0, len(line), PART_LENGTH):
            stop = start + PART_LENGTH
            self.emit("part", text=line[start:stop], more=stop < len(line))
