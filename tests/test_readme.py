"""The pages are the contract: their generated parts are fresh, and what they show works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.cli.app import COMMANDS
from doctor.engine.catalog import load_checks
from doctor.report.formats.registry import FORMATS, REPORT_FORMATS
from tests.readme import CONTRIBUTING, MAP, PAGES, README, ROOT, SCREEN, anchor, headings, marked, refreshed
from tests.regen import help_text, stale

pytestmark = pytest.mark.every

TEXT = README.read_text("utf-8")
IDS = [str(path.relative_to(ROOT)) for path in PAGES]
OF_OTHERS = {
    "--collector",
    "--machine",
    "--node-rank",
    "--now",
    "--permanent",
    *(
        "--parallelism",
        "--max-restarts",
        "--requeue",
        "--duplicates",
        "--parsable",
        "--open-mode",
        "--log-dir",
        "--redirects",
        "--nproc-per-node",
        "--overlap",
        "--ntasks-per-node",
        "--no-python",
        "--jobid",
        "--container-name",
    ),
    *("--device", "--gpus", "--ipc", "--network", "--pids-limit", "--shm-size", "--sysctl", "--ulimit"),
}
"""Of torchrun, Slurm, and the engines of containers."""


@pytest.mark.parametrize("page", PAGES, ids=IDS)
class TestEveryPage:
    def test_is_fresh(self, page: Path) -> None:
        assert refreshed(page) == page.read_text("utf-8"), "hatch run regen"

    def test_has_contents_where_it_is_longer_than_a_screen(self, page: Path) -> None:
        text = page.read_text("utf-8")
        if len(text.splitlines()) > SCREEN and headings(text):
            table = marked(text, "toc")
            assert all(f"(#{anchor(heading)})" in table for level, heading in headings(text) if level == 2)

    def test_links_to_what_exists(self, page: Path) -> None:
        text = page.read_text("utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)):
            path, _, part = target.partition("#")
            if "://" in target:
                continue
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), target
            if part:
                assert part in {anchor(heading) for _, heading in headings(file.read_text("utf-8"))}, target


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 300


def test_its_transcripts_name_checks_that_exist_and_quote_their_pages() -> None:
    """If not: python -m tests.regen --transcripts (root, torch)."""
    pages = {check.name: check for check in load_checks()}
    for part, findings in (("report", 3), ("smoke", 1)):
        text = marked(TEXT, part)
        blocks = re.split(r"^[✗!] (?:FAIL|warn) (\S+)(?: on .*)?$", text, flags=re.M)[1:]
        assert len(blocks) == 2 * findings
        for name, block in zip(blocks[::2], blocks[1::2], strict=True):
            reason = re.search(r"^    why  (.*\n(?: {9}.*\n)*)", block, re.M)
            if not reason:
                assert name in pages
                continue
            quoted = " ".join(reason[1].split()).removesuffix(" ...")
            assert quoted in " ".join(pages[name].section("Why it matters").split()), name


def test_the_readme_and_the_changelog_count_the_same_checks() -> None:
    """If not: python -m tests.regen --transcripts, and the number in CHANGELOG.md."""
    (judged,) = re.findall(r"FAILED: .*; \d+ of (\d+) checks judged", marked(TEXT, "report"))
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^- (\d+) checks of hosts", changelog, re.M) == [judged]


def test_the_check_of_your_own_works_as_printed(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (name,) = re.findall(r"^def (\w+)", code, re.M)
    (tmp_path / f"{name}.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-m", "doctor", "check", "--checks", str(tmp_path), "--select", name.replace("_", "-")],
        cwd=README.parent,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode in (0, 10), done.stdout + done.stderr


def test_every_option_that_a_page_names_exists() -> None:
    options = help_text("--help") + "".join(
        help_text(command, words) for command in COMMANDS for words in ("--help", "--help-all")
    )
    named: set[str] = set()
    for page in PAGES:
        if page in (MAP, CONTRIBUTING):
            continue
        text = page.read_text("utf-8")
        prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        fences = re.findall(r"^```.*?^```", text, re.S | re.M)
        commands = [arguments for fence in fences for arguments in re.findall(r"\bdoctor (.*(?:\\\n.*)*)", fence)]
        named |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "\n".join([prose, *commands]))) - OF_OTHERS
    assert len(named) > 50
    assert {option for option in named if not re.search(rf"{option}\b", options)} == set()


def test_every_format_is_in_the_help_the_page_and_the_changelog() -> None:
    """All of them name the formats of the registry, and no other."""
    page = (ROOT / "doctor" / "docs" / "formats.md").read_text("utf-8")
    table = page.partition("| format | for |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|", table, re.M)
    assert sorted(rows) == sorted(FORMATS), "doctor/docs/formats.md: expected one row for each format"
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.M)) == {
        name: row.purpose for name, row in REPORT_FORMATS.items()
    }
    (line,) = re.findall(r"^- `-f`: ([\w, \n]+);", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert re.split(r",\s+", line) == list(FORMATS), "CHANGELOG.md: the list after `-f`"
    for command in ("check", "smoke", "node", "merge", "report"):
        assert f"{', '.join(FORMATS)}; repeatable" in " ".join(help_text(command, "--help").split()), command


class TestTheMap:
    TEXT = MAP.read_text("utf-8")

    def test_names_paths_that_exist(self) -> None:
        paths = set(re.findall(r"`((?:doctor|checks|tests|playbooks)/[^`*]*)`", self.TEXT))
        assert len(paths) > 40
        assert {path for path in paths if not (ROOT / path).exists()} == set()

    def test_has_every_package(self) -> None:
        packages = {path.parent.name for path in (ROOT / "doctor").glob("*/__init__.py")}
        assert set(re.findall(r"^\| `doctor/(\w+)/` \|", self.TEXT, re.M)) == packages

    def test_has_a_short_glossary(self) -> None:
        section = self.TEXT.partition("\n## Glossary\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.M)[1:]
        terms = [term for names, _ in rows for term in names.split(", ")]
        assert 25 <= len(terms) <= 40
        assert len(set(terms)) == len(terms)


def test_the_recipes_name_paths_that_exist() -> None:
    """Names in capitals stand for a new file."""
    text = CONTRIBUTING.read_text("utf-8")
    paths = set(re.findall(r"`((?:doctor|checks|tests|playbooks)/[^`*\s]*)`", text))
    real = {path for path in paths if not re.search(r"NAME|swap_", path)}
    assert len(real) > 15
    assert {path for path in real if not (ROOT / path).exists()} == set()


@pytest.mark.every
def test_everything_generated_is_fresh() -> None:
    assert [str(path) for path, _ in stale()] == [], "hatch run regen"


def test_the_commands_behind_the_figures_of_large_fleets_are_there() -> None:
    text = (ROOT / "doctor/docs/scale.md").read_text("utf-8")
    paths = re.findall(r"`python (?:-m pytest )?(tests/\S+\.py)", text)
    paths += [name.replace(".", "/") + ".py" for name in re.findall(r"`python -m (tests\.\S+)", text)]
    assert len(paths) >= 7
    assert [path for path in paths if not (ROOT / path).is_file()] == []
