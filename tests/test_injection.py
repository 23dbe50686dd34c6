"""Values in real shells: they come as variables, so no text of theirs is ever read as a command."""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess

import pytest

from doctor.remedy.catalog import step_violations
from doctor.remedy.playbook import PlaybookStep, fill_step
from doctor.remedy.template import TemplateError

pytestmark = pytest.mark.every

PARTS = (
    "f ", "g ", '"$v"', "$v", "'", '"', "$(", ")", "(", "`", "\\", "#", "\n", ";", " ", "|", "case x in x) ", "esac",
    ";; ", "${x}", "${x:-", "}", "$((", "))", "a", "&& ", "if ", "then ", "fi", "do ", "for i in ", "done", "! ",
    "a=1 ", "- ", "$x", "[ ", "]", "1", "%",
)  # fmt: skip
VALUES = (
    "pwned", "$(pwned)", "`pwned`", "';pwned;'", '";pwned;"', ");pwned;(", "};pwned;", "\\", "'$(pwned)'",
    '"$(pwned)"', "\\';pwned;#", "))$(pwned)", "pwned)", "x) pwned;;",
)  # fmt: skip
SHELLS = [shell for shell in ("dash", "bash") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_no_text_of_a_value_is_run(shell: str) -> None:
    """Commands at random; a value alone in the place of a command is the only way to run it, and then it is a name."""
    draw, tried = random.Random(1), 0
    lines = ["pwned() { echo ran >&2; }; f() { :; }; g() { echo x; }; x=; PATH=/nowhere"]
    values = {f"V{number}": value for number, value in enumerate(VALUES)}
    while tried < 150:
        command = "".join(draw.choices(PARTS, k=draw.randint(2, 9)))
        if "$v" not in command or any(True for _ in step_violations(PlaybookStep(1, "x", run=command, changes=False))):
            continue
        tried += 1
        for name, value in values.items():
            if value != "pwned":
                lines.append(f"v=${name}; ( eval {shlex.quote(command)} ) </dev/null >/dev/null")
    ended = subprocess.run(
        [shell], input="\n".join(lines).encode(), env=values, capture_output=True, check=False, timeout=100
    )
    assert b"ran" not in ended.stderr.splitlines()


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\x1b]0;x\x07", "-rf", "\x85", "a\u2029b"])
def test_a_value_that_no_variable_should_hold_is_refused(value: str) -> None:
    with pytest.raises(TemplateError):
        fill_step(PlaybookStep(1, "x", run='f "$v"', changes=False), {"v": value})
