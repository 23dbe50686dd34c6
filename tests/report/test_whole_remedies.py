"""A reader types what a remedy prints: each has a whole command, or says what hands do and whom they belong to.

A command is whole where nothing is left open in it but what is the reader's own: how a container or a loader was
started until now, the launch line, the folder of the logs.
"""

from __future__ import annotations

import re

from doctor.diagnose.render.log_values import fill_advice as fill_log_advice
from doctor.diagnose.signature import load_signatures
from doctor.engine.catalog import load_checks
from doctor.report.explain.examples import read_examples
from doctor.report.layout.advice import COMMAND, fill_advice, hands_notes, mark_personal_words, marks

KNOWN = {
    "HOST": "node001",
    "NODE": "node001",
    "HOSTS": "node[001-004]",
    "N": "3",
    "PORT": "29500",
    "PID": "4242",
    "JOB": "77",
    "FILE": "/data/x.json",
    "FOLDER": "/data",
    "LOG": "rank1.log",
    "POD": "train-1",
    "MB": "200",
    "PACKAGE": "datasets",
    "VARIABLE": "HCCL_BUFFSIZE",
    "CHECK": "npu-busy",
    "IP": "10.0.0.1",
}
"""What logs show of the placeholders of signatures."""
OF_THE_READER = frozenset(
    f"<{words}>"
    for words in (
        *("as before", "launch line", "folder of all logs", "command", "job", "program", "checkpoint", "data", "model"),
        *("environment", "folder of the environment", "class"),
    )
)
"""Marks for what nobody else knows, and he has at hand: it stands in his launch line."""
STARTS_AGAIN = re.compile(r"\bstart (?:it|the job|the processes) again|start the ranks together|try again where")
"""Nothing is to be corrected: he types again what he typed."""
IN_THE_PROGRAM = re.compile(r"\btraceback|the (?:exception|message|line) (?:names|says|that)|cut or correct the data")
"""A diagnosis prints the line of the program, and the command that shows it: `program_line`."""


def is_whole(text: str) -> bool:
    """Whether a command of the text can be typed as it stands."""
    commands = COMMAND.findall(text)
    return any(set(marks(command)) <= OF_THE_READER for command in commands if len(command) > 4)


def test_each_signature_that_is_a_fault_has_a_whole_command() -> None:
    lacking = {}
    for signature in load_signatures().values():
        if signature.role not in ("root", "ambiguous", "link"):
            continue
        text = " ".join(fill_log_advice(item, KNOWN) for item in signature.fix)
        in_program = signature.action == "fix-program" and IN_THE_PROGRAM.search(text)
        known = is_whole(text) or STARTS_AGAIN.search(text) or in_program or hands_notes(text, ["node001"])
        if not known:
            lacking[signature.id] = text
    assert lacking == {}


OF_THE_RUN = {
    "host": "node001",
    "all_hosts": "node[001-004]",
    "rank_table": "/job/rank_table.json",
    "version": "550.54.15",
}
"""Values of the report, and the other hosts' version, which the example of a check may lack."""
EDITS = (
    "{edit}",
    "{where}",
    "{remedy}",
    "{look}",
    "{repair}",
    "{option}",
    "{recover}",
    "{others}",
    "{sides}",
    "{command}",
)
"""Values in which the check itself writes the step, with the command or file and line: its own test has them."""


def test_each_check_has_a_whole_command() -> None:
    rows = read_examples()
    lacking = {}
    for check in load_checks():
        page = check.section("What to do")
        values = rows[check.name].values
        text = fill_advice(mark_personal_words(page), {**values, **OF_THE_RUN})
        if not (is_whole(text) or any(edit in page for edit in EDITS) or hands_notes(text, ["node001"])):
            lacking[check.name] = text
    assert lacking == {}
