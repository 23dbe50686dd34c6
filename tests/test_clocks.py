"""Time limits are kept by the clock that nobody sets: a host's other clock may be wrong, and is then set meanwhile."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "doctor"
LIMIT = re.compile(r"time\.time\(\) *[+<>]|(?:[<>]|\b(?:end|deadline|limit) -) *time\.time\(\)")


def test_no_time_limit_is_by_the_clock_that_can_be_set() -> None:
    names = [
        f"{path.relative_to(PACKAGE)}:{number}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if LIMIT.search(line)
    ]
    assert names == []


@pytest.mark.parametrize("line", ["end = time.time() + 8", "while time.time() < end:", "wait(end - time.time())"])
def test_it_would_be_found(line: str) -> None:
    assert LIMIT.search(line)
