"""A diagnosis as Markdown, for an issue or a chat."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.diagnose.cause import Diagnosis
from doctor.diagnose.render.document import checked_lines, document
from doctor.diagnose.render.text import attempt_lines
from doctor.diagnose.signature import Signature
from doctor.engine.language import english
from doctor.engine.sanitize import count_noun
from doctor.report.formats.markdown import code_span


def render_markdown(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> str:
    """Headings for the causes, in English; log lines as code, so that nothing in them is markup."""
    with english():  # as its headings, so that one document has one language
        return _document_text(diagnosis, signatures, playbooks, code)


def _document_text(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], playbooks: Mapping[str, tuple[str, ...]], code: int
) -> str:
    data = document(diagnosis, signatures, playbooks, code)
    lines = [f"# Diagnosis: {data['verdict']}", ""]
    for number, cause in enumerate(data["causes"]):
        lines += [f"## {_escaped(cause['summary'])}", "", f"{_escaped(cause['title'])} (`{cause['signature']}`),"]
        lines += [f"by the rule *{cause['rule']}*, {cause['confidence']}.", ""]
        lines += [
            f"- {code_span(item['file'] + ':' + str(item['line']), 1100)} {code_span(item['text'])}"
            for item in cause["evidence"]
        ]
        for heading, key in (("Likely causes", "likely_causes"), ("Confirm", "confirm"), ("Fix", "fix")):
            if cause[key]:
                lines += ["", f"{heading}:", "", *(f"- {_escaped(item)}" for item in cause[key])]
        if number < len(diagnosis.checked):
            lines += ["", "Now:", "", *(f"- {_escaped(line)}" for line in checked_lines(diagnosis.checked[number]))]
        lines.append("")
    if data["undecidable"]:
        lines += [_escaped(data["undecidable"]["reason"]) + ".", ""]
        lines += [f"- would decide: {_escaped(item)}" for item in data["undecidable"]["missing"]]
        lines.append("")
    if data["waiting"]:
        lines += ["Ranks that only waited:", ""]
        lines += [f"- {_escaped(item['title'])}: {item['count']}" for item in data["waiting"]]
        lines.append("")
    lines.append(f"{count_noun(len(data['files']), 'file')}, {count_noun(data['processes'], 'process', 'processes')}.")
    for heading, key in (("Not read", "unread"), ("Notes", "notes")):
        if data[key]:
            lines += ["", f"{heading}:", "", *(f"- {_escaped(item)}" for item in data[key])]
    if diagnosis.attempts:
        lines += ["", "Earlier:", "", *(f"- {_escaped(line)}" for line in attempt_lines(diagnosis, verbose=True))]
    text = "\n".join(lines) + "\n"
    for job in diagnosis.earlier:
        text += "\nAn earlier job:\n\n" + _document_text(job, signatures, playbooks, code).replace("# D", "## D", 1)
    return text


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_{}\[\]<>#|&])", r"\\\1", text)
