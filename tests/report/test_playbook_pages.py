from __future__ import annotations

import json

from doctor.remedy.playbook import Playbook, PlaybookStep
from doctor.report.explain.checks import check_page
from doctor.report.explain.playbooks import examples, playbook_list, playbook_list_json, playbook_page, remedy_lines
from tests.report import reports

QUEUES = Playbook(
    "raise-listen-queues",
    "playbooks/raise-listen-queues.toml",
    "Longer listen queues",
    ("listen-queue-short", "syn-queue-short"),
    "host admin",
    "low",
    root=True,
    note="New sockets\nonly.\n\nA second paragraph.",
    steps=(
        PlaybookStep(
            1,
            "Set the queue to {expected} for {user}",
            only="command -v sysctl",
            before="sysctl -n net.core.somaxconn",
            run='sysctl -w net.core.somaxconn="$expected"\necho "$user"',
            undo='sysctl -w net.core.somaxconn="$before"',
        ),
        PlaybookStep(2, "and at every boot", file="/etc/x.conf", line="a = {npu}", replaces="^a =", mode="0644"),
        PlaybookStep(3, "once", file="/etc/x.conf", line="a"),
        PlaybookStep(4, "gone", file="/etc/x.conf", remove="^b"),
        PlaybookStep(5, "all", file="/etc/y.conf", text="a\nb\n"),
        PlaybookStep(6, "Start the programs on {host} again"),
    ),
)
FIBRE = Playbook(
    "clean-optics",
    "c.toml",
    "Clean\x1b[31m optics",
    ("link-odd",),
    "vendor",
    "none",
    steps=(PlaybookStep(1, "Clean it"),),
)
END = Playbook(
    "end",
    "e.toml",
    "Ended",
    ("link-odd",),
    "job owner",
    "interrupts-jobs",
    explicit=True,
    steps=(PlaybookStep(1, "x", run="true", changes=False),),
)

PAGE = """raise-listen-queues: Longer listen queues
host admin; as root; risk: low; a plan says whether it survives a reboot

Treats
  listen-queue-short
  syn-queue-short

Notes
  New sockets only.
  A second paragraph.

Steps (with example values; a plan fills in the values of the findings)
  1. Set the queue to <expected> for alice
     only where: command -v sysctl
     before:     sysctl -n net.core.somaxconn
     run:        sysctl -w net.core.somaxconn="$expected"
                 echo "$user"
     undo:       sysctl -w net.core.somaxconn="$before"
  2. and at every boot
     file:       /etc/x.conf (mode 0644 if it is new) has this line, in place of what matches ^a =:
                 a = 0
  3. once
     file:       /etc/x.conf has this line, at the end, unless it exists:
                 a
  4. gone
     file:       /etc/x.conf without the lines that match ^b
  5. all
     file:       /etc/y.conf has this content:
                 a
                 b
  6. Start the programs on node001 again

Playbook file: playbooks/raise-listen-queues.toml
"""


def test_a_page_shows_every_command_with_example_values() -> None:
    assert playbook_page(QUEUES) == PAGE


def test_what_is_left_to_hands_and_what_must_be_named_is_said() -> None:
    assert "vendor; manual steps; risk: none\n" in playbook_page(FIBRE)
    assert "\nSteps\n  1. Clean it\n" in playbook_page(FIBRE)
    output = "job owner; as any user; risk: interrupts-jobs; lost after a reboot; only when named\n"
    assert output in playbook_page(END)


def test_what_a_file_holds_does_no_harm_to_a_terminal() -> None:
    assert playbook_page(FIBRE).startswith("clean-optics: Clean optics\n")
    assert "\x1b" not in playbook_page(FIBRE)


def test_the_page_of_a_check_shows_what_treats_it() -> None:
    check = reports.CHECKS["cann-differs"]
    assert "\nFixes\n" not in check_page(check)
    output = check_page(check, [FIBRE, QUEUES])
    assert output.index("\n\nFixes\n  clean-optics: Clean optics\n") < output.index("\nWhat runs on the hosts\n")
    assert "\n  raise-listen-queues: Longer listen queues\n    host admin; as root;" in output
    assert "\n    its steps: doctor explain raise-listen-queues\n" in output and "sysctl -w" not in output
    assert list(remedy_lines([])) == []


def test_every_placeholder_has_an_example() -> None:
    assert examples(QUEUES.steps[0]) == {"expected": "<expected>", "user": "alice"}


def test_an_example_that_does_not_fit_leaves_the_step_as_it_is_written() -> None:
    step = PlaybookStep(1, "x", file="/etc/{path}", text="")
    assert "file:       /etc/{path} has this content" in playbook_page(
        Playbook("a", "", "A", ("b",), "network", "low", steps=(step,))
    )


def test_the_list() -> None:
    assert playbook_list([QUEUES, FIBRE, END]) == (
        "clean-optics         by hand               Clean optics\n"
        "end                  risk interrupts-jobs  Ended\n"
        "raise-listen-queues  risk low              Longer listen queues\n"
    )
    assert playbook_list([]) == ""


def test_the_list_as_json() -> None:
    document = json.loads(playbook_list_json([QUEUES]))
    assert document == {
        "schema": "doctor.playbooks/1",
        "playbooks": [
            {
                "name": "raise-listen-queues",
                "title": "Longer listen queues",
                "treats": ["listen-queue-short", "syn-queue-short"],
                "who": "host admin",
                "risk": "low",
                "root": True,
                "persistent": True,
                "explicit": False,
                "hands": False,
                "steps": 6,
            }
        ],
    }
