"""Messages that each row of the kernel's table finds: of hosts, and written from the driver's format."""

from __future__ import annotations

from pathlib import Path

from doctor.engine.toml_compat import loads

_TABLE = loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SAMPLES: dict[str, tuple[str, ...]] = {name: tuple(kinds.get("samples", ())) for name, kinds in _TABLE.items()}
"""By id of the row."""
EMULATED: dict[str, tuple[str, ...]] = {name: tuple(kinds.get("emulated", ())) for name, kinds in _TABLE.items()}
"""The same, where no host's message was seen."""


def messages_of(row: str) -> tuple[str, ...]:
    """All of a row; none of one that has none, which the tests name.

    >>> len(messages_of("xid"))
    2
    """
    return (*SAMPLES.get(row, ()), *EMULATED.get(row, ()))
