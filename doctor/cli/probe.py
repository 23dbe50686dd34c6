"""`doctor probe`: the probe as one file, for clusters without doctor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from doctor.engine.errors import UsageError
from doctor.engine.streams import write_stdout

FILES = ("digest", "digest_folder", "channel", "digest_records")
"""Of ``doctor/watch/hook/``, in the order in which the probe needs them."""
_FOLDER = Path(__file__).parents[1] / "watch"
_FUTURE = "from __future__ import annotations\n"
_OWN_IMPORT = re.compile(r"^from (?:doctor\.[\w.]+|\.\w+) import (?:\([^)]*\)|[^\n(]*)\n", re.MULTILINE)


def command(
    *, print_: Annotated[bool, typer.Option("--print", help="Write the probe to stdout, as one Python file.")] = False
) -> None:
    """Write the probe, which a training program calls, as one file.

    `doctor probe --print > probe.py`; the program calls it where ranks must agree, and `doctor watch` compares.

    Exit codes: 0 written; 2 usage.
    """
    if not print_:
        raise UsageError("nothing to do: expected --print, for example doctor probe --print > probe.py")
    write_stdout(probe_text())


def probe_text() -> str:
    """The text of ``probe.py``, as ``doctor probe --print`` writes it."""
    documentation, rest = (_FOLDER / "probe.py").read_text("ascii").split(_FUTURE, 1)
    parts = [(_FOLDER / "hook" / f"{name}.py").read_text("ascii").split(_FUTURE, 1)[1] for name in FILES]
    return documentation + _FUTURE + "".join(_OWN_IMPORT.sub("", text) for text in (*parts, rest))
