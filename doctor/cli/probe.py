"""`doctor probe`: the probe as one file, for clusters without doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from doctor.engine.errors import UsageError
from doctor.engine.streams import write_stdout


def command(
    *, print_: Annotated[bool, typer.Option("--print", help="Write the probe to stdout, as one Python file.")] = False
) -> None:
    """Write the probe, which a training program calls, as one file.

    `doctor probe --print > probe.py`; the program calls it where ranks must agree, and `doctor watch` compares.

    Exit codes: 0 written; 2 usage.
    """
    from doctor.watch.probe_file import probe_text

    if not print_:
        raise UsageError("nothing to do: expected --print, for example doctor probe --print > probe.py")
    write_stdout(probe_text())
