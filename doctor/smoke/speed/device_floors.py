"""What a vendor says that a device does at least. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from doctor.engine.toml_compat import read_table


@cache
def memory_floors() -> Mapping[str, int]:
    """MB/s of the device's memory, read and written, by the name that its driver gives it."""
    return read_table(Path(__file__).with_suffix(".toml"), dict[str, int])


def memory_floor(model: str) -> float | None:
    """Bytes a second; None where the vendor says nothing of this model.

    >>> memory_floor("NVIDIA H100 80GB HBM3")
    1905000000000.0
    """
    floor = memory_floors().get(model)
    return floor * 1e6 if floor else None
