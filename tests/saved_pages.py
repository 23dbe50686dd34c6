"""Makes the file of pages that `doctor list` and `doctor explain NAME` read."""

from __future__ import annotations

import os
from pathlib import Path

from doctor.cli.saved_pages import PAGES, START
from doctor.engine.catalog import load_checks
from doctor.engine.streams import harmless
from doctor.remedy.catalog import load_playbooks, playbooks_for
from doctor.report.explain.checks import check_page
from doctor.report.explain.examples import read_examples
from doctor.report.layout.formatting import MARK, UNWRAPPED

FILE = Path(PAGES)


def content() -> str:
    """Of all checks, by name."""
    playbooks, examples = load_playbooks(), read_examples()
    rows, pages = [], []
    for check in sorted(load_checks(), key=lambda check: check.name):
        page = check_page(check, playbooks_for(playbooks, check.name), examples.get(check.name), UNWRAPPED)
        body = page.rpartition("\nCheck file: ")[0]
        shown = MARK.join(harmless(part) for part in body.split(MARK))
        fields = (check.name, check.severity.value, check.area, check.claim, str(os.stat(check.path).st_size))
        rows.append("\t".join(fields) + "\n")
        pages.append(f"{START}{check.name}\n{shown}")
    return "".join(rows + pages)
