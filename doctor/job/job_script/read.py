"""Reads a job script: directives, exports, launch lines. Pure; nothing of the script is run, and no file is opened."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

import msgspec

from doctor.engine.addresses import means_own_host
from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_script.directives import (
    Directive,
    Resources,
    late_directives,
    read_directives,
    refused_steps,
    resources,
    variables_of,
)
from doctor.job.job_script.script_needs import ScriptText
from doctor.job.job_script.set_up import BLOCK, without_set_up
from doctor.job.job_size import ONE_ON_EACH_HOST, STARTS_TASKS, VARIABLES
from doctor.job.launch_line.call_parts import HOSTS_OF_SCHEDULER, fills_in_order
from doctor.job.launch_line.commands import launcher_among, wrapper_rows
from doctor.job.launch_line.model import NOT_BASH, LaunchLine, NotALaunchLine
from doctor.job.launch_line.read import SHELL_SCRIPTS, SHELLS, read_launch_line, starts_ranks
from doctor.job.shell.name_mistakes import BLANKS, INPUT, OF_SCRIPT
from doctor.job.shell.plain_sh import unknown_to_sh
from doctor.job.shell.script_evaluation import evaluate
from doctor.job.shell.tokens import MAX_TEXT
from doctor.job.shell.word import ShellCommand, ShellText, Step, UnreadText, Word, unread

_MOST_LINES, _MOST_FILES = 256, 16
_REACHING = """
srun salloc sbatch mpirun mpiexec mpiexec.hydra orterun prun prterun yhrun jsrun aprun ibrun blaunch pbsdsh qsub bsub
brun ssh rsh pdsh clush dsh parallel-ssh pssh parallel xargs ansible ansible-playbook ray kubectl
"""
_STARTS_RANKS = (*ONE_ON_EACH_HOST, "deepspeed")
_REACHES_HOSTS = frozenset(_REACHING.split())
"""Commands that start others on the hosts of a job, or may do so."""


class NotAJobScript(ValueError):
    """Text that is no shell script: what is wrong."""


class JobScript(msgspec.Struct, frozen=True, kw_only=True):
    """A job script that was read."""

    directives: tuple[Directive, ...] = ()
    resources: Resources = Resources()
    launch_lines: tuple[LaunchLine, ...] = ()
    """Commands with a launcher, or Python programs, in the order of the script."""
    services: tuple[LaunchLine, ...] = ()
    """Commands that start what ranks of the job meet in: ``ray start``."""
    unread: tuple[UnreadText, ...] = ()
    """What was not followed: sourced files, ``eval``, text that no shell accepts."""
    sourced: tuple[str, ...] = ()
    """Paths of files that the script sources, and that were followed."""
    refused: bool = False
    """No shell accepts the script; the only entry of ``unread`` says where and why."""
    not_understood: tuple[UnreadText, ...] = ()
    """Commands that start ranks by a launcher, in a way that is not read."""
    scripts: tuple[LaunchLine, ...] = ()
    """Commands that run a shell script, which may start ranks."""

    @property
    def refusal(self) -> str:
        """Where and why no shell accepts the script; empty where one does."""
        if not self.refused:
            return ""
        [part] = self.unread
        return filled("line {0}: {1}: {2}", part.line, part.reason, part.text)

    @property
    def job_line(self) -> LaunchLine | None:
        """The line that starts the job: the last with a launcher, one that surely runs before one that may run.

        Without a launcher the last Python program. None without one.
        """
        return next(iter(self.job_lines), None)

    @property
    def job_lines(self) -> list[LaunchLine]:
        """`job_line`, and then the others with a launcher, each by the rules of a launch alone."""
        candidates = [line for line in self.launch_lines if line.launchers] or list(self.launch_lines)
        if not candidates:
            return list(self.services)
        job_line = next(reversed([line for line in candidates if not line.conditional] or candidates))
        others = [*candidates, *self.services]
        return [job_line, *(line for line in others if line is not job_line)]


def read_job_script(
    text: str,
    environ: Mapping[str, str] | None = None,
    arguments: tuple[Word, ...] | None = None,
    read_file: Callable[[str], str | None] = lambda _: None,
    requested: Resources | None = None,
) -> JobScript:
    r"""The script's content. ``environ``: what it inherits. ``arguments``, ``read_file``: as of `evaluate`.

    ``requested``: what else than directives says for it.

    Raises: NotAJobScript.

    >>> script = read_job_script("#!/bin/bash\n#SBATCH -N 4\nexport A=1\nsrun -N $SLURM_NNODES python3 train.py\n")
    >>> script.resources.nodes, script.job_line.world_size, script.job_line.environ
    (4, 4, {'A': '1'})
    """
    directives = tuple(read_directives(_script_lines(text)))
    requested = requested or resources(directives)
    if others := (*late_directives(_script_lines(text), requested.scheduler), *refused_steps(text)):
        requested = msgspec.structs.replace(requested, problems=(*requested.problems, *others))
    inherited = {**variables_of(requested), **(environ or {})}
    shell, unknown = evaluate(text, inherited, arguments, read_file=read_file), unknown_to_sh(text)
    listed, strange, scripts, skipped = _of_commands(shell, inherited, text)
    return JobScript(
        directives=directives,
        resources=requested,
        launch_lines=tuple(
            _for_sh(line, unknown)
            for line in _completed(listed, shell, requested, not (scripts or strange) and _is_alone(shell, listed))
        ),
        services=tuple(_of_service(line, requested, text, listed) for line in listed if _is_service(line)),
        unread=tuple(skipped),
        sourced=shell.sourced,
        refused=shell.refused,
        not_understood=tuple(strange[:_MOST_LINES]),
        scripts=tuple(scripts),
    )


def _of_commands(
    shell: ShellText, inherited: Mapping[str, str], text: str
) -> tuple[list[LaunchLine], list[UnreadText], list[LaunchLine], list[UnreadText]]:
    """The launch lines, what starts ranks and is not read, the lines that run scripts, and what was not followed."""
    listed: list[LaunchLine] = []
    strange: list[UnreadText] = []
    scripts: list[LaunchLine] = []
    skipped, script = list(shell.unread), ScriptText(shell, text)
    for place, command in enumerate(shell.commands):
        if not starts_ranks(command.argv):
            if _runs_shell_script(command.argv) and len(scripts) < _MOST_LINES:
                scripts += _started_in(_launch_line(command, inherited, any_program=True), script, place)
            elif launcher := launcher_among(_resolved(command)):
                strange.append(_strange(command, launcher))
            continue
        if len(listed) >= _MOST_LINES:
            skipped.append(unread("...", filled("more than {0} launch lines", _MOST_LINES), command.line))
            break
        is_behind = script.end is not None and script.end.place <= place and not command.conditional
        if is_behind and listed:
            continue  # left there, and not run
        recognized, not_understood = _recognized(command, inherited)
        started = _started_in(recognized, script, place)
        listed += [_behind_end(line, script.end) for line in started] if script.end and is_behind else started
        strange += not_understood
    return listed, strange, scripts, skipped


def _started_in(lines: Sequence[LaunchLine], script: ScriptText, place: int) -> list[LaunchLine]:
    """The lines of one command, with the folder in which the script runs it."""
    folder = script.folder_at(place)
    return [
        msgspec.structs.replace(
            line,
            start_folder=folder,
            makes_folder=script.makes_folder(folder, place),
            makes_files=script.makes_files(place) or any(map(script.is_written, (line.program, *_files(line)))),
            ulimits=script.ulimits_at(place),
            is_first=script.is_first(place),
            operator=script.operator_behind(place),
            is_left=script.is_left(place),
            waits=script.waits_before(line.line),
            problems=(
                *(problem for problem in line.problems if problem.option != "--nv" or not script.is_for_amd),
                *without_set_up(line, place, script.shell, script.text, folder),
            ),
        )
        for line in lines
    ]


def _files(line: LaunchLine) -> list[str]:
    """The first configurations among the arguments."""
    names = (argument.rpartition("=")[2] for argument in line.arguments)
    return [name for name in names if name.endswith((".json", ".yaml", ".yml", ".toml"))][:_MOST_FILES]


def _behind_end(line: LaunchLine, end: Step) -> LaunchLine:
    name, after = end.argv[0].text, filled("it behind line {0}", line.line)
    problem = OptionProblem("bash", name, filled("in line {0}", end.line), after)
    return msgspec.structs.replace(line, problems=(*line.problems, problem))


def _is_service(line: LaunchLine) -> bool:
    return line.innermost is not None and line.innermost.launcher == "ray"


def _of_service(line: LaunchLine, requested: Resources, text: str, lines: Sequence[LaunchLine]) -> LaunchLine:
    """A worker of Ray on another host than its head is to find it at an address that leads there, and at its port.

    Where the address is a variable's default, as in ``${MASTER_ADDR:-127.0.0.1}``, the job may set another one.
    """
    call = line.launchers[-1]
    in_step = [outer.launcher for outer in line.launchers[:-1]] == ["srun"] and "options" not in call.unresolved
    others = re.search(r"[;&|]|\b(?:sleep|wait|tail)\b", re.sub(r"\$\([^()]{0,200}\)", "", line.text))
    if in_step and "block" not in call.options and not others:
        reason = "behind `ray start`, as Slurm ends what a step leaves behind"
        line = msgspec.structs.replace(
            line, problems=(*line.problems, OptionProblem(call.command, BLOCK, "--block", reason, "wanted"))
        )
    is_elsewhere = line.conditional or len(line.launchers) > 1 or (requested.nodes or 0) > 1
    address = call.rdzv_endpoint.rpartition(":")[0]
    is_written = f"--address {call.rdzv_endpoint}" in text.replace("=", " ").replace('"', "").replace("'", "")
    heads = [other.launchers[-1] for other in lines if _is_service(other) and "head" in other.launchers[-1].options]
    ports = {call.option("port") or "6379" for call in heads}
    port = re.search(r":([1-9][0-9]{1,4})$", call.option("address"), re.ASCII)
    if port and all(map(str.isdecimal, ports)) and port[1] not in (ports or {port[1]}):
        expected = filled("port {0}, at which `ray start --head` listens", min(ports))
        problem = OptionProblem(call.command, "--address", printable(call.option("address"), 80), expected)
        return msgspec.structs.replace(line, problems=(*line.problems, problem, *requested.problems))
    if "head" in call.options or not (is_elsewhere and is_written and means_own_host(address)):
        return msgspec.structs.replace(line, problems=(*line.problems, *requested.problems))
    expected = "the address of the host of `ray start --head`, such as 10.0.0.1:6379"
    problem = OptionProblem(call.command, "--address", printable(call.rdzv_endpoint, 80), expected)
    return msgspec.structs.replace(line, problems=(*line.problems, problem, *requested.problems))


def _recognized(command: ShellCommand, inherited: Mapping[str, str]) -> tuple[list[LaunchLine], list[UnreadText]]:
    """The launch lines of a command that starts ranks, and what of it is not understood."""
    recognized = _launch_line(command, inherited)
    launcher = launcher_among(_of_program(recognized[0]) if recognized else _resolved(command))
    if not launcher:
        return recognized, []
    read = [] if recognized and recognized[0].is_module else recognized
    return read or _behind_unread(command, inherited), [_strange(command, launcher)]


def _behind_unread(command: ShellCommand, inherited: Mapping[str, str]) -> list[LaunchLine]:
    """The launch line that a launcher which is not read starts, as of ``jsrun -n 4 torchrun ...``."""
    names = [word.text.rpartition("/")[2] for word in command.argv[:64]]
    starts = (
        at for at in range(1, len(names)) if names[at] in _STARTS_RANKS and launcher_among(names[at:]) == names[at]
    )
    at = next(starts, 0)
    inner = _launch_line(msgspec.structs.replace(command, argv=command.argv[at:]), inherited) if at else []
    return [msgspec.structs.replace(line, conditional=True) for line in inner]


def _is_alone(shell: ShellText, lines: Sequence[LaunchLine]) -> bool:
    """The script starts nothing on other hosts, except by its only line; False where that is not sure."""
    if any(part.text.startswith("eval") for part in shell.unread):
        return False
    if any(command.argv[0].unresolved for command in shell.commands if command.argv):
        return False
    reaching = [{word.text.rpartition("/")[2] for word in command.argv[:64]} for command in shell.commands]
    return sum(not _REACHES_HOSTS.isdisjoint(names) for names in reaching) <= (
        [len(line.launchers) > 1 for line in lines] == [True]
    )


def _completed(
    lines: Sequence[LaunchLine], shell: ShellText, requested: Resources, is_alone: bool
) -> tuple[LaunchLine, ...]:
    """The lines, each with what bash and the scheduler refuse of the script, and whether nothing runs elsewhere."""
    mistakes = (*map(_of_shell, shell.mistakes), *requested.problems)
    own = [
        (line, (*line.problems, *_beyond(line, requested), *_not_there(line, shell.assigned), *_of(line, mistakes)))
        for line in lines
        if not _is_service(line)
    ]
    return tuple(
        msgspec.structs.replace(_in_allocation(line, requested), problems=problems, is_alone=is_alone)
        for line, problems in own
    )


def _in_allocation(line: LaunchLine, requested: Resources) -> LaunchLine:
    """With the hosts that mpirun takes of its job: it fills the slots of one host after the other (mpirun(1))."""
    call, hosts = line.innermost, requested.nodes
    slots = (call and call.ranks_per_node) or requested.ranks_per_node
    if not (call and hosts and slots) or hosts != requested.max_nodes or len(line.launchers) > 1:
        return line
    file = call.hostfile or call.unresolved.get("hostfile", "")
    is_elsewhere = call.nodes or "host" in call.options or (file and not HOSTS_OF_SCHEDULER.fullmatch(file))
    is_open = "options" in call.unresolved or ("np" in call.options and not call.ranks)
    if call.launcher != "openmpi" or is_elsewhere or is_open or not fills_in_order(call):
        return line
    ranks = call.ranks or requested.ranks or hosts * slots
    used = min(hosts, -(-ranks // slots))
    call = msgspec.structs.replace(call, nodes=used, max_nodes=used, ranks=ranks)
    return msgspec.structs.replace(line, launchers=(call,))


def _of_shell(mistake: tuple[str, str, str]) -> OptionProblem:
    is_lacking = mistake[0] in (OF_SCRIPT, INPUT, BLANKS)
    return OptionProblem(
        "bash", *mistake, "wanted" if is_lacking else "misspelt" if mistake[0][0] == "$" else "refused"
    )


def _of(line: LaunchLine, mistakes: Sequence[OptionProblem]) -> Iterator[OptionProblem]:
    """Without those of variables that the launcher of the line gives its ranks itself."""
    is_set = line.innermost is not None and line.innermost.launcher not in STARTS_TASKS
    of_launcher = {*VARIABLES, "MASTER_ADDR", "MASTER_PORT"} if is_set else set()
    return (mistake for mistake in mistakes if mistake.option != OF_SCRIPT or mistake.value not in of_launcher)


def _not_there(line: LaunchLine, assigned: Set[str]) -> Iterator[OptionProblem]:
    """Variables of the script that another shell reads, and does not have."""
    elsewhere = (source for key, source in line.unresolved.items() if key != f"{source.strip('${}')}=")
    for source in dict.fromkeys(elsewhere) if line.launchers else ():
        name = source.strip("${}")
        if source in (f"${name}", f"${{{name}}}") and name in assigned - line.environ.keys() - {*line.passed}:
            yield OptionProblem(
                line.launchers[-1].command, OF_SCRIPT, name, "as the shell that reads it has none", "wanted"
            )


def _for_sh(line: LaunchLine, unknown: Sequence[tuple[int, str]]) -> LaunchLine:
    """With what stands before the line, and the sh of some systems does not know."""
    if not unknown or unknown[0][0] > line.line:
        return line
    why = filled("dash, the sh of Debian and Ubuntu, does not know `{1}` in line {0}", *unknown[0])
    problem = OptionProblem("sh", NOT_BASH, "#!/bin/bash", why, "wanted")
    return msgspec.structs.replace(line, problems=(*line.problems, problem))


_OF_ANOTHER_JOB = {"jobid", "het-group", "partition", "account", "reservation", "qos"}


def _beyond(line: LaunchLine, requested: Resources) -> Iterator[OptionProblem]:
    """A step on more hosts than its job has. Of more hosts than tasks srun takes fewer (both measured with 22.05)."""
    call, most = next(iter(line.launchers), None), requested.max_nodes if requested.scheduler == "slurm" else None
    if call and most and (call.nodes or 0) > most and call.command == "srun" and not _OF_ANOTHER_JOB & {*call.options}:
        tasks = requested.ranks or most * (requested.ranks_per_node or 0) or call.nodes or 0
        if "ntasks" in call.options or tasks >= (call.nodes or 0):
            expected = filled("at most {0}, the hosts of the job by #SBATCH --nodes", most)
            yield OptionProblem("srun", "--nodes", call.option("nodes"), expected)


def _script_lines(text: str) -> list[str]:
    """Raises: NotAJobScript."""
    if len(text) > MAX_TEXT:
        raise NotAJobScript(filled("is longer than {0} MiB", MAX_TEXT >> 20))
    if "\0" in text:
        raise NotAJobScript("holds a zero byte; expected a shell script")
    lines = text.splitlines()
    if lines and lines[0].startswith("#!") and not any(shell in lines[0] for shell in SHELLS):
        raise NotAJobScript("its first line names another interpreter; expected a shell script")
    return lines


def _resolved(command: ShellCommand) -> list[str]:
    return [word.text for word in command.argv if not word.unresolved]


def _of_program(line: LaunchLine) -> list[str]:
    """The words of a program that may start others: a module, or one that is not in Python."""
    if line.is_module:
        return ["-m", line.program]
    return [] if line.interpreter or not line.program else [line.program, *line.arguments]


def _strange(command: ShellCommand, launcher: str) -> UnreadText:
    text = " ".join(word.text for word in command.argv)
    return unread(text, filled("how it starts {0} is not read", launcher), command.line)


def _launch_line(command: ShellCommand, inherited: Mapping[str, str], any_program: bool = False) -> list[LaunchLine]:
    """The launch line of a command; none where it starts no ranks. ``any_program``: one that starts any program."""
    changed = command.unset | command.unresolved.keys()
    environ = {name: value for name, value in inherited.items() if name not in changed}
    try:
        environ |= command.environ
        line = read_launch_line(command.argv, environ, unresolved=command.unresolved, open_values=command.open_values)
    except NotALaunchLine:
        return []
    is_program = line.interpreter != "" and line.program not in ("", "-c")
    if not (line.launchers or any_program or is_program or line.problems):
        return []
    return [_with_script(line, command)]


def _with_script(line: LaunchLine, command: ShellCommand) -> LaunchLine:
    """The line as a command of a script: with what the script exports before it."""
    environ = {**command.environ, **line.environ} if line.inherits_environment else line.environ
    if not line.inherits_environment:
        environ = {**{name: command.environ[name] for name in line.passed if name in command.environ}, **environ}
    unresolved = {f"{name}=": source for name, source in command.unresolved.items() if name not in line.environ}
    if not line.inherits_environment:
        unresolved = {key: source for key, source in unresolved.items() if key[:-1] in line.passed}
    return msgspec.structs.replace(
        line,
        environ={name: value for name, value in environ.items() if name not in line.removed},
        removed=line.removed | command.unset,
        unresolved={**unresolved, **line.unresolved},
        line=command.line,
        conditional=command.conditional,
        is_repeated=command.is_repeated,
        loops=command.loops,
        written=command.written,
    )


def _runs_shell_script(argv: Sequence[Word]) -> bool:
    """Whether a command is ``bash SCRIPT`` or a shell script itself, on this host or over SSH on others."""
    argv = argv[[word.text for word in argv[:1]] == ["exec"] :]
    first = argv[0].text.rpartition("/")[2] if argv else ""
    row = wrapper_rows().get((first, ""))
    runs = first in SHELLS or (row is not None and row.is_remote)
    return first.endswith(SHELL_SCRIPTS) or (runs and any(w.text.endswith(SHELL_SCRIPTS) for w in argv[1:]))
