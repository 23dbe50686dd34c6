"""A diagnosis as one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from doctor import __version__
from doctor.diagnose.cause import Diagnosis
from doctor.diagnose.render.document import checked_lines, readable
from doctor.diagnose.render.text import headline
from doctor.diagnose.signature import Signature
from doctor.engine.secrets import hide_secrets
from doctor.report.layout.formatting import STYLES, clean
from doctor.report.web.self_contained import self_contained_page

MAX_TEXT_CHARS = 2000
_STATUS_WORDS = {"found": "FAIL", "undecidable": "unknown", "ended-well": "ok", "no-failure": "unknown"}


def render_html(
    diagnosis: Diagnosis,
    signatures: Mapping[str, Signature],
    playbooks: Mapping[str, tuple[str, ...]],
    code: int,
    redact: Callable[[str], str] = str,
) -> str:
    """The page. ``playbooks`` are those for each check, ``redact`` is applied to every text of the diagnosis."""
    job = _safe(_job(diagnosis, signatures, playbooks, code), redact)
    earlier = [_safe(_job(other, signatures, playbooks, code), redact) for other in diagnosis.earlier]
    return self_contained_page(
        "diagnosis.html.jinja",
        {},
        verdict=job["headline"],
        verdict_style=STYLES[_STATUS_WORDS[job["verdict"]]],
        jobs=[job, *earlier],
        exit_code=int(code),
        version=__version__,
    )


def _job(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> dict[str, Any]:
    """The JSON document of one job, with the sentences that only texts have."""
    now = [checked_lines(checked) for checked in diagnosis.checked]
    job = {**readable(diagnosis, signatures, playbooks, code), "headline": headline(diagnosis)}
    certain = [cause.confidence == "certain" for cause in diagnosis.causes]
    job["causes"] = [
        {**cause, "is_certain": certain[number], "now": now[number] if number < len(now) else []}
        for number, cause in enumerate(job["causes"])
    ]
    return {**job, "earlier_jobs": []}


def _safe(value: Any, redact: Callable[[str], str]) -> Any:
    """Every text without what a terminal or a browser could take for more than text."""
    if isinstance(value, str):
        return clean(redact(hide_secrets(value)), MAX_TEXT_CHARS)
    if isinstance(value, dict):
        return {key: _safe(item, redact) for key, item in value.items()}
    return [_safe(item, redact) for item in value] if isinstance(value, list) else value
