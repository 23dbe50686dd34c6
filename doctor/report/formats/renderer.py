"""What a report format is: a name, its purpose, how its file is written, and how it renders a report."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report
    from doctor.report.layout.terminal import Terminal


class RenderContext(msgspec.Struct, frozen=True):
    """What a format needs beside the report."""

    code: int
    """The exit code that the report comes with."""
    checks_by_name: Mapping[str, Check] = {}
    """The checks by name, for why and what to do."""
    terminal: Terminal | None = None
    """The terminal's width and abilities; None for a file."""
    verbose: bool = False
    brief: bool = False
    """The findings in one line each and the last lines, without details."""
    fixable_checks: Collection[str] = ()
    """The checks that a playbook can fix."""
    command: str = "check"
    seconds: float | None = None


class Renderer(Protocol):
    """One format. A module of this package subclasses it, and names the instance ``RENDERER``."""

    name: ClassVar[str]
    """As ``-f`` takes it."""
    purpose: ClassVar[str]
    """What it is for, in one line: the row of the table in ``doctor/docs/formats.md``."""
    file_suffix: ClassVar[str] = ""
    """The ending that a file's name must have for those who read it; empty: any."""
    is_localized: ClassVar[bool] = False
    """It is for people, and so in the language of this process; what programs read is English."""
    file_mode: ClassVar[int] = 0o600
    """Permissions of its file: readable by the owner alone, unless another user's program has to read it."""

    def render(self, report: Report, context: RenderContext) -> str:
        """The report in this format, with a line feed at its end."""
        ...
