"""The launches of a job script, with those of the shell scripts that it runs. Runs nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import msgspec

from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_script import JobScript, NotAJobScript, read_job_script, scripts_of
from doctor.job.launch_line import LaunchLine
from doctor.job.launch_line.launcher_calls import environ_of_tasks
from doctor.job.launch_line.read import SHELL_SCRIPTS
from doctor.job.shell.variables import is_assigned
from doctor.job.shell.word import Word
from doctor.job.training.assemble import LaunchText
from doctor.job.training.host_slots import ReadFile
from doctor.job.training.model import Setting

_DEEPEST = 2
"""Scripts that start each other."""


class NoTrainingError(InputError):
    """A file that is well formed, and that no rule is about."""


_BY_RAY = ("verl.", "openrlhf.", "vllm.", "sglang.")
"""Programs that need all their devices in one cluster of Ray, or on one host."""


def _with_slots(entry: LaunchText, script: JobScript) -> LaunchText:
    """With the ranks that mpirun may start on all hosts of a manifest, or in a scheduler's job, whose tasks Open MPI
    counts; or with the devices of all hosts, as those of the job or of the lines that start Ray there.
    """
    resources, services = script.resources, script.services
    hosts = (resources.nodes if resources.nodes == resources.max_nodes else None) or 0
    tasks, devices = resources.ranks or hosts * (resources.ranks_per_node or 0), hosts * (resources.gpus_per_node or 0)
    slots, where = Setting("slots", resources.slots), ""
    if not resources.slots and entry.line.program.startswith(_BY_RAY):
        joins = any(
            "address" in line.launchers[-1].options for line in services
        )  # else others may, by their own scripts
        each = [_devices_of_service(line) for line in services if joins]
        where = entry.place_of_gpus if devices else f"{entry.path}:{services[-1].line}" if services else ""
        slots = Setting("devices", devices or (sum(filter(None, each)) if None not in each else 0), where)
    elif not resources.slots:
        slots = Setting("tasks", tasks)
    return entry._replace(own_slots=slots) if slots.value else entry


def _devices_of_service(line: LaunchLine) -> int | None:
    """The devices that ``ray start --num-gpus`` gives; None where they, or the number of such hosts, are not known."""
    *outer, call = line.launchers
    number = call.option("num-gpus")
    is_one = not outer or [(other.launcher, len(other.hosts), other.nodes) for other in outer] in _ONE_HOST
    return int(number) if number.isdecimal() and len(number) < 5 and is_one and not line.conditional else None


_ONE_HOST = ([("ssh", 1, None)], [("srun", 0, 1)], [("srun", 1, 1)])


def launches_of_script(text: str, name: str, environ: Mapping[str, str], read_file: ReadFile) -> list[LaunchText]:
    """The launches of a job script, and of the scripts that it runs.

    Raises: NotAJobScript, NoTrainingError, and InputError for text that no shell accepts.
    """
    scripts = scripts_of(text, name, environ, read_file)
    lines: list[LaunchText] = []
    for script in scripts:
        if script.refused:
            refusal = filled("{0}: no shell reads this: {1}", name, script.refusal)
            ends = filled("{0}; in its folder `sed -i 's/\\r$//' {1}` mends it", refusal, shlex.quote(Path(name).name))
            raise InputError(ends if "\r" in text else refusal)
        resources = script.resources
        entries = [
            _with_slots(LaunchText(line, name, text, resources.time_limit_s, resources.gpus_per_node), script)
            for line in script.launch_lines
        ]
        lines += [follower for entry in entries for follower in follow(entry, environ, read_file)]
        lines += _of_other_scripts(script, name, environ, read_file)
        for part in script.not_understood:
            reason = {"program": filled("{0}: {1}", part.text, part.reason)}
            lines.append(LaunchText(LaunchLine(text=part.text, line=part.line, unresolved=reason), name, text))
    if not lines and not any(script.services for script in scripts):
        raise NoTrainingError(
            filled("{0}: starts no training; expected a line with torchrun, msrun, srun, ... or python", name)
        )
    return lines


def follow(entry: LaunchText, environ: Mapping[str, str], read_file: ReadFile, depth: int = 0) -> list[LaunchText]:
    """The launches of the shell script that a launch line runs; the line itself where it runs none."""
    line = entry.line
    if not line.program.endswith(SHELL_SCRIPTS):
        return [entry]
    text = entry.reading(read_file)(line.program) if depth < _DEEPEST else None
    if text is None:
        return [_opaque(entry, "the shell script {0} cannot be read here")]
    arguments = tuple(
        Word(argument, argument if position in line.unresolved_arguments else "", position in line.unresolved_arguments)
        for position, argument in enumerate(line.arguments)
    )
    try:
        inherited = environ_of_tasks({**environ, **line.environ}, line.launchers)
        script = read_job_script(text, inherited, arguments, read_file)
    except NotAJobScript:
        return [_opaque(entry, "{0} is no shell script")]
    lines = [entry._replace(line=_within(line, inner), path=line.program, text=text) for inner in script.launch_lines]
    if line.program.removeprefix("./") in line.written:  # which is made anew: the script has the mistake
        lines = [entry._replace(line=msgspec.structs.replace(inner.line, line=line.line)) for inner in lines]
    if script.not_understood or not lines:
        lines.append(_opaque(entry, "what the shell script {0} starts is not read"))
    return [follower for inner in lines for follower in follow(inner, environ, read_file, depth + 1)]


def _opaque(entry: LaunchText, why: str) -> LaunchText:
    unresolved = {**entry.line.unresolved, "program": filled(why, printable(entry.line.program, 120))}
    line = msgspec.structs.replace(entry.line, program="", arguments=(), unresolved=unresolved)
    return entry._replace(line=line)


def _within(outer: LaunchLine, inner: LaunchLine) -> LaunchLine:
    """The line of a script as the outer line runs it."""
    passed = [outer.arguments[position] for position in outer.unresolved_arguments]
    values = [text for call in inner.launchers for texts in call.options.values() for text in texts if "$" in text]
    texts = [*inner.unresolved.values(), *values]
    computed = [text for text in texts if not any(text in argument for argument in passed)]
    exported = {name.removesuffix("=") for name in outer.unresolved if name.endswith("=")}

    def as_set(text: str) -> str:
        is_set = exported.intersection(re.findall(r"\$\{?(\w+)", text, re.ASCII)) and not is_assigned(text)
        return filled("{0}, set in the script", text) if is_set else text

    calls = (
        msgspec.structs.replace(call, unresolved={name: as_set(text) for name, text in call.unresolved.items()})
        for call in inner.launchers
    )
    return msgspec.structs.replace(
        inner,
        launchers=(*outer.launchers, *calls),
        environ={**outer.environ, **inner.environ},
        conditional=outer.conditional or inner.conditional,
        computed_on_hosts=inner.computed_on_hosts.union(computed if outer.launchers else ()),
    )


def _of_other_scripts(
    script: JobScript, name: str, environ: Mapping[str, str], read_file: ReadFile
) -> list[LaunchText]:
    """The launches of other scripts that a script runs on its own host, where they are here."""
    launches = [follower for line in script.scripts for follower in follow(LaunchText(line, name), environ, read_file)]
    return [entry for entry in launches if entry.line.program]
