"""The files of logs beside the tests of `doctor.diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

LOGS = Path(__file__).with_name("logs")


def read(name: str) -> Any:
    """What a YAML file of `LOGS` holds; the loader in C takes a tenth of the time."""
    return yaml.load((LOGS / name).read_text("utf-8"), yaml.CSafeLoader)
