"""Reports in other formats, for every command that judges: to stdout, to files, as events while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from doctor.engine.errors import UsageError
from doctor.engine.language import localized_filled
from doctor.engine.streams import print_stderr, write_stdout
from doctor.engine.texts import filled
from doctor.report.formats.registry import REPORT_FORMATS, FormatTarget, RenderContext, parse_targets, render_bytes

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.record import HostRecord
    from doctor.engine.result import Report
    from doctor.report.formats.jsonl import EventStream


STDOUT = "-"
"""The path that stands for stdout."""


def requested_targets(formats: Sequence[str], as_json: bool = False) -> tuple[FormatTarget, ...]:
    """The outputs that ``-f`` and ``--json`` request. Raises: CommandError."""
    if not formats and not as_json:
        return ()

    try:
        return parse_targets([*(["json"] if as_json else []), *formats])
    except ValueError as error:
        raise UsageError(filled("-f {0}", str(error))) from None


def output_conflict(outputs: Sequence[tuple[str, str]]) -> str:
    """Which two options name one file, also by different paths; empty when none do. ``outputs``: options and paths."""
    options_by_file: dict[object, str] = {}
    for option, path in outputs:
        if not path or (path != STDOUT and os.path.exists(path) and not os.path.isfile(path)):
            continue  # a device or pipe takes several
        other = options_by_file.setdefault(_file_identity(path), option)
        if other != option:
            return filled("{0} and {1} are both {2}: expected a separate file for each", other, option, f"{path!r}")
    return ""


def _file_identity(path: str) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return path if path == STDOUT else (status.st_dev, status.st_ino)


def write_output(path: str, data: bytes, mode: int = 0o600) -> None:
    """Writes a file atomically, or to stdout if the path is `STDOUT`. Raises: OSError."""
    from doctor.config.atomic_write import write_atomic

    if path == STDOUT:
        if data:
            write_stdout(data.decode("utf-8", "replace"))
    else:
        write_atomic(path, data, mode)


def write_files(targets: Sequence[FormatTarget], report: Report, context: RenderContext) -> list[FormatTarget]:
    """Writes each format's file atomically. Returns those that could not be written: their reports go to stderr."""
    if not any(target.path for target in targets):
        return []
    from doctor.config.atomic_write import write_atomic

    failed = []
    for target in targets:
        if target.path:
            data = render_bytes(target.name, report, context)
            try:
                write_atomic(target.path, data, REPORT_FORMATS[target.name].file_mode)
            except OSError as error:
                failed.append(target)
                reason = error.strerror or error
                print_warning(
                    filled("-f {0}={1}: {2}; it was not written, and follows here", target.name, target.path, reason)
                )
                print_stderr(data.rstrip(b"\n").decode("utf-8", "replace"))
    return failed


def print_warning(text: str) -> None:
    """One line on stderr, whether or not anybody reads it."""
    print_stderr(filled("doctor: {0}", localized_filled(text)))


def combine_callbacks(*calls: Callable[..., None]) -> Callable[..., None]:
    """One callback that calls them all."""

    def combined(*arguments: Any) -> None:
        for call in calls:
            call(*arguments)

    return combined


class EventStreams:
    """The event streams of one run: as many as were requested, often none."""

    def __init__(self, streams: Sequence[EventStream] = (), failures: Sequence[OSError] = ()) -> None:
        self.streams = streams
        self.failures = failures
        """Why files of events are incomplete or absent."""

    def host(self, host: str, record: HostRecord) -> None:
        for stream in self.streams:
            stream.host(host, record)

    def stage(self, name: str, seconds: float) -> None:
        for stream in self.streams:
            stream.stage(name, seconds)

    def finish(self, report: Report, code: int, checks: Mapping[str, Check]) -> None:
        for stream in self.streams:
            stream.finish(report, code, checks)


def open_event_streams(
    targets: Sequence[FormatTarget],
    hosts: Sequence[str],
    checks: Sequence[str] = (),
    source: str = "",
    redact: bool = False,
) -> EventStreams:
    """Streams of events to wherever ``jsonl`` was asked for, begun. A file grows as the run goes on."""
    jsonl_targets = [target for target in targets if target.name == "jsonl"]
    if not jsonl_targets:
        return EventStreams()
    from doctor.report.formats.jsonl import EventStream
    from doctor.session.redact import text_redactor

    redact_text = text_redactor(hosts) if redact else str
    failures: list[OSError] = []
    writers = [_line_writer(target.path, failures) if target.path else write_stdout for target in jsonl_targets]
    streams = [EventStream(writer, redact=redact_text) for writer in writers if writer]
    for stream in streams:
        stream.start(hosts, checks, source)
    return EventStreams(streams, failures)


def _line_writer(path: str, failures: list[OSError]) -> Callable[[str], None] | None:
    """Writes to a file line by line; a write error is reported once, and added to ``failures``."""
    from doctor.config.atomic_write import GrowingFile

    try:
        file = GrowingFile(path)
    except OSError as error:
        print_warning(filled("-f jsonl={0}: {1}; it was not written", path, error.strerror))
        failures.append(error)
        return None
    broken: list[OSError] = []

    def put(text: str) -> None:
        if broken:
            return
        try:
            file.write(text.encode("ascii", "backslashreplace"))
        except OSError as error:
            broken.append(error)
            failures.append(error)
            print_warning(filled("-f jsonl={0}: {1}; the file is incomplete", path, error.strerror))

    return put
