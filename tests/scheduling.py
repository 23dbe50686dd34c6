"""Which tests run on one of the `tests.workers`, and in which order: longest first, so that no worker ends late.

Tests of one group run on one worker, which makes the hosts and fixtures of a file once. A file is a group, unless
`LONG` divides it.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple


class Division(NamedTuple):
    """How a long file is divided into groups."""

    seconds: float
    """Of its longest group on a worker; the order of the groups follows from it."""
    by: str = "$^"
    """A regular expression: tests whose names have the same match (a class, a kind of host) stay together."""
    parts: int = 1
    """The groups of the tests without a match, and of those with the match ``divided``."""
    divided: str = ""


FLEET = r"\[(cpu|a1|a2|a3|a5)\b"
LONG = {
    "tests/test_faults.py": Division(100, FLEET, parts=2, divided="a2"),
    "tests/smoke/test_rehearsal.py": Division(90),
    "tests/watch/test_effort.py": Division(80),
    "tests/smoke/test_hosts.py": Division(70, parts=2),
    "tests/watch/test_own_past.py": Division(70),
    "tests/smoke/test_worker_pairs.py": Division(60),
    "tests/watch/test_programs.py": Division(50),
    "tests/smoke/test_outside.py": Division(40),
    "tests/transport/test_openssh_hosts.py": Division(35),
    "tests/watch/test_rehearsal.py": Division(35),
    "tests/watch/test_unnamed_jobs.py": Division(30),
    "tests/smoke/test_launchers.py": Division(60, r"^Test(Slurm|LaunchedWrongly)"),
    "tests/smoke/test_fault_matrix.py": Division(60, parts=2),
    "tests/playbooks/test_remedies.py": Division(40, FLEET),
    "tests/fix/test_fix_hosts.py": Division(60),
    "tests/fix/test_undo_hosts.py": Division(50),
    "tests/preflight/test_launched_preflight.py": Division(50),
    "tests/preflight/test_preflight.py": Division(50),
    "tests/smoke/test_launched_hosts.py": Division(50),
    "tests/smoke/test_cli_smoke.py": Division(50),
    "tests/preflight/test_jobs.py": Division(50),
    "tests/smoke/test_launch.py": Division(50),
    "tests/diagnose/test_slurm_job.py": Division(60),
    "tests/transport/test_own_host.py": Division(40),
    "tests/watch/test_attach_slurm.py": Division(40),
    "tests/checks/test_firewall_remedy.py": Division(30),
    "tests/diagnose/test_excerpts.py": Division(30),
    "tests/diagnose/test_logs_of_hosts.py": Division(30),
    "tests/smoke/test_worker_training.py": Division(30),
    "tests/smoke/test_mutants.py": Division(30),
    "tests/transport/test_carried.py": Division(30),
    "tests/watch/test_output_losses.py": Division(30, parts=2),
    "tests/report/test_text.py": Division(25),
    "tests/report/test_fold.py": Division(25),
    "tests/smoke/test_worker_native.py": Division(25),
    "tests/smoke/test_slow_and_wrong.py": Division(20),
    "tests/smoke/test_scale.py": Division(20),
    "tests/transport/test_talk.py": Division(20),
    "tests/smoke/test_detect.py": Division(20),
}
"""The files that take more than 20 s."""
TOGETHER = {
    "tests/test_translations.py": "tests/test_readme.py",
    "tests/test_texts.py": "tests/test_readme.py",
}
"""Files whose tests begin with the same long work, here with reading all texts of the program."""


def group_of(nodeid: str) -> str:
    """The group of a test: its file, a part of it, or the file that it runs with."""
    file, _, test = nodeid.partition("::")
    file = TOGETHER.get(file, file)
    division = LONG.get(file)
    if not division:
        return file
    match = re.search(division.by, test)
    key = match[0].strip("[") if match else ""
    if key == division.divided and division.parts > 1:
        key += str(zlib.crc32(test.encode()) % division.parts)
    return f"{file} {key}".strip()


def seconds_of(nodeid: str) -> float:
    """About how long the test's group takes; 0 for a short one."""
    division = LONG.get(nodeid.partition("::")[0])
    return division.seconds if division else 0.0
