"""The formats for people, called with what differs from a report without options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from doctor.engine.check import Check
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Report
from doctor.report.formats import plain as plain_format
from doctor.report.formats import text as text_format
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.terminal import Terminal


def plain(report: Report, checks: Mapping[str, Check], **more: Any) -> str:
    """The report as ``-f plain`` has it."""
    return plain_format.render(report, context(report, checks, **more))


def text(report: Report, checks: Mapping[str, Check], **more: Any) -> str:
    """The report as ``-f human`` has it."""
    return text_format.render(report, context(report, checks, **{"terminal": Terminal(tty=True), **more}))


def context(report: Report, checks: Mapping[str, Check] = {}, code: int | None = None, **more: Any) -> RenderContext:
    """What a format gets for this report; without ``code``, the exit code is the report's own."""
    return RenderContext(exit_code(report) if code is None else code, checks, **more)
