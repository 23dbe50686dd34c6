"""What srun starts as its tasks: the host of the first one, and the programs of ``--multi-prog``. Runs nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from doctor.engine.bounded_read import read_bounded_text
from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.hosts.nodeset import SLURM_COMPONENTS, InventoryError, expand_nodeset
from doctor.job.launch_line import LaunchLine
from doctor.job.launch_line.model import LaunchCall

MOST_OF_FILE, _MOST_TASKS = 1 << 18, 65_536
_ORDER_OPTIONS = """
nodelist nodefile relative exclude distribution het-group nodes constraint multi-prog
"""
_ORDERS = frozenset(_ORDER_OPTIONS.split())
"""Options of srun that may give the first task another host than the first of the allocation."""
_ORDER_VARIABLES = ("SLURM_DISTRIBUTION", "SLURM_HOSTFILE", *SLURM_COMPONENTS, "SLURM_EXCLUDE", "SLURM_STEP_ID")


def first_task_host(line: LaunchLine, environ: Mapping[str, str]) -> str:
    """The host on which srun starts task 0, where tasks are the ranks: the first of the allocation; empty: not known.

    Source: srun(1), "--distribution": block and cyclic both begin with the first host.
    """
    call = line.innermost
    if call is None or call.launcher != "srun" or len(line.launchers) > 1 or "options" in call.unresolved:
        return ""
    if _ORDERS & {*call.options, *call.unresolved} or any(environ.get(name) for name in _ORDER_VARIABLES):
        return ""
    try:
        hosts = expand_nodeset(environ.get("SLURM_JOB_NODELIST", ""), "SLURM_JOB_NODELIST")
    except InventoryError:
        return ""
    return hosts[0] if len(hosts) > 1 else ""


def program_file(call: LaunchCall, rest: Sequence[str]) -> str:
    """The file of ``--multi-prog``, which stands in the place of the program; empty without the option."""
    return rest[0] if "multi-prog" in call.options and rest else ""


def programs_of_tasks(path: str, call: LaunchCall, tasks: int | None) -> Iterator[list[str] | OptionProblem]:
    """The words of each program of the file; and what srun refuses of it.

    Source: srun(1), "MULTIPLE PROGRAM CONFIGURATION".
    """
    try:
        text = read_bounded_text(path, MOST_OF_FILE)
    except (OSError, ValueError):
        yield OptionProblem(call.command, "--multi-prog", printable(path, 200), "a file that can be read")
        return
    named: set[int] = set()
    is_whole = False
    for entry in text.replace("\\\n", " ").splitlines():
        ranks, _, command = entry.strip().partition(" ")
        if not ranks or ranks.startswith("#"):
            continue
        is_whole = is_whole or ranks == "*"
        for first, last in re.findall(r"([0-9]{1,6})(?:-([0-9]{1,6}))?(?:,|$)", ranks):
            named |= set(range(int(first), min(int(last or first), _MOST_TASKS) + 1))
        try:
            program = shlex.split(command)
        except ValueError:
            program = []
        if program:
            yield program
    lacking = [task for task in range(min(tasks or 0, _MOST_TASKS)) if task not in named and not is_whole]
    if lacking:
        expected = filled("a line for each of the {0} tasks: task {1} has none", tasks, lacking[0])
        yield OptionProblem(call.command, "--multi-prog", printable(path, 200), expected)
