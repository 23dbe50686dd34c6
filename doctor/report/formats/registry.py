"""The formats that a report can have, by name; what one needs is loaded when it is used. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from importlib import import_module

import msgspec

from doctor.engine.check import Check
from doctor.engine.language import english
from doctor.engine.result import Report
from doctor.engine.secrets import hide_tokens
from doctor.engine.texts import beginning, filled
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
    views: Mapping[str, Callable[[RenderContext], str]] = {}
    """Formats in which a command shows more than the report holds, or shows it in its own words."""
    seconds: float | None = None


class ReportFormat(msgspec.Struct, frozen=True):
    """One format: how ``-f`` names it, and how its file is written."""

    name: str
    module: str
    """The module of this package that has its function ``render``."""
    purpose: str
    """What it is for, in one line: the row of the table in ``doctor/docs/formats.md``."""
    is_localized: bool = False
    """It is for people, and so in the language of this process; what programs read is English."""
    file_mode: int = 0o600
    """Permissions of its file: readable by the owner alone, unless another user's program has to read it."""


_ROWS = (
    ReportFormat("human", "text", "a terminal: colour, symbols, its width", is_localized=True),
    ReportFormat("plain", "plain", "a log file or a pipe", is_localized=True),
    ReportFormat("oneline", "oneline", "the line of `doctor preflight`"),
    ReportFormat("json", "json", "programs: one document"),
    ReportFormat("jsonl", "jsonl", "programs: events while the run goes on"),
    ReportFormat("md", "markdown", "a ticket: verdict, evidence, and the command to check again", is_localized=True),
    ReportFormat("junit", "junit", "CI: a check is a test case; unknown is an error, never a pass"),
    ReportFormat(
        "prometheus",
        "prometheus",
        "node_exporter's textfile collector (the file name must end in `.prom`)",
        file_mode=0o644,
    ),
    ReportFormat(
        "html", "html", "a browser: one file with tables, maps and charts, which loads nothing", is_localized=True
    ),
)
"""In the order in which help lists them."""
REPORT_FORMATS = {row.name: row for row in _ROWS}
FORMATS = tuple(REPORT_FORMATS)
"""The names that ``-f`` takes."""


class FormatTarget(msgspec.Struct, frozen=True):
    """One format that is wanted, and where."""

    name: str
    path: str = ""
    """Empty for stdout."""


def render(name: str, report: Report, context: RenderContext) -> str:
    """The report in one of `FORMATS`, with a line feed at its end; without secrets."""
    from doctor.engine.report_secrets import without_secrets

    chosen = REPORT_FORMATS[name]
    with nullcontext() if chosen.is_localized else english():
        if name in context.views:
            return hide_tokens(context.views[name](context))
        module = import_module(f"doctor.report.formats.{chosen.module}")
        return hide_tokens(module.render(without_secrets(report), context))


def render_bytes(name: str, report: Report, context: RenderContext) -> bytes:
    """The same as a file holds it."""
    return render(name, report, context).encode("utf-8", "backslashreplace")


def parse_targets(arguments: Iterable[str]) -> tuple[FormatTarget, ...]:
    """The outputs that ``FORMAT[=FILE]`` words request. Raises: ValueError, with one line."""
    targets = tuple(_parse_target(word) for word in arguments)
    paths = [target.path for target in targets]
    if paths.count("") > 1:
        text = "{0} are directed to stdout: expected one there, and FORMAT=FILE for the rest"
        raise ValueError(filled(text, " and ".join(target.name for target in targets if not target.path)))
    twice = next((path for path in paths if path and paths.count(path) > 1), "")
    if twice:
        raise ValueError(
            filled("{0} is the output of two formats: expected a separate file for each format", f"{twice!r}")
        )
    return targets


def _parse_target(word: str) -> FormatTarget:
    name, sign, path = word.partition("=")
    if name not in FORMATS:
        raise ValueError(
            filled("{0}: expected {1}, or one of them with =FILE", f"{beginning(word, 100)!r}", ", ".join(FORMATS))
        )
    if sign and not path:
        raise ValueError(filled("{0}: expected a file after the =", f"{word!r}"))
    return FormatTarget(name, "" if path == "-" else path)
