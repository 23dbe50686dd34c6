"""The formats that a report can have, by name; what one needs is loaded when it is used. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report
    from doctor.report.layout.terminal import Look


class Setting(msgspec.Struct, frozen=True):
    """What a format is told beside the report."""

    code: int
    """The exit code that the report comes with."""
    pages: Mapping[str, Check] = {}
    """The checks by name, for why and what to do."""
    look: Look | None = None
    """How the terminal looks; None for a file."""
    verbose: bool = False
    mendable: Collection[str] = ()
    """The checks that a playbook mends."""
    command: str = "check"
    seconds: float | None = None


class Asked(msgspec.Struct, frozen=True):
    """One format that is wanted, and where."""

    name: str
    path: str = ""
    """Empty for stdout."""


def _human(report: Report, to: Setting) -> str:
    from doctor.report.formats import text
    from doctor.report.layout.terminal import Look

    look = to.look or Look(tty=True, width=100)
    look = look if look.width else msgspec.structs.replace(look, width=80)
    return text.render(report, to.pages, look=look, verbose=to.verbose, code=to.code, mendable=to.mendable)


def _plain(report: Report, to: Setting) -> str:
    from doctor.report.formats import plain
    from doctor.report.layout.terminal import Look

    return plain.render(
        report, to.pages, look=to.look or Look(), verbose=to.verbose, code=to.code, mendable=to.mendable
    )


def _oneline(report: Report, to: Setting) -> str:
    from doctor.report.formats.oneline import line

    return line(report, to.code, command=to.command, seconds=to.seconds) + "\n"


def _json(report: Report, to: Setting) -> str:
    from doctor.report.formats.json import encode

    return encode(report, to.code).decode("utf-8")


def _jsonl(report: Report, to: Setting) -> str:
    from doctor.report.formats import jsonl

    return jsonl.render(report, to.code)


def _markdown(report: Report, to: Setting) -> str:
    from doctor.report.formats import markdown

    return markdown.render(report, to.pages, to.code)


def _junit(report: Report, to: Setting) -> str:
    from doctor.report.formats import junit

    return junit.render(report, to.code)


def _prometheus(report: Report, to: Setting) -> str:
    from doctor.report.formats import prometheus

    return prometheus.render(report, to.code)


FORMATS: dict[str, Callable[[Report, Setting], str]] = {
    "human": _human,
    "plain": _plain,
    "oneline": _oneline,
    "json": _json,
    "jsonl": _jsonl,
    "md": _markdown,
    "junit": _junit,
    "prometheus": _prometheus,
}
MODES = {"prometheus": 0o644}
"""Files are their owner's alone, but for what another user's exporter is to read."""


def render(name: str, report: Report, to: Setting) -> str:
    """The report in one of `FORMATS`."""
    return FORMATS[name](report, to)


def encoded(name: str, report: Report, to: Setting) -> bytes:
    """The same as a file holds it."""
    return render(name, report, to).encode("utf-8", "backslashreplace")


def asked(words: Iterable[str]) -> tuple[Asked, ...]:
    """What ``FORMAT[=FILE]`` words ask for. Raises: ValueError, with one line."""
    found = tuple(_asked(word) for word in words)
    paths = [one.path for one in found]
    if paths.count("") > 1:
        raise ValueError(f"{_listed(found)} are to go to stdout: expected one there, and FORMAT=FILE for the others")
    twice = next((path for path in paths if path and paths.count(path) > 1), "")
    if twice:
        raise ValueError(f"{twice!r} is to be written twice: expected a file of its own for each format")
    return found


def _asked(word: str) -> Asked:
    name, sign, path = word.partition("=")
    if name not in FORMATS:
        raise ValueError(f"{word[:100]!r}: expected {', '.join(FORMATS)}, or one of them with =FILE")
    if sign and not path:
        raise ValueError(f"{word!r}: expected a file after the =")
    return Asked(name, "" if path == "-" else path)


def _listed(found: Iterable[Asked]) -> str:
    return " and ".join(one.name for one in found if not one.path)
