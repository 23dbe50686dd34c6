"""The report for a terminal: grouped by area, folded, wrapped, with the verdict last."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.text import Text

from doctor.engine.areas import AREAS
from doctor.report.formats.renderer import RenderContext, Renderer
from doctor.report.layout.failures import OBSERVED_EXPECTED
from doctor.report.layout.formatting import STYLES, display_width, wrapped
from doctor.report.layout.page import ReportPage, build_page
from doctor.report.layout.page_model import DetailLevel, Details, ReportEntry, ReportSection
from doctor.report.layout.summary_lines import SummaryLines
from doctor.report.layout.terminal import Terminal

if TYPE_CHECKING:
    from doctor.engine.check import Check
    from doctor.engine.result import Report

MARGIN_CELLS = 11
"""Cells before the text: a sign and a status word."""
LABEL_CELLS = 10
AREA_CELLS = max(map(len, AREAS))
BRIEF_LEVEL = DetailLevel(8, 4, lists_every_check=False, names_checks=False, max_chars=160)
FULL_LEVEL = DetailLevel(10_000, 10_000, lists_every_check=True, names_checks=True)


def render(
    report: Report,
    checks: Mapping[str, Check],
    *,
    terminal: Terminal = Terminal(tty=True),
    verbose: bool = False,
    code: int | None = None,
    fixable: Collection[str] = (),
) -> str:
    """The report for a terminal of ``terminal.width``; ``code`` is the exit code that it comes with."""
    page = build_page(report, checks, FULL_LEVEL if verbose else BRIEF_LEVEL, code, fixable)
    sink = io.StringIO()
    console = Console(
        file=sink,
        width=terminal.width or 80,
        force_terminal=True,
        color_system="standard" if terminal.colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for line in _TextLayout(terminal, verbose).lines(page):
        console.print(line, soft_wrap=True)
    text = sink.getvalue()
    return text if terminal.unicode else text.replace("…", "...")


class _TextLayout:
    """Lays out a page as lines of rich text, which are never read as markup."""

    def __init__(self, terminal: Terminal, verbose: bool) -> None:
        self.terminal, self.verbose = terminal, verbose

    def lines(self, page: ReportPage) -> Iterator[Text]:
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
        yield from self.net(page.net)
        yield from self.smoke(page.smoke)
        yield from self.summary(page.summary)

    def net(self, lines: Sequence[str]) -> Iterator[Text]:
        if lines:
            yield Text("network test: from each row to each column", "bold")
            for line in lines:
                yield Text(f"  {line}", "dim")
            yield Text()

    def smoke(self, smoke: Details) -> Iterator[Text]:
        if smoke:
            yield Text("smoke run", "bold")
            for label, text in smoke:
                style = "bold" if label == "cause" else ""
                yield from self.hanging_lines(f"  {label:<{MARGIN_CELLS - 2}}", text, "dim", style)
            yield Text()

    def section(self, section: ReportSection) -> Iterator[Text]:
        if section.title:
            yield Text(section.title, "bold")
        for entry in section.entries:
            yield from self.entry(entry)

    def entry(self, entry: ReportEntry) -> Iterator[Text]:
        if entry.status_word in ("FAIL", "warn", "crash"):
            where = f" on {entry.where}" if entry.where else ""
            yield from self.status_line(entry.status_word, f"{entry.name}{where}", "bold")
            yield from self.parts(entry)
        elif entry.is_claim:
            name = f" {entry.name}" if self.verbose else ""
            yield from self.status_line(entry.status_word, entry.parts[0].text + name)
        elif entry.status_word == "ok":
            yield from self.status_line(entry.status_word, entry.parts[0].text, name=f"{entry.name:<{AREA_CELLS}} ")
        else:
            where = f" on {entry.where}" if entry.where else ""
            head = f"{entry.name}{where}: " if entry.name else ""
            yield from self.status_line(entry.status_word, head + entry.parts[0].text)
        for label, text in entry.details:
            yield from self.detail(label, text, MARGIN_CELLS)

    def parts(self, entry: ReportEntry) -> Iterator[Text]:
        for part in entry.parts:
            several = len(entry.parts) > 1 and part.hosts
            yield from self.hanging_lines(" " * MARGIN_CELLS, f"{part.hosts}: {part.text}" if several else part.text)
            for label, text in part.details:
                yield from self.detail(label, text, MARGIN_CELLS + 2 if several else MARGIN_CELLS)

    def detail(self, label: str, text: str, margin: int) -> Iterator[Text]:
        style = "bold" if label == "fix" else "dim"
        yield from self.hanging_lines(
            f"{' ' * margin}{label:<{LABEL_CELLS}}", text, style, commands=label not in OBSERVED_EXPECTED
        )

    def status_line(self, word: str, text: str, style: str = "", name: str = "") -> Iterator[Text]:
        status_style = STYLES[word]
        head = f"{status_style.sign if self.terminal.unicode else status_style.ascii} {word:<{MARGIN_CELLS - 2}}{name}"
        yield from self.hanging_lines(head, text, status_style.colour, style)

    def hanging_lines(
        self, head: str, text: str, head_style: str = "", style: str = "", commands: bool = False
    ) -> Iterator[Text]:
        """``text`` beside ``head``, wrapped with a hanging indent."""
        indent = display_width(head)
        for number, line in enumerate(wrapped(text, self.terminal.width - indent)):
            body = Text(line, style)
            if commands:
                body.highlight_regex(r"`[^`]*`", "cyan")
            yield Text.assemble((head if not number else " " * indent, head_style), body)

    def summary(self, summary: SummaryLines) -> Iterator[Text]:
        for note in summary.notes:
            yield from self.hanging_lines("Note: ", note)
        yield from self.hanging_lines("", summary.source, style="dim")
        if summary.first_step:
            yield from self.hanging_lines("", summary.first_step)
        if summary.fix_command:
            yield from self.hanging_lines("", f"To fix it: {summary.fix_command} (shows a plan, changes nothing)")
        style = STYLES[summary.status_word]
        sign = style.sign if self.terminal.unicode else style.ascii
        yield from self.hanging_lines(f"{sign} ", summary.verdict, style.colour, style.colour)


class HumanRenderer(Renderer):
    """`human`, as ``-f`` names it."""

    name = "human"
    purpose = "a terminal: colour, symbols, its width"

    def render(self, report: Report, context: RenderContext) -> str:
        terminal = context.terminal or Terminal(tty=True, width=100)
        return render(
            report,
            context.checks_by_name,
            terminal=terminal if terminal.width else msgspec.structs.replace(terminal, width=80),
            verbose=context.verbose,
            code=context.code,
            fixable=context.fixable_checks,
        )


RENDERER = HumanRenderer()
