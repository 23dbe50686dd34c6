"""The probe as one file that needs nothing of doctor."""

from __future__ import annotations

import re
from pathlib import Path

FILES = ("digest", "digest_folder", "channel", "digest_records")
"""Of ``doctor/watch/hook/``, in the order in which the probe needs them."""
_FOLDER = Path(__file__).parent
_FUTURE = "from __future__ import annotations\n"
_OWN_IMPORT = re.compile(r"^from (?:doctor\.[\w.]+|\.\w+) import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE)


def probe_text() -> str:
    """The text of ``probe.py``, as ``doctor probe --print`` writes it."""
    documentation, rest = (_FOLDER / "probe.py").read_text("ascii").split(_FUTURE, 1)
    parts = [(_FOLDER / "hook" / f"{name}.py").read_text("ascii").split(_FUTURE, 1)[1] for name in FILES]
    return documentation + _FUTURE + "".join(_OWN_IMPORT.sub("", text) for text in (*parts, rest))
