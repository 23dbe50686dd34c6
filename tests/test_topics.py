"""`doctor explain TOPIC`: the pages of doctor/docs as plain text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.catalog import load_checks
from doctor.engine.check_files import AREAS
from doctor.engine.output_encoding import display_width
from doctor.remedy.catalog import load_playbooks
from doctor.report.explain.topics import FOLDER, render, title, topics
from tests.regen import help_text

ROOT = Path(__file__).resolve().parents[1]


def explain(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")} | environ
    argv = [sys.executable, "-m", "doctor", "explain", *arguments]
    return subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", topics())
def test_a_page_is_plain_text_of_the_width(name: str, width: int) -> None:
    text = render(topics()[name].read_text("utf-8"), width)
    assert text.replace("\n", "").isprintable()
    assert not re.search(r"<!--|\]\(|\*\*|^\||^```|^#{1,3} \w", re.sub(r"^ {4}.*$", "", text, flags=re.M), re.M)
    for line in text.splitlines():
        breakable = not line.startswith("    ") and "`" not in line
        assert display_width(line) <= width or not breakable, line


@pytest.mark.parametrize("name", topics())
def test_a_page_keeps_every_word(name: str) -> None:
    """Nothing is lost on the way: not a word of a table, a list or a fence."""
    source = re.sub(r"<!-- toc -->.*?<!-- /toc -->|<!--.*?-->", "", topics()[name].read_text("utf-8"), flags=re.S)
    source = re.sub(r"\]\([^)\s]+\)", " ", source)
    text = render(topics()[name].read_text("utf-8"), 80)
    assert set(re.findall(r"\w+", source)) - set(re.findall(r"\w+", text)) - {"sh", "toml", "yaml", "python"} == set()


def test_no_topic_hides_a_check_a_playbook_or_an_area() -> None:
    names = {check.name for check in load_checks()} | {playbook.name for playbook in load_playbooks()} | set(AREAS)
    assert set(topics()) & names == set()


def test_the_help_lists_them() -> None:
    text = help_text("explain", "--help")
    for name, path in topics().items():
        assert re.search(rf"^ +{name} +{re.escape(title(path))}$", text, re.M)


def test_the_command_shows_a_page() -> None:
    done = explain("formats")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == render((FOLDER / "formats.md").read_text("utf-8"), 80)


def test_it_has_no_colour_and_the_terminals_width(tmp_path: Path) -> None:
    """In a terminal of 60 columns, with and without NO_COLOR."""
    program = "import pty, sys; pty.spawn(sys.argv[1:])"
    argv = [sys.executable, "-c", program, sys.executable, "-m", "doctor", "explain", "formats"]
    for more in ({}, {"NO_COLOR": "1"}):
        env = {**os.environ, "COLUMNS": "60", **more}
        done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
        assert done.stdout.replace("\r", "") == render((FOLDER / "formats.md").read_text("utf-8"), 60).replace("\r", "")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("job-script", "did you mean job-scripts?"), ("qqqqqq", ", ".join(topics())), ("securiti", "mean security?")],
)
def test_an_unknown_name_leads_to_the_topics(name: str, hint: str) -> None:
    done = explain(name)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr


def test_a_sites_own_check_comes_before_a_topic(tmp_path: Path) -> None:
    (tmp_path / "formats.py").write_text(
        "from doctor import ERROR, Finding, check\nfrom doctor.facts.visit import Reachability\n"
        '@check(severity=ERROR)\ndef formats(reach: Reachability):\n    """All is well."""\n    yield Finding("x")\n'
    )
    assert explain("formats", "--checks", str(tmp_path)).stdout.startswith("formats\nerror, area site\n")


class TestRender:
    def test_tables_shrink_to_the_width(self) -> None:
        table = "| name | meaning |\n|---|---|\n| a | one two three four five |\n| b \\| c | six |\n"
        assert render(table, 22) == (
            "name   meaning\n-----  ---------------\na      one two three\n       four five\nb | c  six\n"
        )

    def test_tables_that_do_not_fit_become_paragraphs(self) -> None:
        table = "| name | meaning |\n|---|---|\n| a-very-long-name | another-long-word here |\n"
        assert render(table, 24) == "a-very-long-name\n    meaning:\n    another-long-word\n    here\n"

    def test_commands_are_never_wrapped(self) -> None:
        assert (
            render("```sh\ndoctor check 'node[001-064]'  # all\n```\n", 10)
            == "    doctor check 'node[001-064]'  # all\n"
        )

    def test_lists_hang(self) -> None:
        assert render("Text:\n- one two\n  three\n- four\n", 9) == "Text:\n\n- one two\n  three\n- four\n"

    def test_links(self) -> None:
        text = "[a](formats.md) [b](#x) [c](https://example.org/) [d](../../tests)"
        assert render(text, 99) == "a (doctor explain formats) b c (https://example.org/) d\n"
