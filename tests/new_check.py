"""Starts a new check: its file, its test and its fault, to be filled in where they say TODO.

python -m tests.new_check NAME [--area kernel] [--severity warning]     or: hatch run new-check NAME ...
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from pathlib import Path

from doctor.engine.check_files import AREAS

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_TEMPLATE = ("training", "loss", "site")
"""Areas whose checks judge programs and logs: see the recipes in .github/CONTRIBUTING.md."""

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

from tests.checks.run_check import messages, run_check


def test_a_healthy_host_has_no_finding() -> None:
    """TODO {name}: give the host the facts of a healthy one."""
    assert messages(run_check("{name}", {{"w1": []}})) == []


def test_the_fault_is_found() -> None:
    pytest.fail("TODO {name}: give a host the facts of the fault, and compare its finding")
'''
SMOKE_CHECK = '''\
from collections.abc import Iterator

from doctor import {severity}, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import describe_ranks


@check(severity={severity}, area="smoke")
def {stem}(run: SmokeRun, starts: PerHost[SmokeStart]) -> Iterator[Finding]:
    """TODO {name}: the condition that holds in every healthy run.

    ## Why it matters
    TODO {name}: what happens to a job where it does not hold.

    ## What to do
    TODO {name}: what fixes {{host}}.

    ## Source
    TODO {name}: what is compared, and where the rule comes from.
    """
    # TODO {name}: take the facts of the stage, and call a pure rule.
    # What ends a run is a failure: in place of the loop, `failure_findings` of doctor.smoke.results.trouble_findings.
    for host, start in starts.items():
        ranks = [event.rank for event in start.joined]
        yield Finding("TODO {name}: {{who}}", hosts=[host], who=describe_ranks(run, ranks), ranks=ranks)
'''
SMOKE_TEST = '''\
import pytest

from tests.checks.smoke import findings_of, ran, run_check, started


def test_a_healthy_run_has_no_finding() -> None:
    """TODO {name}: give the hosts the facts of a healthy run."""
    run = ran(4, 2)
    assert run_check("{stem}", run, started(run)).complete
    assert not findings_of("{stem}", run, started(run))


def test_the_fault_is_found() -> None:
    pytest.fail("TODO {name}: give a rank the facts of the fault, and compare the finding")
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
  4. python -m tests.example_values; python -m tests.translations (what waits for its Chinese); CHANGELOG.md
  5. hatch run regen, hatch run fix, hatch run fast
  6. the fault on real hosts, as root: {pytest} tests/test_faults.py -k {name}
"""
SMOKE_NEXT = """\
Next, in this order (.github/CONTRIBUTING.md, "Recipe: a smoke verdict"):
  1. what the ranks report, and the rule; then what says TODO: grep -rn 'TODO {name}' checks tests
  2. {pytest} tests/checks/test_{stem}.py
  3. the proof: a test of real ranks in tests/smoke, marked @pytest.mark.proves("{name}")
  4. name the check in `treats` of a playbook, or write one: playbooks/
  5. python -m tests.example_values; python -m tests.translations (what waits for its Chinese); CHANGELOG.md
  6. hatch run regen, hatch run fix, hatch run fast
"""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="new-check", description="Start a new check, its test and its fault.")
    parser.add_argument("name", metavar="NAME", help="names the problem, as in device-ip-conflict")
    parser.add_argument("--area", default="kernel", choices=[name for name in AREAS if name not in WITHOUT_TEMPLATE])
    parser.add_argument("--severity", default="warning", choices=["error", "warning"])
    options = parser.parse_args(argv)
    name = options.name.replace("_", "-")
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        parser.error(f"{options.name!r}: expected lower-case words joined by hyphens, as in device-ip-conflict")
    stem = name.replace("-", "_")
    if (ROOT / "checks" / f"{stem}.py").exists():
        parser.error(f"checks/{stem}.py exists")
    fields = {"name": name, "stem": stem, "area": options.area, "severity": options.severity.upper()}
    is_smoke = options.area == "smoke"
    _write(f"checks/{stem}.py", (SMOKE_CHECK if is_smoke else CHECK).format(**fields))
    _write(f"tests/checks/test_{stem}.py", (SMOKE_TEST if is_smoke else TEST).format(**fields))
    if not is_smoke:
        _add_row(options.area, ROW.format(**fields))
    print((SMOKE_NEXT if is_smoke else NEXT).format(**fields, pytest="python -m pytest -q"), end="")
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
