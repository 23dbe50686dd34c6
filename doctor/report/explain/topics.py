"""The documentation pages in ``doctor/docs``, as plain text for a terminal. No Markdown library is loaded.

It reads the part of Markdown that these pages use: headings, paragraphs, lists, tables, fences, links and comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from doctor.engine.language import language
from doctor.engine.output_encoding import display_width, padded
from doctor.engine.texts import filled
from doctor.report.layout.formatting import wrapped

FOLDER = Path(__file__).resolve().parents[2] / "docs"
GAP = "  "
"""Between two columns of a table."""

_COMMENT = re.compile(r"<!--.*?-->\n?", re.S)
_CONTENTS = re.compile(r"<!-- toc -->.*?<!-- /toc -->\n*", re.S)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def topics() -> dict[str, Path]:
    """The pages by topic, in alphabetical order.

    >>> "formats" in topics()
    True
    """
    return {path.stem: path for path in sorted(FOLDER.glob("*.md"))}


def localized_page(path: Path) -> Path:
    """The page in the language of this process, where there is one."""
    own = path.parent / language() / path.name
    return own if own.is_file() else path


def title(path: Path) -> str:
    """The first heading of a page."""
    with path.open(encoding="utf-8") as file:
        return file.readline().lstrip("# ").strip()


def render(markdown: str, width: int) -> str:
    r"""A page as plain text of at most ``width`` columns; commands in fences are never wrapped.

    >>> print(render("# Title\n\nSee [all](formats.md).", 80), end="")
    Title
    =====
    <BLANKLINE>
    See all (doctor explain formats).
    """
    text = _COMMENT.sub("", _CONTENTS.sub("", markdown))
    blocks = [_render_block(block, width) for block in _blocks(text.splitlines())]
    return "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """The lines of each block: what stands between empty lines, a complete fence, or one list item."""
    block: list[str] = []
    fenced = False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        starts_item = bool(_ITEM.match(line)) and bool(block) and not fenced
        if (not line.strip() and not fenced) or (starts_item and not _ITEM.match(block[0])):
            if block:
                yield block
            block = []
        if line.strip() or fenced:
            block.append(line)
    if block:
        yield block


def _render_block(block: list[str], width: int) -> list[str]:
    first = block[0]
    if first.startswith("```"):
        return [f"    {line}".rstrip() for line in block[1:-1]]
    if first.startswith("#"):
        level, text = len(first) - len(first.lstrip("#")), _inline(first.lstrip("# "))
        rule = {1: "=", 2: "-"}.get(level, "")
        return [text, rule * display_width(text)] if rule else [text]
    if first.startswith("|"):
        return _table([_row(line) for line in block if not re.fullmatch(r"[|\s:-]+", line)], width)
    if _ITEM.match(first):
        return [line for item in _items(block) for line in wrapped(item, width)]
    return wrapped(_inline(" ".join(line.strip() for line in block)), width)


def _items(block: list[str]) -> list[str]:
    items: list[str] = []
    for line in block:
        if _ITEM.match(line):
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    return [_inline(item) for item in items]


def _inline(text: str) -> str:
    """Text without emphasis, and with links that a terminal can follow."""
    return _LINK.sub(_link, text.replace("**", ""))


def _link(match: re.Match[str]) -> str:
    text, target = match[1], match[2]
    page, _, _ = target.rpartition("/")[2].partition("#")
    if target.startswith("#") or text == target:
        return text
    if page.endswith(".md") and (FOLDER / page).exists():
        return filled("{0} (doctor explain {1})", text, page.removesuffix(".md"))
    return filled("{0} ({1})", text, target) if "://" in target else text


# ---- tables


def _row(line: str) -> list[str]:
    parts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return [_inline(part.strip().replace("\\|", "|")) for part in parts]


def _table(rows: list[list[str]], width: int) -> list[str]:
    """Columns where they fit, else one short paragraph a row."""
    columns = list(zip(*rows, strict=True))
    least = [max(display_width(word) for cell in column for word in wrapped(cell, 1)) for column in columns]
    room = width - len(GAP) * (len(columns) - 1)
    if sum(least) > room:
        return _stacked(rows, width)
    widths = _fit(least, [max(map(display_width, column)) for column in columns], room)
    lines = [line for row in rows[:1] for line in _columns(row, widths)]
    lines.append(GAP.join("-" * wide for wide in widths))
    return lines + [line for row in rows[1:] for line in _columns(row, widths)]


def _fit(least: Sequence[int], natural: Sequence[int], room: int) -> list[int]:
    """The widths of columns: what each needs, as far as there is room; the widest shrink first."""
    widths = list(natural)
    while sum(widths) > room:
        shrinkable = [number for number, wide in enumerate(widths) if wide > least[number]]
        widths[max(shrinkable, key=lambda number: widths[number])] -= 1
    return widths


def _columns(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """One row of a table, on as many lines as its longest cell takes."""
    wrapped_cells = [wrapped(cell, wide) for cell, wide in zip(row, widths, strict=True)]
    height = max(map(len, wrapped_cells))
    lines = []
    for number in range(height):
        parts = [lines_[number] if number < len(lines_) else "" for lines_ in wrapped_cells]
        cells = [padded(part, wide) for part, wide in zip(parts, widths, strict=True)]
        lines.append(GAP.join(cells).rstrip())
    return lines


def _stacked(rows: list[list[str]], width: int) -> list[str]:
    head, *body = rows
    lines: list[str] = []
    for row in body:
        lines += wrapped(row[0], width)
        for name, cell in zip(head[1:], row[1:], strict=True):
            lines += [f"    {line}" for line in wrapped(f"{name}: {cell}", width - 4)]
    return lines
