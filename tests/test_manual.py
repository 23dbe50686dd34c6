"""The man page and the completion scripts are those of the command line, and man and the shells read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from doctor.cli.app import COMMANDS
from tests import manual
from tests.regen import help_text


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
@pytest.mark.parametrize("width", [60, 80])
def test_man_shows_the_page_without_a_warning(width: int) -> None:
    argv = ["man", "--warnings=all", "-E", "UTF-8", "-l", str(manual.PAGE)]
    environ = {"MANWIDTH": str(width), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANROFFOPT": "-ww"}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
    assert "DOCTOR PREFLIGHT" in text
    assert "--no-history" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_in_it(name: str) -> None:
    page = manual.PAGE.read_text("utf-8").replace("\\-", "-")
    section = page.partition(f".SH DOCTOR {name.upper()}\n")[2].partition("\n.SH ")[0]
    options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)(?![a-z-]| [a-z])", help_text(name, "--help"), re.M))
    assert "--help" in options
    assert not [option for option in options if not re.search(rf"^\.B .*{option}\b", section, re.M)]


@pytest.mark.parametrize("text", [".TH evil", "'br", "a\\fB", "`x` ^ ~", "-"])
def test_no_text_is_a_request(text: str) -> None:
    line = manual.escaped(text)
    assert not line.startswith((".", "'"))
    assert "\\f" not in line


@pytest.mark.parametrize("shell", manual.COMPLETIONS)
def test_a_shell_reads_its_script(shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    path: Path = manual.COMPLETIONS[shell]
    subprocess.run([shell, "-n", str(path)], check=True, timeout=60)
    assert "complete" in path.read_text("utf-8")
