"""The formats in which `doctor diagnose` shows more than a report holds; all others show its report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from doctor.diagnose.diagnosis import Diagnosis
from doctor.diagnose.render.document import SignatureCatalog, WaivedDocument, document
from doctor.diagnose.render.text import render_text
from doctor.engine.secrets import hide_in, hide_secrets

if TYPE_CHECKING:
    from doctor.report.formats.registry import RenderContext


class DiagnosisViews:
    """Each format as a method; ``redact`` is applied to every text of the diagnosis."""

    def __init__(
        self,
        diagnosis: Diagnosis,
        catalogue: SignatureCatalog,
        redact: Callable[[str], str] = str,
        waived: tuple[WaivedDocument, ...] = (),
    ) -> None:
        self.diagnosis, self.catalogue, self.redact, self.waived = diagnosis, catalogue, redact, waived

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
        text = render_text(self.diagnosis, self.catalogue, width, bold=bold, verbose=context.verbose)
        return self.redact(hide_secrets(text))

    def json(self, context: RenderContext, indent: int | None = None) -> str:
        content = hide_in(msgspec.to_builtins(document(self.diagnosis, self.catalogue, context.code, self.waived)))
        return self.redact(json.dumps(content, indent=indent, ensure_ascii=False) + "\n")
