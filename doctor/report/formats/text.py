"""The report for a terminal: a table of what was found, the details, what stops the job first; the verdict last."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from doctor.engine.check_files import AREAS
from doctor.engine.language import localized, phrase, without_loose_spaces
from doctor.engine.output_encoding import ELLIPSIS, display_width, padded, without_signs
from doctor.engine.result import Report
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.advice import changes_host
from doctor.report.layout.failures import OBSERVED_EXPECTED
from doctor.report.layout.finding_table import LABEL, cut, table_lines
from doctor.report.layout.formatting import STYLES, sentences, wrapped
from doctor.report.layout.page import ReportPage, build_page
from doctor.report.layout.page_model import DetailLevel, Details, ReportEntry, ReportPart, ReportSection, map_texts
from doctor.report.layout.summary_lines import SummaryLines
from doctor.report.layout.terminal import Terminal

MARGIN_CELLS = 11
"""Cells before the text: a sign and a status word."""
DETAIL_CELLS = 4
"""Cells before the details of a finding."""
LABEL_CELLS = 5
"""Cells of a detail's label; a longer one stands in its text."""
ROWS_FOR_A_CHANGE = 4
"""Beyond those of a finding, so that its fix does not end before the command that changes something."""
FOLLOWING_ROWS = 3
"""Most rows of a consequence."""
AREA_CELLS = max(map(len, AREAS))
SHORT_LEVEL = DetailLevel(
    3, 4, lists_every_check=False, names_checks=False, max_chars=160, shortens=True, joins=True, max_lines=16
)
PAGE_ROWS = 50
"""Rows for the table and the details of all findings, as long as each has `MIN_ROWS`."""
MIN_ROWS = 4
_RANKS = {LABEL: 0, "observed": 1, "expected": 1, "why": 2}
"""Which details are kept first where not all fit beside the fix; any other comes last."""
FULL_LEVEL = DetailLevel(10_000, 10_000, lists_every_check=True, names_checks=True)


