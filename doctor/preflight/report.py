"""What a preflight leaves behind: its one line, its report, the lists of hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from doctor.config.atomic_write import write_whole

if TYPE_CHECKING:
    from doctor.engine.result import Report
    from doctor.preflight.options import Wanted
    from doctor.preflight.run import Preflight
    from doctor.preflight.spares import Choice
    from doctor.session.examine import Examination

TERMINATION_LOG = "/dev/termination-log"
"""Kubernetes shows what is in it as the container's last message; 4096 bytes of it."""


def line(flight: Preflight, report: Report, own: int, code: int, choice: Choice | None) -> str:
    """The one line on stdout. ``own`` is the verdict's code, ``code`` what the process ends with."""
    import time

    from doctor.report.formats import oneline

    wanted = flight.wanted
    return oneline.line(
        report,
        code,
        command="preflight",
        where=flight.place.tag if flight.place else "",
        tier=flight.tier,
        skipped=flight.skipped,
        need=wanted.need,
        path=wanted.report if wanted.report in flight.written else "",
        seconds=time.monotonic() - flight.began,
        cause=flight.cause,
        word=word(flight, report, own, choice),
    )


def word(flight: Preflight, report: Report, own: int, choice: Choice | None) -> str:
    """What the verdict's code means, before anything was made of it."""
    from doctor.engine.exit_code import Exit
    from doctor.report.formats.oneline import word_of

    if flight.skipped == ("all",):
        return "SKIP"
    if own == Exit.HEALTHY and choice is not None and flight.wanted.need:
        return "OK"
    known = {Exit.FAILED: "FAIL", Exit.UNKNOWN: "UNKNOWN", Exit.NOTHING: "NOTHING"}
    return known.get(Exit(own), word_of(report, own)) if own in tuple(Exit) else "UNKNOWN"


def advise(flight: Preflight, report: Report, own: int) -> None:
    """Up to five lines on stderr: what is wrong, and what mends it."""
    from doctor.remedy.fixable import mendable
    from doctor.report.formats import oneline
    from doctor.report.layout.fold import fold
    from doctor.report.layout.summary_lines import mend

    if own == 0 or not report.outcomes:
        return
    pages = {one.name: one for one in flight.known}
    for text in [note for note in report.notes if note.startswith("--need ")]:
        say(f"doctor: {text}")
    command = mend(report, fold(report), mendable())
    for text in oneline.advice(report, pages, 4 if command else 5):
        say(text)
    if command:
        say(f"To mend it: {command}")


def files(flight: Preflight, report: Report, done: Examination | None, own: int) -> None:
    """The report and whatever else was asked for. A file that cannot be written is said, and changes no verdict."""
    for option, path, data in _files(flight, report, done, own):
        try:
            write_whole(path, data)
            flight.written.add(path)
        except OSError as error:
            say(f"doctor: {option} {path}: {error.strerror or error}; it was not written")
    if flight.asked:
        from doctor.report.formats.registry import Setting
        from doctor.session.output_files import write_files

        flight.events.finish(report, own)
        pages = {one.name: one for one in flight.known}
        whole = [one for one in flight.asked if one.name != "jsonl" or not flight.events.streams]
        write_files(whole, report, Setting(own, pages, command="preflight"))


def node_files(choice: Choice, wanted: Wanted) -> list[str]:
    """The lists of hosts. Returns a line for each that could not be written."""
    from doctor.preflight.node_lists import write

    lines = write(choice, wanted)
    for text in lines:
        say(f"doctor: {text}")
    return lines


def _files(flight: Preflight, report: Report, done: Examination | None, own: int) -> Iterator[tuple[str, str, bytes]]:
    from doctor.report.formats.json import encode

    wanted = flight.wanted
    if wanted.report:
        yield "--report", wanted.report, encode(report, own)
    if wanted.save and done is not None:
        import msgspec

        from doctor.engine.record import redacted

        made_for = tuple(one.check for one in report.outcomes)
        run = redacted(msgspec.structs.replace(done.run, checks=made_for))
        yield "--save", wanted.save, msgspec.json.encode(run) + b"\n"


def termination_log(text: str, environ: Mapping[str, str]) -> None:
    """In a pod, the line goes where `kubectl describe` shows it. Who cannot write there says nothing."""
    if not environ.get("KUBERNETES_SERVICE_HOST") or not os.access(TERMINATION_LOG, os.W_OK):
        return
    try:
        with open(TERMINATION_LOG, "wb", buffering=0) as file:
            file.write(text.encode("utf-8", "backslashreplace")[:4000] + b"\n")
    except OSError:
        pass


def say(text: str) -> None:
    """On stderr, whether or not anybody reads it."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
