"""A diagnosis as Markdown, for an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from doctor.diagnose.cause import Diagnosis
from doctor.diagnose.render.document import checked_lines, readable
from doctor.diagnose.render.text import attempt_lines
from doctor.diagnose.signature import Signature
from doctor.engine.language import localized, phrase
from doctor.report.formats.markdown import code_span
from doctor.report.layout.formatting import count_noun


def render_markdown(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> str:
    """Headings for the causes; log lines as code, so that nothing in them is markup."""
    data = readable(diagnosis, signatures, playbooks, code)
    lines = ["# " + phrase("Diagnosis: {verdict}", verdict=data["verdict"]), ""]
    for number, cause in enumerate(data["causes"]):
        lines += [f"## {_escaped(cause['summary'])}", "", f"{_escaped(cause['title'])} (`{cause['signature']}`),"]
        lines += [phrase("by the rule *{rule}*, {confidence}.", rule=cause["rule"], confidence=cause["confidence"]), ""]
        lines += [
            f"- {code_span(item['file'] + ':' + str(item['line']), 1100)} {code_span(item['text'])}"
            for item in cause["evidence"]
        ]
        lines += _advice_lines(cause)
        if number < len(diagnosis.checked):
            lines += [
                "",
                _heading("Now"),
                "",
                *(f"- {_escaped(line)}" for line in checked_lines(diagnosis.checked[number])),
            ]
        lines.append("")
    if data["undecidable"]:
        lines += [_escaped(data["undecidable"]["reason"]) + localized("."), ""]
        lines += ["- " + phrase("would decide: {item}", item=_escaped(item)) for item in data["undecidable"]["missing"]]
        for reported in data["undecidable"]["reported"]:
            lines += ["", f"## {_escaped(reported['title'])} (`{reported['signature']}`)", *_advice_lines(reported)]
        lines.append("")
    if data["waiting"]:
        lines += [_heading("Ranks that only waited"), ""]
        lines += [f"- {_escaped(item['title'])}: {item['count']}" for item in data["waiting"]]
        lines.append("")
    counts = (count_noun(len(data["files"]), "file"), count_noun(data["processes"], "process", "processes"))
    lines.append(localized(", ").join(counts) + localized("."))
    for heading, key in (("Not read", "unread"), ("Notes", "notes")):
        if data[key]:
            lines += ["", _heading(heading), "", *(f"- {_escaped(item)}" for item in data[key])]
    if diagnosis.attempts:
        lines += [
            "",
            _heading("Earlier"),
            "",
            *(f"- {_escaped(line)}" for line in attempt_lines(diagnosis, verbose=True)),
        ]
    text = "\n".join(lines) + "\n"
    for job in diagnosis.earlier:
        text += f"\n{phrase('An earlier job{span}:', span='')}\n\n#" + render_markdown(job, signatures, playbooks, code)
    return text


def _advice_lines(data: Mapping[str, Any]) -> list[str]:
    lines = []
    for heading, key in (("Likely causes", "likely_causes"), ("Confirm", "confirm"), ("Fix", "fix")):
        if data[key]:
            lines += ["", _heading(heading), "", *(f"- {_escaped(item)}" for item in data[key])]
    return lines


def _heading(text: str) -> str:
    return localized(text) + localized(": ").rstrip()


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|&])", r"\\\1", text)
