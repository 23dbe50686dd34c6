"""The pages of the documentation, and the parts of them that are generated: `python -m tests.regen` writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from doctor.engine import language
from doctor.engine.catalog import load_checks
from doctor.engine.check import Check
from doctor.engine.check_files import by_area
from doctor.engine.language import localized, phrase
from doctor.remedy.catalog import load_playbooks
from doctor.remedy.playbook import Playbook
from doctor.report.explain.topics import FOLDER, topics

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
MAP = ROOT / "doctor" / "README.md"
CONTRIBUTING = ROOT / ".github" / "CONTRIBUTING.md"
PAGES = (README, MAP, CONTRIBUTING, *sorted(FOLDER.glob("*.md")))
CHINESE = (FOLDER / "zh" / "catalogue.md",)
"""Pages in Chinese with generated parts."""
SCREEN = 50
"""Lines; a longer page has a table of contents."""


def refreshed(path: Path) -> str:
    """The page with its generated parts as they should be now, in the language of its folder."""
    text = path.read_text("utf-8")
    language.select("zh" if path.parent.name == "zh" else "en", {})
    try:
        for name, content in GENERATED.items():
            if f"<!-- {name} -->" in text:
                text = between(text, name, content(text))
    finally:
        language.select("en", {})
    return text


def between(text: str, name: str, content: str) -> str:
    """``text`` with what stands between its two markers replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    assert rest and tail, f"expected the markers {start.strip()} and {end}"
    return f"{head}{start}{content}{end}{tail}"


def marked(text: str, name: str) -> str:
    """What stands between two markers."""
    (content,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", text, re.S)
    return str(content)


def anchor(heading: str) -> str:
    """How a heading is linked, as GitHub makes it.

    >>> anchor("Fix: plan, apply, undo")
    'fix-plan-apply-undo'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def headings(text: str) -> list[tuple[int, str]]:
    """Level and text of each heading below the title, outside of fences."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return [(len(signs), arguments) for signs, arguments in re.findall(r"^(##+) (.+)$", prose, re.M)]


def contents(text: str) -> str:
    """The table of contents: one line for each section, its subsections on the same line; for the README, in short."""
    if text.startswith("# cluster-doctor\n"):
        return in_short([f"[{heading}](#{anchor(heading)})" for level, heading in headings(text) if level == 2])
    lines: list[str] = []
    for level, heading in headings(text):
        link = f"[{heading}](#{anchor(heading)})"
        if level == 2:
            lines.append(f"- {link}")
        else:
            lines[-1] += f"{' · ' if ': [' in lines[-1] else ': '}{link}"
    return "\n".join(lines) + "\n"


def in_short(links: Iterable[str]) -> str:
    """Links in a paragraph; no link is broken over two lines."""
    lines: list[str] = []
    for link in links:
        if lines and len(lines[-1]) + len(link) < 150:
            lines[-1] += f" · {link}"
        else:
            lines.append(f"· {link}" if lines else link)
    return "\n".join(lines) + "\n"


def _topics(_: str) -> str:
    return in_short(f"[`{name}`](doctor/docs/{path.name})" for name, path in topics().items())


def _checks(_: str) -> str:
    return catalog_markdown(load_checks())


def _playbooks(_: str) -> str:
    rows = [
        f"| `{playbook.name}` | {_kind(playbook)} | {localized(playbook.title)} |"
        for playbook in _by_name(load_playbooks())
    ]
    heads = " | ".join(map(localized, ("playbook", "risk", "what it does")))
    return "\n".join([f"| {heads} |", "|---|---|---|", *rows]) + "\n"


def _by_name(playbooks: Iterable[Playbook]) -> list[Playbook]:
    return sorted(playbooks, key=lambda playbook: playbook.name)


def _kind(playbook: Playbook) -> str:
    if playbook.manual:
        return localized("manual")
    risk = localized(playbook.risk)
    return phrase("{risk}, by name", risk=risk) if playbook.explicit else risk


GENERATED: dict[str, Callable[[str], str]] = {
    "checks": _checks,
    "playbooks": _playbooks,
    "topics": _topics,
    "toc": contents,
}
"""By marker; the table of contents last, for it lists the headings that the others write."""


def catalog_markdown(checks: Iterable[Check]) -> str:
    """The table of all checks in the catalogue page, by area."""
    parts: list[str] = []
    for area, members in by_area(checks):
        rows = [
            f"| `{check.name}` | {localized(check.severity.value)} | {_cell(localized(check.claim))} |"
            for check in members
        ]
        heads = " | ".join(map(localized, ("check", "severity", "healthy condition")))
        parts.append("\n".join([f"### {area}", "", f"| {heads} |", "|---|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