def render(report: Report, context: RenderContext) -> str:
    """The report for a terminal; ``brief``: the table of findings and the last lines, without the details."""
    terminal = context.terminal or Terminal(tty=True, width=100)
    terminal = terminal if terminal.width else terminal._replace(width=80)
    level = FULL_LEVEL if context.verbose else SHORT_LEVEL
    page = build_page(report, context.checks_by_name, level, context.code, context.fixable_checks)
    if not terminal.unicode:  # before lines are measured: three dots are wider than an ellipsis
        page = map_texts(page, without_signs)
    sink = io.StringIO()
    console = Console(
        file=sink,
        width=terminal.width,
        force_terminal=True,
        color_system="standard" if terminal.colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    layout = _TextLayout(terminal, context.verbose)
    for line in layout.brief(page) if context.brief else layout.lines(page):
        console.print(line, soft_wrap=True)
    return sink.getvalue()


class _TextLayout:
    """Lays out a page as lines of rich text, which are never read as markup."""

    def __init__(self, terminal: Terminal, verbose: bool) -> None:
        self.terminal, self.verbose = terminal, verbose
        self.max_rows = SHORT_LEVEL.max_lines
        self.ellipsis = "" if terminal.unicode else without_signs(ELLIPSIS)

    def lines(self, page: ReportPage) -> Iterator[Text]:
        findings = [entry for section in page.sections if section.title == "findings" for entry in section.entries]
        if len(findings) > 1:
            yield from self.table(findings)
            yield Text()
            following = sum(len(entry.following) for entry in findings)
            self.max_rows = max(MIN_ROWS, min(self.max_rows, (PAGE_ROWS - len(findings) - following) // len(findings)))
        spaced, displayed = False, ""
        for section in page.sections:
            # Lines that stand for many checks stand together; all else has air around it.
            is_block = section.title == "findings" or self.shows_title(section)
            if is_block and spaced:
                yield Text()
            lines = list(self.section(section))
            displayed += "\n".join(line.plain for line in lines) if is_block else ""
            yield from lines
            if is_block:
                yield Text()
            spaced = not is_block
        if spaced and (page.smoke or not findings):
            yield Text()
        yield from self.net(page.net)
        yield from self.smoke(page.smoke, page.smoke_title)
        yield from self.summary(page.summary, bool(findings), page.summary.unfilled_in(displayed))

    def brief(self, page: ReportPage) -> Iterator[Text]:
        """The table, and what is unknown; the last lines."""
        visible = [section for section in page.sections if section.title in ("findings", "unknown")]
        if visible:
            yield from self.table([entry for section in visible for entry in section.entries])
            yield Text()
        yield from self.summary(page.summary, bool(visible))

    def table(self, entries: Sequence[ReportEntry]) -> Iterator[Text]:
        """One line for each entry: sign, check, hosts, message."""
        for entry, columns in zip(entries, table_lines(entries, self.terminal.width - 2, self.ellipsis), strict=True):
            style = STYLES[entry.status_word]
            sign = style.sign if self.terminal.unicode else style.ascii
            yield Text.assemble((f"{sign} ", style.colour), columns)

    def shows_title(self, section: ReportSection) -> bool:
        return bool(section.title) and section.title != "findings" and (self.verbose or section.entries[0].is_claim)

    def net(self, lines: Sequence[str]) -> Iterator[Text]:
        if lines:
            yield Text(localized("network test: from each row to each column"), "bold")
            for line in lines:
                yield Text(f"  {line}", "dim")
            yield Text()

    def smoke(self, smoke: Details, title: str) -> Iterator[Text]:
        if smoke:
            yield Text(localized(title), "bold")
            for name, text in smoke:
                style, label = "bold" if name == "cause" else "", localized(name)
                fits = display_width(label) < MARGIN_CELLS - 2
                head = padded(label, MARGIN_CELLS - 2) if fits else f"{label}  "
                yield from self.hanging_lines(f"  {head}", text, "dim", style)
            yield Text()

    def section(self, section: ReportSection) -> Iterator[Text]:
        if self.shows_title(section):
            yield Text(localized(section.title), "bold")
        for entry in section.entries:
            yield from self.entry(entry)

    def entry(self, entry: ReportEntry) -> Iterator[Text]:
        if entry.status_word in ("FAIL", "warn", "crash"):
            yield from self.finding(entry, _name_on(entry))
            return
        if entry.is_claim:
            name = f" {entry.name}" if self.verbose else ""
            yield from self.status_line(entry.status_word, entry.parts[0].text + name)
        elif entry.status_word == "ok" and entry.name:
            yield from self.status_line(
                entry.status_word, entry.parts[0].text, name=f"{padded(localized(entry.name), AREA_CELLS)} "
            )
        else:
            head = _name_on(entry) + localized(": ") if entry.name else ""
            yield from self.status_line(entry.status_word, head + entry.parts[0].text)
        for label, text in entry.details:
            yield from self.detail(label, text, MARGIN_CELLS)

    def finding(self, entry: ReportEntry, title: str) -> Iterator[Text]:
        """The messages and details of a finding; the fix as far as there is room, what follows in one line each."""
        first, *others = entry.parts
        parts = entry.parts if others and first.hosts else others
        lines = list(self.finding_head(entry.status_word, title, "" if len(parts) > len(others) else first.text))
        lines += [] if len(parts) > len(others) else self.part_details(first, DETAIL_CELLS)
        lines += [line for part in parts for line in self.part(part, bool(others))]
        yield from lines
        yield from self.details(entry.details, self.max_rows - self.rows(lines), entry.name)
        for label, text in entry.following:
            head = f"{' ' * DETAIL_CELLS}{localized('consequence: ')}"
            line = f"{label}{localized(': ')}{text}"
            limit = 0 if self.verbose else FOLLOWING_ROWS * (self.terminal.width - display_width(head))
            yield from self.hanging_lines(head, cut(line, limit, self.ellipsis) if limit else line, "dim")

    def finding_head(self, word: str, title: str, text: str) -> Iterator[Text]:
        """Status, check and hosts, and the message behind them."""
        style = STYLES[word]
        head = f"{style.sign if self.terminal.unicode else style.ascii} {padded(localized(word), 5)}"
        width = self.terminal.width
        rows = wrapped(
            title + localized(": ") + text if text else title, width - DETAIL_CELLS, width - display_width(head)
        )
        bold = len(title) + 1
        for number, row in enumerate(rows):
            line = Text(row)
            line.stylize("bold", 0, max(bold, 0))
            line.highlight_regex(r"`[^`]*`", "cyan")
            bold -= len(row) + 1
            yield Text.assemble((head if not number else " " * DETAIL_CELLS, style.colour), line)

    def rows(self, lines: Iterable[Text]) -> int:
        """Rows of the terminal that lines take; a long command is folded by the terminal itself."""
        return sum(1 + max(0, display_width(line.plain) - 1) // self.terminal.width for line in lines)

    def details(self, details: Details, rows: int, check: str) -> Iterator[Text]:
        """All details where they fit; else the whole fix, or as much of it as fits beside the why.

        It goes at least to its first command that changes the host, where that needs few rows more; else to its first.

        ``check``: whose page has the rest of the fix.
        """
        lines = [line for label, text in details for line in self.detail(label, text, DETAIL_CELLS)]
        if self.verbose or self.rows(lines) <= rows:
            yield from lines
            return
        number_before = len(_before_fix(details))
        before = [(label, list(self.detail(label, text, DETAIL_CELLS))) for label, text in details[:number_before]]
        parts = [sentence for label, text in details[number_before:] for sentence in _sentences(label, text)]
        sentence_count = len(parts)
        fix = self.fix_lines(parts, sentence_count, check)
        if self.rows(fix) > rows:
            sentence_count = next((count for count, (_, text) in enumerate(parts, 1) if "`" in text), 1)
            change = next((count for count, (_, text) in enumerate(parts, 1) if changes_host(text)), sentence_count)
            if self.rows(self.fix_lines(parts, change, check)) <= rows + ROWS_FOR_A_CHANGE:
                sentence_count = change
            fix = self.fix_lines(parts, sentence_count, check)
        rows -= self.rows(fix)
        kept = set()
        for label, block in sorted(before, key=lambda item: _RANKS.get(item[0], len(_RANKS))):
            if self.rows(block) <= rows:
                rows -= self.rows(block)
                kept.add(label)
        for count in range(sentence_count + 1, len(parts) + 1):
            longer = self.fix_lines(parts, count, check)
            if self.rows(longer) > rows + self.rows(fix):
                break
            rows, fix = rows + self.rows(fix) - self.rows(longer), longer
        yield from (line for label, block in before if label in kept for line in block)
        yield from fix

    def fix_lines(self, parts: Sequence[tuple[str, str]], count: int, check: str) -> list[Text]:
        """The first ``count`` sentences of the fix, and where the others are."""
        end = "" if count >= len(parts) else phrase("(more: doctor explain {name})", name=check)
        return [line for label, text in _joined(parts[:count], end) for line in self.detail(label, text, DETAIL_CELLS)]

    def part(self, part: ReportPart, several: bool) -> Iterator[Text]:
        several = several and bool(part.hosts)
        yield from self.hanging_lines(
            " " * DETAIL_CELLS, f"{part.hosts}{localized(': ')}{part.text}" if several else part.text
        )
        yield from self.part_details(part, DETAIL_CELLS + 2 if several else DETAIL_CELLS)

    def part_details(self, part: ReportPart, margin: int) -> Iterator[Text]:
        for label, text in part.details:
            yield from self.detail(label, text, margin)

    def detail(self, label: str, text: str, margin: int) -> Iterator[Text]:
        name = localized(label)
        is_long = display_width(name) >= LABEL_CELLS
        yield from self.hanging_lines(
            " " * margin if is_long else f"{' ' * margin}{padded(name, LABEL_CELLS)}",
            f"{name} {text}" if is_long else text,
            "bold" if label == "fix" else "dim",
            commands=label not in OBSERVED_EXPECTED,
            indent=margin if is_long else margin + LABEL_CELLS,
        )

    def status_line(self, word: str, text: str, style: str = "", name: str = "") -> Iterator[Text]:
        status_style = STYLES[word]
        sign = status_style.sign if self.terminal.unicode else status_style.ascii
        head = f"{sign} {padded(localized(word), MARGIN_CELLS - 2)}{name}"
        yield from self.hanging_lines(head, text, status_style.colour, style)

    def hanging_lines(
        self, head: str, text: str, head_style: str = "", style: str = "", commands: bool = False, indent: int = 0
    ) -> Iterator[Text]:
        """``text`` beside ``head``, wrapped with a hanging indent: the width of the head, or ``indent`` cells."""
        indent = indent or display_width(head)
        for number, line in enumerate(wrapped(text, self.terminal.width - indent)):
            body = Text(line, style)
            if commands:
                body.highlight_regex(r"`[^`]*`", "cyan")
            yield Text.assemble((head if not number else " " * indent, head_style), body)

    def summary(self, summary: SummaryLines, has_findings: bool, unfilled: Sequence[str] = ()) -> Iterator[Text]:
        for note in summary.notes:
            yield from self.hanging_lines(localized("Note: "), note)
        yield from self.hanging_lines("", summary.source, style="dim")
        if unfilled:
            yield from self.hanging_lines("", localized("Fill in yourself: ") + ", ".join(unfilled))
        if summary.fix_command:
            yield from self.hanging_lines("", summary.fix_offer)
            yield Text(f"  {summary.fix_command}", "cyan")  # never wrapped: it is there to be copied
        if has_findings and not self.verbose:
            yield from self.hanging_lines(
                "", localized("More on each: doctor explain CHECK; -v shows all"), style="dim"
            )
        style = STYLES[summary.status_word]
        sign = style.sign if self.terminal.unicode else style.ascii
        yield from self.hanging_lines(f"{sign} ", summary.verdict, style.colour, style.colour)


def _name_on(entry: ReportEntry) -> str:
    return phrase("{name} on {where}", name=entry.name, where=entry.where) if entry.where else entry.name


def _before_fix(details: Details) -> Details:
    """The details above ``fix``."""
    labels = [label for label, _ in details]
    return details[: labels.index("fix")] if "fix" in labels else details


def _sentences(label: str, text: str) -> Iterator[tuple[str, str]]:
    """The sentences of one detail, the first of them under its label; an indented line is one."""
    parts = [text] if text.startswith("  ") else sentences(text)
    yield from ((label if not number else " ", part) for number, part in enumerate(parts))


def _joined(parts: Iterable[tuple[str, str]], end: str) -> Details:
    """Sentences under one label (those with the label of a space) as one line again, and ``end`` behind the last."""
    lines: list[tuple[str, str]] = []
    for label, text in parts:
        if label == " ":
            gap = "" if lines[-1][1].endswith("。") else " "
            lines[-1] = (lines[-1][0], f"{lines[-1][1]}{gap}{text}")
        else:
            lines.append((label, text))
    return (*lines[:-1], (lines[-1][0], without_loose_spaces(f"{lines[-1][1]} {end}".rstrip()))) if lines else ()
