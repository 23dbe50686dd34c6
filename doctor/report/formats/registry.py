"""The formats that a report can have, by name; what one needs is loaded when it is used. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.language import english
from doctor.engine.secrets import hide_tokens
from doctor.report.formats.renderer import RenderContext as RenderContext
from doctor.report.formats.renderer import Renderer

if TYPE_CHECKING:
    from doctor.engine.result import Report

_MODULES = {
    "human": "text",
    "plain": "plain",
    "oneline": "oneline",
    "json": "json",
    "jsonl": "jsonl",
    "md": "markdown",
    "junit": "junit",
    "prometheus": "prometheus",
    "html": "html",
}
"""Each format's module in this package, in the order in which help lists them."""
FORMATS = tuple(_MODULES)
"""The names that ``-f`` takes."""


class FormatTarget(msgspec.Struct, frozen=True):
    """One format that is wanted, and where."""

    name: str
    path: str = ""
    """Empty for stdout."""


def renderer(name: str) -> Renderer:
    """The format of this name. Raises: KeyError for what is none of `FORMATS`."""
    module = import_module(f"doctor.report.formats.{_MODULES[name]}")
    format_renderer: Renderer = module.RENDERER
    return format_renderer


def render(name: str, report: Report, context: RenderContext) -> str:
    """The report in one of `FORMATS`."""
    from doctor.engine.report_secrets import without_secrets

    chosen, shown = renderer(name), without_secrets(report)
    if chosen.is_localized:
        return hide_tokens(chosen.render(shown, context))
    with english():
        return hide_tokens(chosen.render(shown, context))


def render_bytes(name: str, report: Report, context: RenderContext) -> bytes:
    """The same as a file holds it."""
    return render(name, report, context).encode("utf-8", "backslashreplace")


def parse_targets(arguments: Iterable[str]) -> tuple[FormatTarget, ...]:
    """The outputs that ``FORMAT[=FILE]`` words request. Raises: ValueError, with one line."""
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
