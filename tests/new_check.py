"""Starts a new check: its file, its test and its fault, to be filled in where they say TODO.

python -m tests.new_check NAME [--area kernel] [--severity warning]     or: hatch run new-check NAME ...
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

from doctor.engine.areas import AREAS

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_FAULT_FILE = ("smoke", "training", "loss", "site")
"""Areas that have no table of faults: see the recipes in .github/CONTRIBUTING.md."""

CHECK = '''\
from collections.abc import Iterator

from doctor import {severity}, Finding, check
from doctor.facts.visit import Reachability


@check(severity={severity}, area="{area}")
def {stem}(reach: Reachability) -> Iterator[Finding]:
    """TODO {name}: the condition that holds on every healthy host.

    ## Why it matters
    TODO {name}: what happens to a job on a host where it does not hold.

    ## What to do
    TODO {name}: the command that fixes {{host}}.

    ## Source
    TODO {name}: the page or source file that states the rule.
    """
    # TODO {name}: in place of `Reachability`, take the facts that the rule needs; see doctor/facts.
    if not reach.text:
        yield Finding("TODO {name}: it is {{observed}}; expected {{expected}}", observed=0, expected=1)
'''
TEST = '''\
import pytest

from tests.checks.looked import judged, said


def test_a_healthy_host_has_no_finding() -> None:
    """TODO {name}: give the host the facts of a healthy one."""
    assert said(judged("{name}", {{"w1": []}})) == []


def test_the_fault_is_found() -> None:
    pytest.fail("TODO {name}: give a host the facts of the fault, and compare its finding")
'''
ROW = '    Row("{name}", "echo \'TODO {name}: a script that puts the fault into a host\'; exit 1"),\n'
TABLE = '''\
"""Faults of the area {area}."""

from __future__ import annotations

from tests.faults import Row

ROWS = [
]
'''
NEXT = """\
Next, in this order:
  1. fill in what says TODO: grep -rn 'TODO {name}' checks tests
  2. {pytest} tests/checks/test_{stem}.py
  3. name the check in `treats` of a playbook, or write one: playbooks/
  4. hatch run regen, hatch run fix, hatch run fast
  5. the fault on real hosts, as root: {pytest} tests/test_faults.py -k {name}
"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="new-check", description="Start a new check, its test and its fault.")
    parser.add_argument("name", metavar="NAME", help="names the problem, as in device-ip-conflict")
    parser.add_argument("--area", default="kernel", choices=[name for name in AREAS if name not in WITHOUT_FAULT_FILE])
    parser.add_argument("--severity", default="warning", choices=["error", "warning"])
    options = parser.parse_args(argv)
    name = options.name.replace("_", "-")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        parser.error(f"{options.name!r}: expected lower-case words joined by hyphens, as in device-ip-conflict")
    stem = name.replace("-", "_")
    if (ROOT / "checks" / f"{stem}.py").exists():
        parser.error(f"checks/{stem}.py exists")
    words = {"name": name, "stem": stem, "area": options.area, "severity": options.severity.upper()}
    _write(f"checks/{stem}.py", CHECK.format(**words))
    _write(f"tests/checks/test_{stem}.py", TEST.format(**words))
    _add_row(options.area, ROW.format(**words))
    print(NEXT.format(**words, pytest="python -m pytest -q"), end="")
    return 0


def _write(path: str, text: str) -> None:
    (ROOT / path).write_text(text, "utf-8")
    print(f"wrote {path}")


def _add_row(area: str, row: str) -> None:
    """Puts a row at the end of ``ROWS`` in the area's table of faults, which is made if there is none."""
    path = ROOT / "tests" / "faults" / f"{area}.py"
    text = path.read_text("utf-8") if path.exists() else TABLE.format(area=area)
    lines = text.splitlines(keepends=True)
    lines.insert(_end_of_rows(text) - 1, row)
    path.write_text("".join(lines), "utf-8")
    print(f"added a row to tests/faults/{area}.py")


def _end_of_rows(text: str) -> int:
    """The number of the line with the bracket that closes ``ROWS``."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.List) and any(isinstance(name, ast.Name) and name.id == "ROWS" for name in targets):
            return int(value.end_lineno or 0)
    raise SystemExit("expected ROWS = [...] in the table of faults")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
