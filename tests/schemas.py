"""The files of the JSON schemas of documents."""

from __future__ import annotations

from pathlib import Path


def schema_file(name: str) -> Path:
    """Of ``doctor.NAME/1``."""
    return Path(__file__).parents[1] / "doctor" / "report" / "schema" / f"doctor.{name}.1.json"
