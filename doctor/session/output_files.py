"""Reports in other formats, for every command that judges: to stdout, to files, as events while it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from doctor.engine.errors import UsageError
from doctor.session.console import write

if TYPE_CHECKING:
    from doctor.engine.record import HostRecord
    from doctor.engine.result import Report
    from doctor.report.formats.jsonl import Events
    from doctor.report.formats.registry import Asked, Setting


def asked_for(words: Sequence[str], as_json: bool = False) -> tuple[Asked, ...]:
    """What ``-f`` and ``--json`` ask for. Raises: CommandError."""
    if not words and not as_json:
        return ()
    from doctor.report.formats.registry import asked

    try:
        return asked([*(["json"] if as_json else []), *words])
    except ValueError as error:
        raise UsageError(f"-f {error}") from None


def write_files(asked: Sequence[Asked], report: Report, to: Setting) -> None:
    """Each format's file, whole or not at all. A failure is said, and changes no verdict."""
    from doctor.config.atomic_write import write_whole
    from doctor.report.formats.registry import MODES, encoded

    for one in asked:
        if one.path:
            try:
                write_whole(one.path, encoded(one.name, report, to), MODES.get(one.name, 0o600))
            except OSError as error:
                complain(f"-f {one.name}={one.path}: {error.strerror or error}; it was not written")


def complain(text: str) -> None:
    """One line on stderr, whether or not anybody reads it."""
    with suppress(OSError, ValueError):
        print(f"doctor: {text}", file=sys.stderr, flush=True)


def both(*calls: Callable[..., None]) -> Callable[..., None]:
    """One callback that calls them all."""

    def called(*words: Any) -> None:
        for call in calls:
            call(*words)

    return called


class Followers:
    """The event streams of one run: as many as were asked for, often none."""

    def __init__(self, streams: Sequence[Events] = ()) -> None:
        self.streams = streams

    def host(self, host: str, record: HostRecord) -> None:
        """The ``progress`` of `doctor.session.examine.examine`."""
        for one in self.streams:
            one.host(host, record)

    def stage(self, name: str, seconds: float) -> None:
        """The ``stage`` of `doctor.session.examine.examine`."""
        for one in self.streams:
            one.stage(name, seconds)

    def finish(self, report: Report, code: int) -> None:
        for one in self.streams:
            one.finish(report, code)


def follow(
    asked: Sequence[Asked], hosts: Sequence[str], checks: Sequence[str] = (), source: str = "", redact: bool = False
) -> Followers:
    """Streams of events to wherever ``jsonl`` was asked for, begun. A file grows as the run goes on."""
    wanted = [one for one in asked if one.name == "jsonl"]
    if not wanted:
        return Followers()
    from doctor.report.formats.jsonl import Events
    from doctor.session.redact import veil

    hides = veil(hosts) if redact else str
    writers = [_writer(one.path) if one.path else write for one in wanted]
    streams = [Events(writer, veil=hides) for writer in writers if writer]
    for stream in streams:
        stream.start(hosts, checks, source)
    return Followers(streams)


def _writer(path: str) -> Callable[[str], None] | None:
    """Writes to a file line by line; what cannot be written is said once, and then let be."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    except OSError as error:
        complain(f"-f jsonl={path}: {error.strerror}; it was not written")
        return None
    broken: list[OSError] = []

    def put(text: str) -> None:
        left = b"" if broken else text.encode("ascii", "backslashreplace")
        try:
            while left:
                left = left[os.write(handle, left) :]
        except OSError as error:
            broken.append(error)
            complain(f"-f jsonl={path}: {error.strerror}; it ends early")

    return put
