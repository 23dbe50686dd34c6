"""Our own playbooks: each one loads, reads well, and is a program that a shell understands."""

from __future__ import annotations

import subprocess

import pytest

from doctor.engine.catalog import bundled_folder
from doctor.remedy.catalog import check_files_by_name, load_playbooks, read_playbook
from doctor.remedy.playbook import COMMAND_KEYS, Playbook, fill_step
from doctor.report.explain.playbooks import examples, playbook_page

ALL = load_playbooks()


@pytest.mark.parametrize("playbook", ALL, ids=lambda entry: entry.name)
class TestEveryPlaybook:
    def test_has_commands_that_a_shell_understands(self, playbook: Playbook) -> None:
        for command in (getattr(step, key) for step in playbook.steps for key in COMMAND_KEYS):
            ended = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True, check=False)
            assert (ended.returncode, ended.stderr) == (0, ""), command

    def test_has_a_page_with_every_value_filled_in(self, playbook: Playbook) -> None:
        page = playbook_page(playbook)
        assert page.replace("\n", "").isprintable()
        for step in playbook.steps:
            fill_step(step, examples(step))

    def test_says_what_it_does_in_plain_words(self, playbook: Playbook) -> None:
        assert len(playbook.title) <= 90 and not playbook.title.endswith(".")
        assert all(len(step.say) <= 200 for step in playbook.steps)


def test_nothing_else_lies_among_the_playbooks() -> None:
    others = [path.name for path in bundled_folder("playbooks").iterdir() if path.suffix != ".toml"]
    assert [name for name in others if name != ".gitkeep"] == []


def test_each_is_read_the_same_alone() -> None:
    paths = check_files_by_name()
    assert [
        read_playbook(path, paths)
        for path in sorted(bundled_folder("playbooks").glob("*.toml"), key=lambda path: path.stem)
    ] == ALL
