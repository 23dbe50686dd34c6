"""Asks the first launcher of a line whether it would start it, and says which of its commands is not there."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from doctor.engine.addresses import means_own_host
from doctor.engine.bounded_read import plain_lines, read_bounded_text
from doctor.engine.bounded_run import run_bounded
from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.host_list import MAX_OUTPUT
from doctor.environment.schedulers import batch_allocation
from doctor.environment.slurm_tasks import MOST_OF_FILE, program_file, programs_of_tasks
from doctor.hosts.hostfile import parse_hostfile
from doctor.job.job_size import OF_STEP, STARTS_TASKS
from doctor.job.launch_line import LaunchLine, read_launch_line
from doctor.job.launch_line.commands import is_plain, launcher_rows, stays_here, wrapper_rows
from doctor.job.launch_line.launcher_calls import DEFAULT_HOSTFILE
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import split_options
from doctor.job.shell.word import literal_words
from doctor.job.training.python_config import imported_first
from doctor.job.variable_names import is_misspelt, is_one_slip

_NEEDS_HOSTS = ("openmpi", "hydra", "deepspeed")
"""Launchers that start all ranks on their own host where nothing gives them others."""
_HOST_OPTIONS = frozenset(("host", "hosts", "hostfile", "machinefile", "default-hostfile", "f", "include"))
_OPENMPI = ("orterun", "prterun", "mpirun.openmpi")
_TRIAL_SECONDS = 30.0
"""slurmctld may be busy for longer than the 10 s of its MessageTimeout, after which srun asks it again."""
_MOST_LETTERS = 300
_OF_SHELL = {"exec", "builtin", "command", "time", "."}
"""Words of the shell, which are no programs."""
_LEAST_LETTERS = 3
_OF_PROGRAM = frozenset(("app", "np", "x", "host", "hostfile", "machinefile", "wdir"))
"""Options of mpirun that are those of one program."""
_MOST_PROGRAMS = 256
_MAPS_ALONE = re.compile(r"output-filename$|tv$|d$|debug|xterm$|report-(pid|uri)|preload|dvm|ompi-server|xml|app$")
"""Options of mpirun that write files or start more than the program: with them it maps ranks, and starts none."""
_READ_ALONE = re.compile(r"container|bcast$|multi-prog$|no-allocate$|pty$|x11$")
"""Options of srun that run or copy more than the program: with them it reads its options alone."""
_HOOKS = {"prolog": "none", "epilog": "none", "task-prolog": "/bin/true", "task-epilog": "/bin/true"}
"""Options of srun that run a program of the user: what runs none in its place."""
_STREAMS = {"output": "SLURM_STDOUTMODE", "error": "SLURM_STDERRMODE", "input": "SLURM_STDINMODE"}
"""Options of srun that name a file, and the variable for each: of the last the file is needed, else its folder."""
_NOT_ASKED = re.compile(rb"password is required|not allowed to execute")
"""Of sudo, which may start the launcher nevertheless: asked by a user, or by the rule for that program."""
_BY_SHELL = re.compile("-[AbEHknPS]*[is][a-z]*|--login|--shell")
"""Options of sudo by which a shell reads the words again."""
_STARTS = """
tool=$(command -v -- "$0") || exit
case ${tool##*/} in
python*) ;;
*) { read -r tool rest < "$tool"; } 2> /dev/null; case $tool in "#!"*) tool=${tool#??} ;; *) exit 0 ;; esac ;;
esac
test -x "$tool" || { echo "$tool: Permission denied" >&2; exit 1; }
case ${tool##*/} in python*) ;; *) exit 0 ;; esac
exec "$tool" -c 'import importlib.util as u; name = "MODULE"
if name and not u.find_spec(name): raise SystemExit("No module named " + name)'
"""
"""For another user: whether a launcher is there, whether its interpreter may be started, and finds a module."""
_WAITS = re.compile(r"(?i)nodes are busy|temporarily|timed out|unable to contact")
"""Of a step that srun would try to start again."""
_MAP = "JOB MAP"
_OWN_NETWORK = "out-of-band communications"
"""Of mpirun where the interface for its daemons is not on this host: the host that starts the line may have it."""
_INTERACTIVE = "4294967290"
"""The step of salloc's own shell: SLURM_INTERACTIVE_STEP of slurm.h."""


def launch_trial(line: LaunchLine, argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command that asks the first launcher of a line whether it would start it; empty where none can.

    mpirun starts ``/bin/true`` on this host alone, and else maps the ranks and starts nothing; srun starts
    ``/bin/true`` in the allocation of this shell, and where there is none asks for the time of one. Sources: Open MPI,
    mpirun(1), "--do-not-launch"; Slurm, srun(1), "--test-only", "--immediate".
    """
    call, start = line.first_launcher(argv)
    if call is None or not _runs_here(line) or any(word.startswith("$") for word in argv):
        return []
    command = argv[start - 1]
    program = shutil.which(command, path=_path(line, environ)) or ""
    if call.launcher == "openmpi" and os.path.basename(os.path.realpath(program)) in _OPENMPI:
        is_here_alone = "options" not in call.unresolved and (starts_here(line, environ) or _is_this_host(call))
        if is_here_alone and not any(map(_MAPS_ALONE.match, call.options)):
            return [*argv[:start], *_idle(argv[start:], call)]
        return [*argv[:start], "--do-not-launch", *argv[start:]]
    if call.command != "srun" or not program or environ.get(OF_STEP, _INTERACTIVE) != _INTERACTIVE:
        return []
    if "options" in call.unresolved:  # it reads its options up to the one that doctor does not know
        unknown = split_options(command, literal_words(argv[start:]), launcher_rows()["srun"]).unrecognised
        return [*argv[: argv.index(unknown, start) + 1], "--help"] if unknown in argv[start:] else []
    is_inside = "SLURM_JOB_ID" in environ or "jobid" in call.options
    options = ["--immediate=5", "--output=none", "--error=none", "--input=none"] if is_inside else ["--test-only"]
    options += [f"--{name}={idle}" for name, idle in _HOOKS.items() if name in call.options]
    options = ["--help"] if any(map(_READ_ALONE.match, call.options)) else options
    return [*argv[:start], *_idle(argv[start:], call, options)]


def _runs_here(line: LaunchLine) -> bool:
    """Whether all that stands before the launcher leaves it where it is: in this host's files and network."""
    return all(is_plain(word.split()[0]) for word in line.wrappers)


def _idle(argv: Sequence[str], call: LaunchCall, options: Sequence[str] = ()) -> list[str]:
    """The words of a launcher with ``/bin/true`` in place of each program, and ``options`` before the first."""
    row = next(row for row in launcher_rows().values() if row.name == call.launcher)
    parts: list[str] = []
    while argv:
        end = argv.index(":") if ":" in argv and call.launcher == "openmpi" else len(argv)
        rest = split_options(call.command, literal_words(argv[:end]), row).rest
        parts += [*argv[: end - len(rest)], *(() if parts else options), "/bin/true", *argv[end : end + 1]]
        argv = argv[end + 1 :]
    return parts or [*options, "/bin/true"]


def absent_command(line: LaunchLine, environ: Mapping[str, str], *, is_next: bool = False) -> str:
    """The first command of a line that nothing finds, and that `launch-program-missing` does not look for on each host.

    Without ``is_next`` only a launcher of all ranks that stands there with its folder: another shell has another PATH.
    """
    calls = {call.launcher: call for call in line.launchers}
    first = [call.command for call in line.launchers[:1] if call.launcher in STARTS_TASKS]
    for word, starter in line.commands:
        call = calls.get(starter)
        if call and not _starts_what_is_here(call, line, environ):
            return ""
        folder = os.path.join(os.getcwd(), call.folder if call else "")
        if "/" in word:
            is_judged = (is_next or os.path.basename(word) in first) and not _is_asked_of_hosts(word, starter, line)
            is_there = os.path.lexists(os.path.join(folder, word))
        else:
            is_judged = is_next and (starter != "" or _is_no_function(word, environ))
            folders = [folder] if starter in STARTS_TASKS else []
            is_there = shutil.which(word, path=os.pathsep.join((_path(line, environ), *folders))) is not None
        if is_judged and not is_there:
            return word
        if stays_here(word) and not is_plain(word):  # another user: `wrapper_refused`
            return ""
    return ""


def _path(line: LaunchLine, environ: Mapping[str, str]) -> str:
    """Where the commands of a line are looked for. What launchers export helps nothing to be found."""
    exported = [call.environ["PATH"] for call in line.launchers if "PATH" in call.environ]
    of_line = [line.environ["PATH"]] if "PATH" in line.environ and line.environ["PATH"] not in exported else []
    return os.pathsep.join((*of_line, environ.get("PATH", os.environ.get("PATH", os.defpath))))


def _starts_what_is_here(call: LaunchCall, line: LaunchLine, environ: Mapping[str, str]) -> bool:
    """Whether a launcher surely looks for its program where this shell does: on this host, or in srun's own PATH.

    A container has programs of its own, and a hook before the task may set its PATH.
    """
    if call.launcher == "srun":
        has_prolog = "task-prolog" in call.options or "SLURM_TASK_PROLOG" in environ
        return call.command == "srun" and not has_prolog and not any(map(_READ_ALONE.match, call.options))
    if call.launcher == "openmpi":
        return starts_here(line, environ) and not {"path", "prefix", "preload-binary"} & call.options.keys()
    return call.launcher == "torchrun"


def _is_asked_of_hosts(word: str, starter: str, line: LaunchLine) -> bool:
    """Whether `launch-program-missing` or `job-python-missing` looks for a path on each host."""
    is_program = bool(starter) and word == line.program
    is_python = word == line.interpreter and os.path.isabs(word)
    return is_program or is_python or (word in line.paths and os.path.isabs(word))


def _is_no_function(word: str, environ: Mapping[str, str]) -> bool:
    """Whether a word that is no program on the PATH is surely no function, alias or word of the shell, either.

    So is a launcher, an interpreter or a wrapper, and what was meant to be a launcher.
    """
    if word in _OF_SHELL or f"BASH_FUNC_{word}%%" in environ:
        return False
    names = {*launcher_rows(), *(name for name, _ in wrapper_rows() if stays_here(name))}
    return word in names or re.match("python[0-9.]*$", word) is not None or any(_is_near(word, name) for name in names)


def _is_near(word: str, name: str) -> bool:
    """Whether a word is another one of four letters or more with one letter wrong, too many or too few.

    >>> _is_near("torchrum", "torchrun"), _is_near("mpiexc", "mpiexec"), _is_near("srum", "srun"), _is_near("a", "ds")
    (True, True, True, False)
    """
    return len(name) > _LEAST_LETTERS and (is_misspelt(word, name) or is_one_slip(word, name))


def launch_refusals(
    line: LaunchLine, argv: Sequence[str], environ: Mapping[str, str], *, is_next: bool = False
) -> list[OptionProblem]:
    """What the first launcher of a line says where it does not start it; a trial without a value: no answer in time.

    ``is_next``: the shell that called doctor runs the line next, so that its PATH counts.
    """
    if absent := absent_command(line, environ, is_next=is_next):
        starter = dict(line.commands)[absent]
        command = next((call.command for call in line.launchers if call.launcher == starter), "sh")
        ask = shlex.join(("sh", "-c", 'type "$0"', absent))
        return [OptionProblem(command, "", filled("{0}: not found", absent), ask, "trial")]
    if is_next and (refused := _of_this_host(line, argv, environ)):
        return [refused]
    if not (trial := launch_trial(line, argv, environ)):
        return []
    call, command = line.launchers[0], line.launchers[0].command
    for name, variable in _STREAMS.items() if call.launcher == "srun" else ():
        path = call.option(name) or environ.get(variable, "")
        needed, is_there = (path, os.path.exists) if name == "input" else (os.path.dirname(path), os.path.isdir)
        if os.path.isabs(needed) and "%" not in needed and not is_there(needed):
            expected = "a file that is there" if name == "input" else "a folder that is there"
            return [OptionProblem(command, f"--{name}", printable(needed, 200), expected)]
    if (done := run_trial(trial, environ)) is None:
        return [OptionProblem(command, "", "", shlex.join(trial), "trial")]
    text = plain_lines((done.stderr + done.stdout).decode("utf-8", "replace"))
    maps = _MAP in text or "-----" not in text  # Open MPI 4 may end with 0 where it maps nothing, and frames the reason
    is_of_hosts = not is_next and _OWN_NETWORK in text  # `interface-setting-wrong` judges it there
    if (maps and not done.returncode) or is_of_hosts or "do-not-launch" in text.partition("unrecognized")[2]:
        return []
    if "run as root" in text:
        return [OptionProblem(command, "--allow-run-as-root", "", "the option, as the user is root", "needed")]
    prefix = environ.get("OPAL_PREFIX") if "unknown option" in text else ""  # without its files it knows no option
    reason = trial_message(text) or filled("exit code {0}", done.returncode)
    reason = f"OPAL_PREFIX={printable(prefix, 100)}: {reason}" if prefix else reason
    return [OptionProblem(command, "", reason, shlex.join(trial), "waits" if _WAITS.search(text) else "trial")]


def _of_this_host(line: LaunchLine, argv: Sequence[str], environ: Mapping[str, str]) -> OptionProblem | None:
    """What ends a line on the host where the shell runs it next."""
    return _own_address_refused(line) or wrapper_refused(line, environ) or _of_tasks(line, argv, environ)


def _of_tasks(line: LaunchLine, argv: Sequence[str], environ: Mapping[str, str]) -> OptionProblem | None:
    """What srun refuses of the file of ``--multi-prog``, and the first of its programs that nothing finds."""
    call, start = line.first_launcher(argv)
    if call is None or call.launcher != "srun":
        return None
    rest = split_options(call.command, literal_words(argv[start:]), launcher_rows()["srun"]).rest
    path = program_file(call, [word.text for word in rest])
    folder = os.path.join(os.getcwd(), call.folder)
    for task_argv in programs_of_tasks(path, call, call.ranks) if path else ():
        if isinstance(task_argv, OptionProblem):
            return task_argv
        program = read_launch_line(["srun", *task_argv], environ)
        absent, file = absent_command(program, environ, is_next=True), program.program
        if not absent and ("/" in file or file.endswith(".py")) and not os.path.lexists(os.path.join(folder, file)):
            absent = file
        if absent:
            return OptionProblem(call.command, "", filled("{0}: not found", absent), shlex.join(("ls", path)), "trial")
    return None


def wrapper_refused(
    line: LaunchLine, environ: Mapping[str, str], *, is_of_script: bool = False
) -> OptionProblem | None:
    """What the programs before the launcher say where they do not start it: taskset of absent CPUs, env without a PATH.

    They are run as they stand there, with a shell behind them that only looks for the launcher and, of another user,
    for its interpreter and torch. ``is_of_script``: it does not look, as commands of the script may bring the launcher;
    they may bring one of these programs, too.
    """
    names = [word for word, starter in line.commands if not starter]
    launcher = next((name for name in names if name not in line.before), "")
    names = [name for name in names if name in line.before and name not in _OF_SHELL]  # what a shell does cannot be run
    is_tried = launcher and names and not line.container and all(stays_here(word.split()[0]) for word in line.wrappers)
    if not is_tried or any("$" in word for word in (*line.before, launcher)):
        return None
    trial = [*line.before[line.before.index(names[0]) :], "/bin/sh", "-c", 'command -v -- "$0"', launcher]
    shown = shlex.join(trial)
    if not _runs_here(line):
        trial[-2:] = [_STARTS.replace("MODULE", _imported(line)), launcher]
        if any(map(_BY_SHELL.fullmatch, line.before)):
            trial[-4:] = ["command", "-v", launcher]
        asks = trial.index("sudo") + 1 if "sudo" in names else 0
        trial[asks:asks] = ["-n"] if asks else []
    if is_of_script:
        trial[-2:] = [":"]
        shown = shlex.join(trial)
        if any(shutil.which(name, path=_path(line, environ)) is None for name in names):
            return None
    done = run_trial(trial, environ)
    if done is None or (done.returncode and _NOT_ASKED.search(done.stderr)):
        return OptionProblem(trial[0], "", "", shown, "trial")
    reason = trial_message(plain_lines(done.stderr.decode("utf-8", "replace"))) or filled("{0}: not found", launcher)
    return OptionProblem(trial[0], "", reason, shown, "trial") if done.returncode else None


def _imported(line: LaunchLine) -> str:
    """The framework that the launcher or the first lines of the program import; empty where that is not sure."""
    if line.innermost and line.innermost.launcher == "torchrun":
        return "torch"
    try:
        text = read_bounded_text(line.program, MOST_OF_FILE) if line.program.endswith(".py") else ""
        names = [name.partition(".")[0] for name in imported_first(text)]
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    return next((name for name in names if name in ("torch", "mindspore")), "")


def run_trial(
    trial: Sequence[str], environ: Mapping[str, str], folder: str = ""
) -> subprocess.CompletedProcess[bytes] | None:
    """What a trial ended with, in English; None where it did not start, or did not end in time."""
    try:
        start = os.path.join(os.getcwd(), folder)
        return run_bounded(trial, _TRIAL_SECONDS, MAX_OUTPUT, {**environ, "LC_ALL": "C.UTF-8"}, start)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _is_this_host(call: LaunchCall) -> bool:
    """Whether mpirun is given a file of hosts that names this one alone."""
    if not call.hostfile or call.hosts or _HOST_OPTIONS & call.unresolved.keys():
        return False
    try:
        lines = parse_hostfile(read_bounded_text(call.hostfile, MOST_OF_FILE), call.hostfile)
    except (OSError, ValueError):
        return False
    names = {socket.gethostname(), socket.gethostname().partition(".")[0]}
    return bool(lines) and all(means_own_host(line.host) or line.host in names for line in lines)


def with_app_file(argv: Sequence[str], line: LaunchLine) -> list[str]:
    """The words of a line of mpirun with the programs of its ``--app`` file, as it starts them.

    Beside the file neither programs nor ``_OF_PROGRAM`` of the line count (measured with Open MPI 4.1.4). Source:
    mpirun(1), "Specifying Multiple Applications".
    """
    call, start = line.first_launcher(argv)
    if call is None or call.launcher != "openmpi" or not call.option("app") or call.unresolved:
        return list(argv)
    try:
        text = read_bounded_text(call.option("app"), MOST_OF_FILE)
    except (OSError, ValueError):
        return list(argv)
    row, options, kept = launcher_rows()[call.command], list(argv[start:]), list(argv[:start])
    while options and options[0].startswith("-"):
        name = row.canonical(options[0].lstrip("-").partition("=")[0])
        count = 1 if "=" in options[0] else 1 + row.word_counts.get(name, 0)
        kept += options[:count] if name not in _OF_PROGRAM else []
        options = options[count:]
    programs = [part for part in (entry.partition("#")[0].split() for entry in text.splitlines()) if part]
    if not programs or len(programs) > _MOST_PROGRAMS:
        return list(argv)
    return kept + [word for program in programs for word in (":", *program)][1:]


def _own_address_refused(line: LaunchLine) -> OptionProblem | None:
    """Where the agent of torchrun on one host announces an address that does not lead to this host.

    Sources: PyTorch, torch/distributed/elastic/rendezvous/dynamic_rendezvous.py, ``_NodeDescGenerator``: the address is
    ``--local-addr``, else the host's full name; the ranks meet there, also on one host (measured with 2.13).
    """
    call = line.innermost
    if call is None or call.launcher != "torchrun" or len(line.launchers) > 1 or call.max_nodes != 1:
        return None
    is_static = call.rdzv_backend in ("", "static") and not call.standalone
    if is_static or call.rdzv_backend not in ("", "static", "c10d") or {"local-addr", "options"} & {*call.unresolved}:
        return None
    if line.container or not _runs_here(line):
        return None
    answers: list[tuple[str, bool]] = []
    asking = threading.Thread(target=lambda: answers.append(_leads_here(call.option("local-addr"))), daemon=True)
    asking.start()
    asking.join(_TRIAL_SECONDS / 3)
    if not answers or answers[0][1]:
        return None
    name = printable(answers[0][0], 80)
    if "local-addr" in call.options:
        return OptionProblem(call.command, "--local-addr", name, "an address of this host")
    return OptionProblem(
        call.command, "!--local-addr", "127.0.0.1", filled("as the ranks meet at {0}, which does not lead here", name)
    )


def _leads_here(name: str) -> tuple[str, bool]:
    """The address or, without one, this host's full name; and whether a connection to it arrives here."""
    name = name or socket.getfqdn()
    with contextlib.suppress(OSError):
        for family, *_, address in socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as listener, contextlib.suppress(OSError):
                listener.bind(("", 0))
                listener.listen(1)
                socket.create_connection((str(address[0]), listener.getsockname()[1]), timeout=2).close()
                return name, True
    return name, False


def trial_message(text: str) -> str:
    """The first errors of a launcher, in one line."""
    lines = [re.sub(r"^\S+: (?:error|fatal): ", "", line) for line in text.splitlines() if re.search(r"\w", line)]
    return printable(" ".join(dict.fromkeys(line.strip() for line in lines)), _MOST_LETTERS)


_BY_LOGIN = ("torchrun", "accelerate", "msrun", "openmpi", "deepspeed", "ssh")


def is_here(call: LaunchCall) -> bool:
    """No host is named but this one, as localhost."""
    return all(map(means_own_host, call.hosts))


def starts_by_login(line: LaunchLine, environ: Mapping[str, str]) -> bool:
    """The outermost launcher is called by a shell on each host, or reaches the hosts over SSH.

    A scheduler's processes have the environment of its daemon, or of the caller.
    """
    first = line.launchers[0].launcher if line.launchers else ""
    return first in _BY_LOGIN and batch_allocation(environ) is None


def starts_here(line: LaunchLine, environ: Mapping[str, str], default_hostfile: str = DEFAULT_HOSTFILE) -> bool:
    """The one launcher of the line has no hosts: none in its options, in its variables, or from a scheduler.

    Sources: Open MPI, mpirun(1), "Specifying Host Nodes"; MPICH, Hydra; DeepSpeed, ``fetch_hostfile``, which looks for
    /job/hostfile.
    """
    call = line.innermost
    if call is None or len(line.launchers) > 1 or call.launcher not in _NEEDS_HOSTS:
        return False
    named = not is_here(call) or bool(call.hostfile) or "num-nodes" in call.options
    named = named or call.nodes not in (None, 1) or bool(_HOST_OPTIONS & call.unresolved.keys())
    variables = [name for name in environ if re.search(r"(?i)host_?file|hydra_host|machine_?file|node_?file", name)]
    if named or variables or batch_allocation(environ) is not None:
        return False
    return call.launcher != "deepspeed" or not Path(default_hostfile).exists()
