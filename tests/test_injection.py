"""Templates of all sorts with hostile values, through real shells: what the loader lets in, no value gets out of."""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from doctor.remedy.playbook import PlaybookStep
from doctor.remedy.template import fill_command, is_single_placeholder
from doctor.remedy.validate import step_violations

PARTS = (
    "f ", "g ", "{v}", "{v}", "'", '"', "$(", ")", "(", "`", "\\", "#", "\n", ";", " ", "|", "case x in x) ",
    "case x in\n", " ;; esac", ";; ", "${x}", "${x:-", "}", "$((", "))", "<<E", "E\n", "$'", "a", "&& ", "$", "if ",
    "then ", "fi", "do ", "for i in ", "done", "{ ", "! ", "a=1 ", "in ", "x)", "${x#", "--", "- ", '$"', "$x",
    "\\\n", "[ ", "]", "1", "%",
)  # fmt: skip
VALUES = (
    "pwned", "$(pwned)", "`pwned`", "';pwned;'", '";pwned;"', ");pwned;(", "\npwned\n", "};pwned;", "\\", "'$(pwned)'",
    "E\npwned\n", '"$(pwned)"', "\\';pwned;#", "))$(pwned)", "\\`pwned\\`", "pwned)", "x) pwned;;",
)  # fmt: skip
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


def let_in(seed: int, many: int) -> Iterator[str]:
    """Commands that the loader does not refuse. Most are no grammar at all; a shell makes something of some."""
    draw = random.Random(seed)
    while many:
        template = "".join(draw.choices(PARTS, k=draw.randint(2, 9)))
        ruled_out = any(key == "run" for key, _ in step_violations(PlaybookStep(1, "x", run=template, changes=False)))
        if "{v}" in template and not is_single_placeholder(template) and not ruled_out:
            many -= 1
            yield template


def escapes(shell: str, templates: list[str], fill: Callable[[str, str], str]) -> list[tuple[str, str]]:
    """The templates and values with which the shell ran what stands in the value."""
    tries = [(template, value) for template in templates for value in VALUES]
    lines = ['pwned() { echo "ran $n" >&2; }; f() { :; }; g() { echo x; }; x=; PATH=/nowhere']
    for number, (template, value) in enumerate(tries):
        lines.append(f"n={number}; ( eval {shlex.quote(fill(template, value))} ) </dev/null >/dev/null")
    script = "\n".join(lines).encode()
    said = subprocess.run([shell], input=script, capture_output=True, check=False, timeout=60).stderr.decode(
        "utf-8", "replace"
    )
    return [tries[int(line[4:])] for line in said.splitlines() if line.startswith("ran ")]


@pytest.mark.parametrize("shell", SHELLS)
def test_no_value_is_ever_run(shell: str) -> None:
    templates = list(let_in(1, 150))
    assert escapes(shell, templates, lambda template, value: fill_command(template, {"v": value})) == []


def test_the_measure_would_notice() -> None:
    """Without quotes, and with quotes that do not look where they stand, values are run."""
    templates = list(let_in(1, 60))
    assert escapes("sh", templates, lambda template, value: template.replace("{v}", value))
    assert escapes("sh", templates, lambda template, value: template.replace("{v}", shlex.quote(value)))
