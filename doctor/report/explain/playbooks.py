"""Static description of a playbook: its page, its place on a check's page, its line in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from doctor.engine.language import localized, phrase
from doctor.engine.output_encoding import display_width, padded
from doctor.engine.sanitize import printable, strip_control_chars
from doctor.remedy.playbook import Playbook, PlaybookStep, fill_step, needed_values, writes_files
from doctor.remedy.template import TemplateError
from doctor.report.explain.examples import EXAMPLES
from doctor.report.layout.advice import mark_personal_words
from doctor.report.layout.formatting import wrapped
from doctor.report.layout.terminal import columns_line

WIDTH = 100
"""Columns where there is no terminal."""
MAX_COMMAND_CHARS = 2000
"""Characters of a command."""
EXAMPLE_NOTE = "with example values; a plan fills in the values of the findings"


def examples(step: PlaybookStep) -> dict[str, object]:
    """A value for every placeholder of a step; what ``before`` prints is not made up."""
    return {name: EXAMPLES.get(name, f"<{name}>") for name in needed_values(step)}


def playbook_page(playbook: Playbook, width: int = WIDTH) -> str:
    """All there is to say about one playbook, in ``width`` columns; commands are never wrapped."""
    lines = [_titled(playbook), _terms(playbook)]
    lines += ["", localized("Treats"), *(f"  {name}" for name in playbook.treats)]
    if playbook.note.strip():
        lines += ["", localized("Notes"), *(f"  {line}" for line in _paragraphs(playbook.note, width - 2))]
    steps = phrase("Steps ({note})", note=localized(EXAMPLE_NOTE))
    lines += ["", steps if any(needed_values(step) for step in playbook.steps) else localized("Steps")]
    lines += [f"  {line}" for step in playbook.steps for line in step_lines(step, width - 2)]
    lines += ["", localized("Playbook file: ") + _one_line(playbook.path)]
    return "\n".join(lines) + "\n"


def remedy_lines(playbooks: Iterable[Playbook], width: int = WIDTH) -> Iterator[str]:
    """The playbooks that treat a check, for its page; their steps are on pages of their own. Nothing without one."""
    for number, playbook in enumerate(playbooks):
        if not number:
            yield from ("", localized("Fixes"))
        yield from (f"  {line}" for line in wrapped(_titled(playbook), width - 2))
        yield from (f"    {line}" for line in wrapped(_terms(playbook), width - 4))
        yield f"    {phrase('its steps: {command}', command=f'doctor explain {playbook.name}')}"


def _titled(playbook: Playbook) -> str:
    return f"{playbook.name}{localized(': ')}{_one_line(localized(playbook.title))}"


def _terms(playbook: Playbook) -> str:
    """Who applies it, what it needs, and its risk."""
    if playbook.manual:
        who, risk = localized(playbook.who), localized(playbook.risk)
        return phrase("{who}; manual steps; risk: {risk}", who=who, risk=risk)
    terms = [localized(playbook.who), localized("as root" if playbook.root else "as any user")]
    terms.append(phrase("risk: {risk}", risk=localized(playbook.risk)))
    terms.append(
        localized("a plan says whether it survives a reboot" if writes_files(playbook.steps) else "lost after a reboot")
    )
    return localized("; ").join([*terms, localized("only when named")] if playbook.explicit else terms)


def step_lines(step: PlaybookStep, width: int = WIDTH) -> Iterator[str]:
    """A step with example values, in the order in which things happen."""
    step = msgspec.structs.replace(step, say=localized(step.say), irreversible=localized(step.irreversible))
    try:
        example = fill_step(step, examples(step))
    except TemplateError:  # an example does not fit here: the step as it is written
        example = step
    first, *more = wrapped(f"{step.number}. {mark_personal_words(_one_line(example.say))}", width)
    yield first
    yield from more
    for label, command in (
        ("only where", example.only),
        ("before", example.before),
        ("run", example.run),
        ("filter", example.filter),
    ):
        yield from _labelled(label, command)
    yield from _labelled("file", _file(example))
    yield from _labelled(
        "undo", example.undo or (example.irreversible and phrase("none: {reason}", reason=example.irreversible))
    )


def _file(step: PlaybookStep) -> str:
    if not step.file:
        return ""
    if step.keep:
        return phrase("{file} is saved; the next steps change it", file=step.file)
    file = phrase("{file} (mode {mode} if it is new)", file=step.file, mode=step.mode) if step.mode else step.file
    if step.filter:
        return phrase("{file} has what the filter prints", file=file)
    if step.text is not None:
        return phrase("{file} has this content:", file=file) + f"\n{step.text}"
    if step.remove:
        return phrase("{file} without the lines that match {pattern}", file=file, pattern=step.remove)
    if step.replaces:
        head = phrase("{file} has this line, in place of what matches {pattern}:", file=file, pattern=step.replaces)
    else:
        head = phrase("{file} has this line, at the end, unless it exists:", file=file)
    return f"{head}\n{step.line}"


def _labelled(label: str, text: str) -> Iterator[str]:
    name = localized(label) + localized(": ").rstrip()
    for number, line in enumerate(text.rstrip("\n").splitlines()):
        yield "   " + padded("" if number else name, 12) + printable(line, MAX_COMMAND_CHARS)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    for part in text.strip().split("\n\n"):
        yield from wrapped(strip_control_chars(localized(part), MAX_COMMAND_CHARS), width)


def _one_line(text: str) -> str:
    return strip_control_chars(text, MAX_COMMAND_CHARS)


def playbook_list(playbooks: Iterable[Playbook], width: int = 0) -> str:
    """One line a playbook: name, risk, title; of at most ``width`` columns, 0 is no limit."""
    rows = sorted(playbooks, key=lambda playbook: playbook.name)
    return playbook_rows(rows, width)


def playbook_rows(rows: list[Playbook], width: int = 0) -> str:
    """The same in the order given."""
    columns = [playbook.name for playbook in rows], [_risk_label(playbook) for playbook in rows]
    names, risks = (max((display_width(word) for word in column), default=0) for column in columns)
    lines: list[str] = []
    for playbook in rows:
        head = f"{playbook.name:<{names}}  {padded(_risk_label(playbook), risks)}  "
        lines += columns_line(head, _one_line(localized(playbook.title)), width)
    return "".join(f"{line}\n" for line in lines)


def _risk_label(playbook: Playbook) -> str:
    return localized("by hand") if playbook.manual else phrase("risk {risk}", risk=localized(playbook.risk))


def playbook_list_json(playbooks: Iterable[Playbook]) -> str:
    """The same as one JSON document."""
    import json

    rows = [
        {
            "name": playbook.name,
            "title": playbook.title,
            "treats": list(playbook.treats),
            "who": playbook.who,
            "risk": playbook.risk,
            "root": playbook.root,
            "persistent": writes_files(playbook.steps),
            "explicit": playbook.explicit,
            "hands": playbook.manual,
            "steps": len(playbook.steps),
        }
        for playbook in sorted(playbooks, key=lambda candidate: candidate.name)
    ]
    return json.dumps({"schema": "doctor.playbooks/1", "playbooks": rows}, indent=2, sort_keys=True) + "\n"
