"""The README's generated parts. Run: python -m tests.readme to write them anew."""

from __future__ import annotations

from pathlib import Path

from doctor.engine.catalog import load_checks
from doctor.report.explain.checks import catalog_markdown

README = Path(__file__).resolve().parents[1] / "README.md"


def written(text: str) -> str:
    """The README with the catalogue that the checks' own files give."""
    return between(text, "catalogue", catalog_markdown(load_checks()))


def between(text: str, name: str, content: str) -> str:
    """``text`` with what stands between its two markers replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    assert rest and tail, f"the README has lost its {name} markers"
    return f"{head}{start}{content}{end}{tail}"


if __name__ == "__main__":
    README.write_text(written(README.read_text("utf-8")), "utf-8")
