"""Job scripts in pairs, a mistake and its healthy twin: ``pairs.toml``."""

from __future__ import annotations

import re
from pathlib import Path

from doctor.engine.toml_compat import read_table

UNKNOWN = {"vllm nnodes", "ds batch", "llamafactory rank"}
"""Pairs whose mistake depends on what the script does not say: both sides are not decided."""
PAIRS = read_table(Path(__file__).with_suffix(".toml"), dict[str, dict[str, str]])
"""By what is wrong, the files: the script is ``run.sh``."""


def side(text: str, *, is_good: bool) -> str:
    """The text with its mistakes, or without."""
    return re.sub(r"@\[(.*?)@\|(.*?)@\]", lambda match: match[2 if is_good else 1], text, flags=re.DOTALL)
