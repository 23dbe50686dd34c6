"""The formats that a report can have, by name; what one needs is loaded when it is used. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report
    from doctor.report.layout.terminal import Terminal


class RenderContext(msgspec.Struct, frozen=True):
    """Inputs of a format beside the report."""

    code: int
    """The exit code that the report comes with."""
    checks_by_name: Mapping[str, Check] = {}
    """The checks by name, for why and what to do."""
    terminal: Terminal | None = None
    """How the terminal looks; None for a file."""
    verbose: bool = False
    fixable_checks: Collection[str] = ()
    """The checks that have a playbook."""
    command: str = "check"
    seconds: float | None = None


class FormatTarget(msgspec.Struct, frozen=True):
    """One format that is wanted, and where."""

    name: str
    path: str = ""
    """Empty for stdout."""


def _render_human(report: Report, context: RenderContext) -> str:
    from doctor.report.formats import text
    from doctor.report.layout.terminal import Terminal

    terminal = context.terminal or Terminal(tty=True, width=100)
    terminal = terminal if terminal.width else msgspec.structs.replace(terminal, width=80)
    return text.render(
        report,
        context.checks_by_name,
        terminal=terminal,
        verbose=context.verbose,
        code=context.code,
        fixable=context.fixable_checks,
    )


def _render_plain(report: Report, context: RenderContext) -> str:
    from doctor.report.formats import plain
    from doctor.report.layout.terminal import Terminal

    return plain.render(
        report,
        context.checks_by_name,
        terminal=context.terminal or Terminal(),
        verbose=context.verbose,
        code=context.code,
        fixable=context.fixable_checks,
    )


def _render_oneline(report: Report, context: RenderContext) -> str:
    from doctor.report.formats.oneline import line

    return line(report, context.code, command=context.command, seconds=context.seconds) + "\n"


def _render_json(report: Report, context: RenderContext) -> str:
    from doctor.report.formats.json import encode

    return encode(report, context.code).decode("utf-8")


def _render_jsonl(report: Report, context: RenderContext) -> str:
    from doctor.report.formats import jsonl

    return jsonl.render(report, context.code)


def _render_markdown(report: Report, context: RenderContext) -> str:
    from doctor.report.formats import markdown

    return markdown.render(report, context.checks_by_name, context.code)


def _render_junit(report: Report, context: RenderContext) -> str:
    from doctor.report.formats import junit

    return junit.render(report, context.code)


def _render_prometheus(report: Report, context: RenderContext) -> str:
    from doctor.report.formats import prometheus

    return prometheus.render(report, context.code)


FORMATS: dict[str, Callable[[Report, RenderContext], str]] = {
    "human": _render_human,
    "plain": _render_plain,
    "oneline": _render_oneline,
    "json": _render_json,
    "jsonl": _render_jsonl,
    "md": _render_markdown,
    "junit": _render_junit,
    "prometheus": _render_prometheus,
}
FILE_MODES = {"prometheus": 0o644}
"""Files are their owner's alone, but for what another user's exporter is to read."""


def render(name: str, report: Report, context: RenderContext) -> str:
    """The report in one of `FORMATS`."""
    return FORMATS[name](report, context)


def render_bytes(name: str, report: Report, context: RenderContext) -> bytes:
    """The same as a file holds it."""
    return render(name, report, context).encode("utf-8", "backslashreplace")


def parse_targets(arguments: Iterable[str]) -> tuple[FormatTarget, ...]:
    """What ``FORMAT[=FILE]`` words ask for. Raises: ValueError, with one line."""
    targets = tuple(_parse_target(word) for word in arguments)
    paths = [target.path for target in targets]
    if paths.count("") > 1:
        raise ValueError(
            f"{_stdout_names(targets)} are directed to stdout: expected one there, and FORMAT=FILE for the rest"
        )
    twice = next((path for path in paths if path and paths.count(path) > 1), "")
    if twice:
        raise ValueError(f"{twice!r} is the output of two formats: expected a separate file for each format")
    return targets


def _parse_target(word: str) -> FormatTarget:
    name, sign, path = word.partition("=")
    if name not in FORMATS:
        raise ValueError(f"{word[:100]!r}: expected {', '.join(FORMATS)}, or one of them with =FILE")
    if sign and not path:
        raise ValueError(f"{word!r}: expected a file after the =")
    return FormatTarget(name, "" if path == "-" else path)


def _stdout_names(targets: Iterable[FormatTarget]) -> str:
    return " and ".join(target.name for target in targets if not target.path)
