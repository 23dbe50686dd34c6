"""The report for a terminal: grouped by area, folded, wrapped, with the verdict last."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from doctor.report.layout.failures import BOTH
from doctor.report.layout.formatting import STYLES, cells, wrapped
from doctor.report.layout.page import Page, compose
from doctor.report.layout.page_model import Details, Entry, Scope, Section
from doctor.report.layout.summary_lines import Closing
from doctor.report.layout.terminal import Look

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report

MARGIN = 11
"""Cells before the text: a sign and a status word."""
LABEL = 6
BRIEF = Scope(8, 4, each=False, names=False, longest=160)
WHOLE = Scope(10_000, 10_000, each=True, names=True)


def render(
    report: Report,
    checks: Mapping[str, Check],
    *,
    look: Look = Look(tty=True),
    verbose: bool = False,
    code: int | None = None,
    mendable: Collection[str] = (),
) -> str:
    """The report for a terminal of ``look.width``; ``code`` is the exit code that it comes with."""
    page = compose(report, checks, WHOLE if verbose else BRIEF, code, mendable)
    sink = io.StringIO()
    console = Console(
        file=sink,
        width=look.width or 80,
        force_terminal=True,
        color_system="standard" if look.colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in _Sheet(look, verbose).lines(page):
        console.print(line, soft_wrap=True)
    text = sink.getvalue()
    return text if look.unicode else text.replace("…", "...")


class _Sheet:
    """Lays out a page as lines of rich text, which are never read as markup."""

    def __init__(self, look: Look, verbose: bool) -> None:
        self.look, self.verbose = look, verbose

    def lines(self, page: Page) -> Iterator[Text]:
        spaced = False
        for section in page.sections:
            block = list(self.section(section))
            # Healthy areas are one line each and stand together; all else has air around it.
            if section.title and spaced:
                yield Text()
            yield from block
            if section.title:
                yield Text()
            spaced = not section.title
        if spaced:
            yield Text()
        yield from self.smoke(page.smoke)
        yield from self.closing(page.closing)

    def smoke(self, smoke: Details) -> Iterator[Text]:
        if smoke:
            yield Text("smoke run", "bold")
            for label, text in smoke:
                style = "bold" if label == "cause" else ""
                yield from self.hung(f"  {label:<{MARGIN - 2}}", text, "dim", style)
            yield Text()

    def section(self, section: Section) -> Iterator[Text]:
        if section.title:
            yield Text(section.title, "bold")
        for entry in section.entries:
            yield from self.entry(entry)

    def entry(self, entry: Entry) -> Iterator[Text]:
        if entry.word in ("FAIL", "warn", "crash"):
            where = f" on {entry.where}" if entry.where else ""
            yield from self.told(entry.word, f"{entry.name}{where}", "bold")
            yield from self.parts(entry)
        elif entry.claim:
            name = f" {entry.name}" if self.verbose else ""
            yield from self.told(entry.word, entry.parts[0].text + name)
        elif entry.word == "ok":
            yield from self.told(entry.word, entry.parts[0].text, name=f"{entry.name:<10} ")
        else:
            where = f" on {entry.where}" if entry.where else ""
            head = f"{entry.name}{where}: " if entry.name else ""
            yield from self.told(entry.word, head + entry.parts[0].text)
        for label, text in entry.details:
            yield from self.detail(label, text, MARGIN)

    def parts(self, entry: Entry) -> Iterator[Text]:
        for part in entry.parts:
            several = len(entry.parts) > 1 and part.hosts
            yield from self.hung(" " * MARGIN, f"{part.hosts}: {part.text}" if several else part.text)
            for label, text in part.details:
                yield from self.detail(label, text, MARGIN + 2 if several else MARGIN)

    def detail(self, label: str, text: str, margin: int) -> Iterator[Text]:
        style = "bold" if label == "fix" else "dim"
        yield from self.hung(f"{' ' * margin}{label:<{LABEL}}", text, style, commands=label not in BOTH)

    def told(self, word: str, text: str, style: str = "", name: str = "") -> Iterator[Text]:
        look = STYLES[word]
        head = f"{look.sign if self.look.unicode else look.ascii} {word:<{MARGIN - 2}}{name}"
        yield from self.hung(head, text, look.colour, style)

    def hung(
        self, head: str, text: str, head_style: str = "", style: str = "", commands: bool = False
    ) -> Iterator[Text]:
        """``text`` beside ``head``, wrapped with a hanging indent."""
        indent = cells(head)
        for number, line in enumerate(wrapped(text, self.look.width - indent)):
            body = Text(line, style)
            if commands:
                body.highlight_regex(r"`[^`]*`", "cyan")
            yield Text.assemble((head if not number else " " * indent, head_style), body)

    def closing(self, closing: Closing) -> Iterator[Text]:
        for note in closing.notes:
            yield from self.hung("Note: ", note)
        yield from self.hung("", closing.source, style="dim")
        if closing.start:
            yield from self.hung("", closing.start)
        if closing.mend:
            yield from self.hung("", f"To mend it: {closing.mend} (shows a plan, changes nothing)")
        look = STYLES[closing.word]
        sign = look.sign if self.look.unicode else look.ascii
        yield from self.hung(f"{sign} ", closing.verdict, look.colour, look.colour)
