"""What pages of `doctor explain` are made from: playbook files, and the width of the terminal."""

from __future__ import annotations

import os
import sys

from doctor.report.layout.terminal import terminal_columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from doctor.remedy.playbook import Playbook


def built_in_playbook(path: Path) -> Playbook:
    """One of our own playbooks. They are valid, so that the rules for playbooks need not be loaded."""
    from doctor.engine.toml_compat import loads
    from doctor.remedy.playbook import Playbook, PlaybookStep

    table = loads(path.read_text("utf-8"))
    steps = tuple(PlaybookStep(number, **step) for number, step in enumerate(table.pop("step"), 1))
    return Playbook(path.stem.replace("_", "-"), str(path), treats=tuple(table.pop("treats")), steps=steps, **table)


def topic_width() -> int:
    """Columns of the terminal; 80 in a pipe."""
    return terminal_columns(sys.stdout, os.environ) or 80


def page_width() -> int:
    """Columns of the terminal; 100 in a pipe."""
    return terminal_columns(sys.stdout, os.environ) or 100
