"""Where a user's state is kept, by the XDG Base Directory specification. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """Ours below XDG_STATE_HOME, else ``~/.local/state``; None where neither is an absolute path."""
    homes = (environ.get("XDG_STATE_HOME", ""), os.path.join(environ.get("HOME", ""), ".local", "state"))
    home = next((path for path in homes if os.path.isabs(path)), None)
    return Path(home) / "doctor" if home else None
