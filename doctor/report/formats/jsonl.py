"""A run as events, one JSON object per line, each as it happens, for programs that follow the run.

    {"event": "start", "schema": "doctor.events/1", "hosts": [...], "checks": [...]}
    {"event": "host", "host": "node001", "trouble": "", "text": ""}       a host was visited, or could not be
    {"event": "stage", "name": "rendezvous", "seconds": 1.3}              all ranks of the smoke run came so far
    {"event": "outcome", "check": "link-down", "status": "failed", ...}   as in doctor.report/1; not what passed
    {"event": "end", "verdict": "failed", "exit": 10, "counts": {...}}    always the last one

Pure ASCII; every event has ``time``, in UTC. A stream without an ``end`` is of a run that was killed.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from doctor import __version__
from doctor.engine.check import Check
from doctor.engine.language import english
from doctor.engine.record import HostRecord
from doctor.engine.result import Report
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.secrets import hide_secrets
from doctor.engine.utc_time import utc_text
from doctor.report.formats.json import document, to_json_value
from doctor.report.formats.registry import RenderContext

SCHEMA = "doctor.events/1"
OMITTED_STATUSES = ("passed", "skipped")
"""Outcomes that are only counted, unless something of them is waived."""
END_FIELDS = ("verdict", "exit", "counts", "source", "started", "seconds", "notes", "smoke")


def _now() -> str:
    return utc_text(timespec="milliseconds")


class EventStream:
    """Writes the events of a run. ``write`` gets each line and is to flush it; ``redact`` replaces host names."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        redact: Callable[[str], str] = lambda text: text,
        now: Callable[[], str] = _now,
    ) -> None:
        self.write, self.names, self.now = write, redact, now
        self.lock = threading.Lock()

    def redact(self, text: str) -> str:
        """Without secrets, and without names where they are to be replaced."""
        return self.names(hide_secrets(text))

    def start(self, hosts: Sequence[str], checks: Sequence[str] = (), source: str = "") -> None:
        """The run begins; ``checks`` is empty when they are not chosen yet."""
        named = [self.redact(host) for host in hosts]
        more = {"hosts": named, "checks": list(checks), "source": self.redact(source)}
        self.emit("start", schema=SCHEMA, version=__version__, **more)

    def host(self, host: str, record: HostRecord) -> None:
        """A host was visited; the ``progress`` of `doctor.session.examine.examine`."""
        visit = record.visit
        self.emit("host", host=self.redact(host), trouble=visit.failure, text=self.redact(_short(visit.text)))

    def stage(self, name: str, seconds: float) -> None:
        """All ranks have finished a stage; no name: the smoke run starts. See `doctor.session.examine`."""
        self.emit("stage", name=name, seconds=round(seconds, 3))

    def finish(self, report: Report, code: int, checks: Mapping[str, Check] = {}) -> None:
        """The run was judged; ``report`` is shown as it is, veiled already if it is to be."""
        with english():
            full_document = document(report, code, checks)
        for outcome in full_document["outcomes"]:
            if outcome["status"] not in OMITTED_STATUSES or outcome["waived"]:
                self.emit("outcome", **outcome)
        self.emit("end", **{key: full_document[key] for key in END_FIELDS})

    def emit(self, event: str, **fields: Any) -> None:
        event_fields = to_json_value({"event": event, "time": self.now(), **fields})
        ordered = {"event": event, "time": event_fields.pop("time"), **event_fields}
        with self.lock:
            self.write(json.dumps(ordered, ensure_ascii=True, allow_nan=False) + "\n")


def _short(text: str) -> str:
    return strip_control_chars(text, 400)


def render(report: Report, context: RenderContext) -> str:
    """The events of a finished run: all at once, without progress events."""
    lines: list[str] = []
    events = EventStream(lines.append, now=lambda: report.started)
    events.start(report.hosts, [outcome.check for outcome in report.outcomes], report.source)
    events.finish(report, context.code, context.checks_by_name)
    return "".join(lines)
