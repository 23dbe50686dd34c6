"""`doctor list WORD...`: by the words in names, claims, areas and pages; best matches first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.cli.app import application
from doctor.cli.fast_list import check_list, format_check_list, format_matches, read_list_entry, read_search_text
from doctor.cli.search import SearchText, search
from doctor.engine.catalog import check_files, load_checks
from doctor.engine.errors import CommandError
from doctor.engine.output_encoding import display_width
from doctor.remedy.catalog import load_playbooks
from doctor.report.explain.playbooks import playbook_list

SYN = SearchText(1, "syn-queue-short", "The queue of half-open connections kernel", "EI0015 and TCPStore")
PORT = SearchText(2, "port-taken", "A port is free kernel", "the queue of programs; port import")
PAGE = SearchText(3, "disk-full", "Room is left", "Ask who imports the port's queue (EI0015)")
ENTRIES = [PAGE, PORT, SYN]
CHECKS = {check.path: check for check in load_checks()}


def names(*arguments: str) -> list[str]:
    """The names in the listing of a search, in its order."""
    return [line.split()[0] for line in check_list(arguments).splitlines()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["queue"], [1, 3, 2]),
        (["QUEUE", "ei0015"], [1, 3]),
        (["syn_queue"], [1]),
        (["kernel"], [2, 1]),
        (["half-open   connections"], [1]),
        (["port"], [2, 3]),
        (["imports"], [3]),
    ],
)
def test_every_word_must_match_and_names_come_before_claims_before_pages(
    arguments: list[str], expected: list[int]
) -> None:
    assert search(arguments, ENTRIES, "check") == expected


def test_a_word_of_its_own_comes_before_a_part_of_a_word() -> None:
    entries = [SearchText(1, "a", "an import", ""), SearchText(2, "b", "a port", "")]
    assert search(["port"], entries, "check") == [2, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quoue"], "no check has the word 'quoue'; did you mean queue?"),
        (["zzzz", "queue"], "no check has the word 'zzzz'; `doctor list` names them all"),
        (
            ["half-open", "room"],
            "no check has all of these words; each alone matches: 'half-open' 1, 'room' 1",
        ),
        (["a\x1b[31m'"], "no check has the word 'a\\x1b[31m''; `doctor list` names them all"),
    ],
)
def test_no_match_is_one_line_and_exit_code_1(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError) as caught:
        search(arguments, ENTRIES, "check")
    assert str(caught.value) == message
    assert caught.value.exit_code == 1


def test_our_checks_are_found() -> None:
    assert names("shm")[:4] == ["shm-docker-default", "shm-full", "shm-stale-segments", "shm-too-small"]
    assert names("somaxconn")[0] == "listen-queue-short"  # the claim
    assert "listen-queue-short" in names("ei0015", "TCPStore")  # the page
    assert {check.name for check in load_checks() if check.area == "memory"} <= set(names("memory"))


@pytest.mark.parametrize("path", [path for path, _ in check_files()], ids=lambda path: path.stem)
def test_the_page_is_read_off_the_file(path: Path) -> None:
    check = CHECKS[str(path)]
    text = read_search_text(path)
    assert " ".join(text.page.replace("\\\\", "\\").split()) == " ".join(check.doc.split())


def test_the_command_line_searches_checks_and_playbooks(capfd: pytest.CaptureFixture[str]) -> None:
    def output(*arguments: str) -> str:
        application(["list"])(["list", *arguments], standalone_mode=False)
        return capfd.readouterr().out

    memory = [check.name for check in load_checks() if check.area == "memory"]
    assert [line.split()[0] for line in output("shm", "--select", "memory").splitlines()] == [
        name for name in names("shm") if name in memory
    ]
    assert output("shm", "full", "--ignore", "shm-too-small").startswith("shm-full ")
    rows = json.loads(output("shm", "docker", "--json"))["checks"]
    assert "shm-docker-default" in [row["name"] for row in rows]
    assert len(rows) == len(check_list(["shm", "docker"]).splitlines())
    assert output("--playbooks", "listen", "queue").startswith("raise-listen-queues ")
    with pytest.raises(CommandError, match=r"no playbook has the word 'lizten'; did you mean listen"):
        output("--playbooks", "lizten")


def test_the_exit_code_of_no_match_and_the_light_way() -> None:
    """A search reads files: it loads neither typer nor any library of ours that is slow."""
    finished = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "doctor", "list", "zzzzzz"], capture_output=True, text=True
    )
    assert finished.returncode == 1
    assert finished.stdout == ""
    messages = [line for line in finished.stderr.splitlines() if not line.startswith("import time:")]
    assert messages == ["doctor: no check has the word 'zzzzzz'; `doctor list` names them all"]
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in finished.stderr.splitlines()}
    assert loaded & {"typer", "rich", "paramiko", "torch", "msgspec", "ClusterShell"} == set()
    assert "difflib" in loaded


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_lists_fit_the_terminal(columns: int) -> None:
    entries = [read_list_entry(path) for path, _ in check_files()]
    playbooks = load_playbooks()
    for text in (
        format_check_list(entries, columns),
        format_matches(entries, columns),
        playbook_list(playbooks, columns),
    ):
        assert max(display_width(line) for line in text.splitlines()) <= columns
    claims = " ".join(format_check_list(entries, columns).split())
    assert all(entry.claim in claims for entry in entries)


def test_in_a_pipe_a_check_is_one_line() -> None:
    entries = [read_list_entry(path) for path, _ in check_files()]
    lines = format_matches(entries).splitlines()
    assert [line.split()[0] for line in lines] == [entry.name for entry in entries]
    assert len(playbook_list(load_playbooks()).splitlines()) == len(load_playbooks())
