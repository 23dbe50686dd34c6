"""Events: what a rank reports to the agent, one line of JSON each."""

from __future__ import annotations

import json
import os
from typing import Any


class EventWriter:
    """Writes to a pipe that all ranks of the host share. Each event is one write, so that lines never mix."""

    def __init__(self, file: int, rank: int) -> None:
        self.file, self.rank = file, rank

    def emit(self, event: str, **values: Any) -> None:
        """Example: ``emit("step", loss=4.1)`` on rank 3 writes ``{"loss":4.1,"ev":"step","rank":3}``."""
        line = json.dumps(dict(values, ev=event, rank=values.get("rank", self.rank)), separators=(",", ":"))
        os.write(self.file, line.encode("ascii") + b"\n")
