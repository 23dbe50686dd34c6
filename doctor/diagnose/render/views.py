"""The formats in which `doctor diagnose` shows more than a report holds; all others show its report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import msgspec

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.render.document import SignatureCatalog, WaivedDocument, document
from doctor.diagnose.render.text import render_text
from doctor.engine.secrets import hide_in, hide_secrets
from doctor.engine.texts import filled, table_of, texts_within
from doctor.engine.time_limit import LEAST_SECONDS, TimePassed, time_limit
from doctor.report.formats.registry import RenderContext


class DiagnosisViews:
    """Each format as a method; ``redact`` is applied to every text of the diagnosis."""

    def __init__(
        self,
        diagnosis: Diagnosis,
        catalogue: SignatureCatalog,
        redact: Callable[[str], str] = str,
        waived: tuple[WaivedDocument, ...] = (),
        until: float = 0.0,
    ) -> None:
        self.diagnosis, self.catalogue, self.redact, self.waived = diagnosis, catalogue, redact, waived
        self.until = until
        """By the monotonic clock: the end of the time for reporting; 0 is no limit."""

    def by_format(self) -> dict[str, Callable[[RenderContext], str]]:
        """The views by the name that ``-f`` takes."""
        return {
            "human": lambda context: self.text(context, bold=bool(context.terminal and context.terminal.colour)),
            "plain": self.text,
            "json": lambda context: self.json(context, indent=2),
            "jsonl": self.json,
        }

    def text(self, context: RenderContext, bold: bool = False) -> str:
        width = context.terminal.width if context.terminal else 0
        return self._timely(
            lambda diagnosis: hide_secrets(
                render_text(diagnosis, self.catalogue, width, bold=bold, verbose=context.verbose)
            )
        )

    def json(self, context: RenderContext, indent: int | None = None) -> str:
        return self._timely(lambda diagnosis: self._json(diagnosis, context, indent))

    def _json(self, diagnosis: Diagnosis, context: RenderContext, indent: int | None) -> str:
        content = hide_in(msgspec.to_builtins(document(diagnosis, self.catalogue, context.code, self.waived)))
        content["texts"] = table_of(texts_within(content))
        return json.dumps(content, indent=indent, ensure_ascii=False) + "\n"

    def _timely(self, view: Callable[[Diagnosis], str]) -> str:
        """The view of all; where the time does not suffice, of the first cause."""
        seconds = max(self.until - time.monotonic(), LEAST_SECONDS) if self.until else 0.0
        try:
            with time_limit(seconds):
                return self.redact(view(self.diagnosis))
        except TimePassed:
            return self.redact(view(_shortened(self.diagnosis)))


def _shortened(diagnosis: Diagnosis) -> Diagnosis:
    """Its first cause alone."""
    text = "not reported, as the time limit of --budget had passed: further causes ({0}), earlier attempts ({1})"
    why = filled(text, max(0, len(diagnosis.causes) - 1), len(diagnosis.attempts) + len(diagnosis.earlier))
    return msgspec.structs.replace(
        diagnosis,
        causes=diagnosis.causes[:1],
        checked=diagnosis.checked[:1],
        waiting=(),
        attempts=(),
        earlier=(),
        notes=(*diagnosis.notes, why),
    )
