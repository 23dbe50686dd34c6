"""Output of a preflight: its one line, its report, the node lists."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from doctor.config.atomic_write import write_atomic

if TYPE_CHECKING:
    from doctor.engine.result import Report
    from doctor.preflight.options import PreflightOptions
    from doctor.preflight.run import Preflight
    from doctor.preflight.spares import SpareSelection
    from doctor.session.examine import Examination

TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes shows what is in it as the container's last message; 4096 bytes of it."""


def line(preflight: Preflight, report: Report, verdict_code: int, code: int, selection: SpareSelection | None) -> str:
    """The one line on stdout. ``verdict_code`` is the verdict's code, ``code`` what the process ends with."""
    import time

    from doctor.report.formats import oneline

    options = preflight.preflight_options
    return oneline.line(
        report,
        code,
        command="preflight",
        where=preflight.context.tag if preflight.context else "",
        tier=preflight.tier,
        skipped=preflight.skipped,
        need=options.need,
        path=options.report if options.report in preflight.written else "",
        seconds=time.monotonic() - preflight.start_time,
        cause=preflight.cause,
        word=word(preflight, report, verdict_code, selection),
    )


def word(preflight: Preflight, report: Report, verdict_code: int, selection: SpareSelection | None) -> str:
    """The word for the verdict's code, before exit codes are mapped."""
    from doctor.engine.exit_code import Exit
    from doctor.report.formats.oneline import verdict_word

    if preflight.skipped == ("all",):
        return "SKIP"
    if verdict_code == Exit.HEALTHY and selection is not None and preflight.preflight_options.need:
        return "OK"
    words_by_code = {Exit.FAILED: "FAIL", Exit.UNKNOWN: "UNKNOWN", Exit.NOTHING: "NOTHING"}
    return (
        words_by_code.get(Exit(verdict_code), verdict_word(report, verdict_code))
        if verdict_code in tuple(Exit)
        else "UNKNOWN"
    )


def print_advice(preflight: Preflight, report: Report, verdict_code: int) -> None:
    """Up to five lines on stderr: the findings and their fixes."""
    from doctor.remedy.fixable import fixable_checks
    from doctor.report.formats import oneline
    from doctor.report.layout.fold import fold
    from doctor.report.layout.summary_lines import fix_command

    if verdict_code == 0 or not report.outcomes:
        return
    checks_by_name = {check.name: check for check in preflight.catalog}
    for text in [note for note in report.notes if note.startswith("--need ")]:
        print_stderr(f"doctor: {text}")
    command = fix_command(report, fold(report), fixable_checks())
    for text in oneline.advice(report, checks_by_name, 4 if command else 5):
        print_stderr(text)
    if command:
        print_stderr(f"To fix it: {command}")


def write_reports(preflight: Preflight, report: Report, examination: Examination | None, verdict_code: int) -> None:
    """Writes the report and the requested files. A write error is reported, and does not change the verdict."""
    for option, path, data in _files(preflight, report, examination, verdict_code):
        try:
            write_atomic(path, data)
            preflight.written.add(path)
        except OSError as error:
            print_stderr(f"doctor: {option} {path}: {error.strerror or error}; it was not written")
    if preflight.format_targets:
        from doctor.report.formats.registry import RenderContext
        from doctor.session.output_files import write_files

        preflight.events.finish(report, verdict_code)
        checks_by_name = {check.name: check for check in preflight.catalog}
        unwritten_targets = [
            target for target in preflight.format_targets if target.name != "jsonl" or not preflight.events.streams
        ]
        write_files(unwritten_targets, report, RenderContext(verdict_code, checks_by_name, command="preflight"))


def write_node_files(selection: SpareSelection, options: PreflightOptions) -> list[str]:
    """The lists of hosts. Returns a line for each that could not be written."""
    from doctor.preflight.node_lists import write_node_lists

    lines = write_node_lists(selection, options)
    for text in lines:
        print_stderr(f"doctor: {text}")
    return lines


def _files(
    preflight: Preflight, report: Report, examination: Examination | None, verdict_code: int
) -> Iterator[tuple[str, str, bytes]]:
    from doctor.report.formats.json import encode

    options = preflight.preflight_options
    if options.report:
        yield "--report", options.report, encode(report, verdict_code)
    if options.save and examination is not None:
        import msgspec

        from doctor.engine.record import redact_run

        made_for = tuple(outcome.check for outcome in report.outcomes)
        run = redact_run(msgspec.structs.replace(examination.run, checks=made_for))
        yield "--save", options.save, msgspec.json.encode(run) + b"\n"


def termination_log(text: str, environ: Mapping[str, str]) -> None:
    """In a pod, the line goes where `kubectl describe` shows it. A write error there is ignored."""
    if not environ.get("KUBERNETES_SERVICE_HOST") or not os.access(TERMINATION_LOG, os.W_OK):
        return
    try:
        with open(TERMINATION_LOG, "wb", buffering=0) as file:
            file.write(text.encode("utf-8", "backslashreplace")[:4000] + b"\n")
    except OSError:
        pass


def print_stderr(text: str) -> None:
    """On stderr, whether or not anybody reads it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
