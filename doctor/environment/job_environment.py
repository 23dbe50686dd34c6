"""The environment that a job will have: of this shell, a launch line, a job script, a file, or a running process."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from doctor.engine.bounded_read import plain_lines, read_bounded, refusing_unreadable
from doctor.engine.errors import InputError
from doctor.engine.record import LaunchOptions, OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.inventory import Inventory
from doctor.environment.launch_trials import is_here, launch_refusals, starts_here, with_app_file
from doctor.environment.outer_launcher import (
    TASK_OPTIONS,
    misfits,
    most_nodes,
    outer_nodes,
    outer_tasks,
    same_node_rank,
    same_rank_numbers,
    starts_whole_job,
)
from doctor.environment.schedulers import batch_allocation
from doctor.environment.script_trials import Tried, behind, start_folder, told_of_sh
from doctor.environment.slurm_tasks import first_task_host
from doctor.environment.time_left import seconds_left, step_limit
from doctor.environment.unknown_hosts import undecided_options
from doctor.environment.variables import RANK_VARIABLES, parse_environment
from doctor.job.job_script import CARRIERS, JobScript, Resources, scripts_of
from doctor.job.job_script.directives import variables_of
from doctor.job.job_size import ONE_ON_EACH_HOST
from doctor.job.launch_line import LaunchCall, LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.launch_line.logins import LauncherLogin, launcher_login
from doctor.job.launch_line.model import split_endpoint
from doctor.job.training.assemble import LaunchText
from doctor.job.training.configurations import refused_overrides
from doctor.job.training.host_slots import ReadFile
from doctor.job.variables import AGENT_STORE, JOB_WIDE, MINDSPORE_PORT, RENDEZVOUS_PORT, TORCH_PORT, relevant

MAX_FILE = 16 << 20
_MOST_LAUNCHES = 32
"""Launch lines of one script that are judged."""
_NAMESPACES = ("net", "mnt", "ipc", "uts")
_SETS_RANKS = (*ONE_ON_EACH_HOST, "deepspeed", "colossalai")
_FROM_CALLER = ("DOCTOR_HOSTS", "DOCTOR_HOSTFILE")


Follow = Callable[[LaunchLine], "Sequence[LaunchText]"]


def _as_it_is(line: LaunchLine) -> list[LaunchText]:
    return [LaunchText(line)]


class JobEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job's settings were read, and what they are."""

    label: str = ""
    """``the launch line``, ``process 4711``, ``the file env.txt``; empty: this shell."""
    environ: Mapping[str, str]
    line: LaunchLine | None = None
    written: LaunchLine | None = None
    """The line of the job script that runs the script in which ``line`` stands; None: ``line`` is the job script's."""
    unresolved: Mapping[str, str] = {}
    """Variables that the job has with a value that only a shell or a host can compute: the source text by name."""
    inner: LaunchText | None = None
    """Where ``line`` stands in a script that the job script runs."""
    sourced: tuple[str, ...] = ()
    """Paths of files that the job script sources, and that were followed."""
    requested: Resources = Resources()
    """What the job script's directives request."""
    time_limit_s: float | None = None
    """Of the job script's directives, or of the launch line's ``srun --time``."""
    time_left_s: float | None = None
    """Until the scheduler ends the job that doctor runs in; not for a job script, whose job is another one."""
    starts_here: bool = False
    """As in `LaunchOptions`."""
    enter: tuple[str, ...] = ()
    """Command prefix that enters the process's namespaces on this host; empty where they are those of doctor."""
    notes: tuple[str, ...] = ()
    not_followed: tuple[str, ...] = ()
    """Of ``notes``, those of parts of a job script."""
    login: LauncherLogin | None = None
    """How the launcher reaches the other hosts; None: not over SSH, or that is not known."""

    @property
    def is_of_script(self) -> bool:
        """``line`` is that of a job script."""
        return self.written is not None

    @property
    def hosts(self) -> str:
        """The hosts that the launch line names, with commas between; empty where it names this one as localhost."""
        calls = self.line.launchers if self.line else ()
        return next((",".join(call.hosts) for call in calls if not is_here(call)), "")

    @property
    def hostfile(self) -> str:
        calls = self.line.launchers if self.line else ()
        return next((call.hostfile for call in calls if call.hostfile), "")

    def within(self, option: str, is_local: bool) -> str:
        """The command that enters the job's container or namespaces, where it is this host alone that is checked."""
        return option or (shlex.join(self.enter) if is_local else "")

    def annotate(self, inventory: Inventory) -> Inventory:
        """The hosts, with what is not known of the environment as notes of the run."""
        notes = list(self.notes)
        if self.enter and not inventory.local:
            notes.append("the process's namespaces are entered where it is this host alone that is checked: not here")
        return msgspec.structs.replace(inventory, notes=(*inventory.notes, *notes)) if notes else inventory

    def complete(self, options: LaunchOptions) -> LaunchOptions:
        """The options with what the environment and the launch line say; what is given as an option wins."""
        if self.time_left_s is not None:
            options = msgspec.structs.replace(options, time_left_s=self.time_left_s)
        if not self.label:
            return options
        line = self.line
        if line is None:
            return msgspec.structs.replace(options, environ=relevant(self.environ), read_from=self.label)
        call = line.innermost
        tasks, by_directive = outer_tasks(line, self.requested)
        by_directive = by_directive or bool(call and call.launcher == "srun" and not TASK_OPTIONS & call.options.keys())
        address, port = _master(call) if call else ("", None)
        environ = dict(self.environ)
        if address and not options.master_addr:
            environ.pop("MASTER_ADDR", None)
        if call and _has_default_port(call):
            environ.pop("MASTER_PORT", None)
        return msgspec.structs.replace(
            options,
            environ={**relevant(variables_of(self.requested)), **relevant(environ), **same_rank_numbers(line)},
            read_from=self.label,
            framework=options.framework or _framework(call),
            master_addr=options.master_addr or address,
            master_port=options.master_port or port,
            world_size=options.world_size or (line.world_size if call else None),
            ranks_per_host=options.ranks_per_host or (line.ranks_per_node if call else None),
            launch_line=line.text,
            launchers=tuple(
                call.command.partition(" ")[0] if call.launcher == "ssh" else call.launcher for call in line.launchers
            ),
            nodes=line.nodes or options.nodes if call else None,
            max_nodes=most_nodes(line) or options.nodes if call else None,
            outer_nodes=outer_nodes(line),
            outer_tasks=tasks,
            outer_by_directive=by_directive,
            node_rank=same_node_rank(line, tasks),
            starts_here=self.starts_here or line.is_whole_here,
            store_by_name=_store_by_name(call),
            announces_name=_store_by_name(call, "local-addr"),
            option_problems=(*line.problems, *refused_overrides(line), *misfits(line, tasks)),
            starts_whole_job=starts_whole_job(line),
            first_task_host="" if self.is_of_script else first_task_host(line, environ),
            limits=dict((self.written or line).limits),
            differing=dict(line.differing) if (line.nodes or 0) > 1 else {},
            unresolved={
                name: printable(text, 200)
                for name, text in sorted({**undecided_options(line), **self.unresolved}.items())[:256]
            },
            time_limit_s=self.time_limit_s,
        )


def of_this_shell(environ: Mapping[str, str]) -> JobEnvironment:
    """The environment of the calling shell."""
    return JobEnvironment(environ=environ, time_left_s=seconds_left(environ))


def of_launch_line(
    argv: Sequence[str], environ: Mapping[str, str], *, tries: bool = False, is_next: bool = False
) -> JobEnvironment:
    """The environment of the program that a launch line starts from this shell. Raises: InputError.

    ``tries``: the launcher is asked whether it would start it; ``is_next``: as in `launch_refusals`.
    """
    try:
        line = read_launch_line(argv, environ)
        if (expanded := with_app_file(argv, line)) != list(argv):
            argv, line = expanded, read_launch_line(expanded, environ, text=line.text)
    except NotALaunchLine as error:
        raise InputError(filled("the launch line after --: {0}", error)) from None
    if tries and not line.problems:
        line = msgspec.structs.replace(
            line, problems=(*line.problems, *launch_refusals(line, argv, environ, is_next=is_next))
        )
    source = _with_line(line, environ, "the launch line")
    return msgspec.structs.replace(
        source,
        time_left_s=seconds_left(environ),
        time_limit_s=step_limit(line),
        starts_here=starts_here(line, environ),
        login=launcher_login(line, environ),
    )


def launches_of_job_script(
    path: str,
    environ: Mapping[str, str],
    follow: Follow = _as_it_is,
    read_file: ReadFile = lambda _: None,
    *,
    is_next: bool = False,
) -> list[JobEnvironment]:
    """The environment of each launch line of a file, first that of its last one. Raises: InputError.

    ``follow``: the launch lines of a script that a line runs. ``read_file``: the text of a file that the script
    sources; None where it is not here. ``is_next``: it runs next, on this host, so that what stands before a launcher
    is tried.
    """
    name = printable(path, 200)
    text = _read(path, "--job-script", "a job script")
    inherited = environ if not path.endswith(CARRIERS) else {}
    try:
        scripts = scripts_of(text, path, inherited, read_file)
    except ValueError as error:
        raise InputError(filled("--job-script {0}: {1}", name, error)) from None
    environments = [
        entry for script in scripts for entry in _of_each_line(script, text, path, inherited, follow, is_next)
    ]
    if not environments:
        expected = "torchrun, srun, mpirun, msrun, deepspeed, accelerate or python3 with a program"
        absent = filled("no launch line was found; expected {0}", expected)
        why = next((script.refusal for script in scripts if script.refusal), absent)
        raise InputError(filled("--job-script {0}: {1}", name, why))
    return environments[:_MOST_LAUNCHES]


def _of_each_line(
    script: JobScript, text: str, path: str, environ: Mapping[str, str], follow: Follow, is_next: bool
) -> list[JobEnvironment]:
    """First that of the line that starts the job."""
    lines = (script.job_lines or script.scripts)[:_MOST_LAUNCHES]
    starts = [(line, _of_script(line, follow(line))) for line in lines]
    starts = [start for start in starts if script.job_lines or start[1]]
    rest = [(msgspec.structs.replace(line, problems=_of_launchers(line)), inner) for line, inner in starts[1:]]
    if not starts:
        return []
    is_direct = script.resources == Resources()
    is_tried = is_next and (is_direct or batch_allocation(environ) is not None)  # else it runs on other hosts
    lines_of_ranks = frozenset(line.line for line in (*script.launch_lines, *script.scripts))
    tried = Tried.of_next(path, text, lines_of_ranks, environ) if is_tried else Tried(path, environ)
    return [_of_line_of_script(line, inner, script, tried) for line, inner in (*starts[:1], *rest)]


def _of_launchers(line: LaunchLine) -> tuple[OptionProblem, ...]:
    """Without what is refused of the whole script, which stands at its first launch."""
    return tuple(problem for problem in line.problems if problem.launcher not in ("bash", "sbatch", "qsub", "bsub"))


def _of_line_of_script(
    script_line: LaunchLine, inner: LaunchText | None, script: JobScript, tried: Tried
) -> JobEnvironment:
    environ, name = tried.environ, printable(tried.path, 200)
    refused, notes = tried.refused(script_line)
    job_line = msgspec.structs.replace(
        script_line, problems=(*told_of_sh(script_line, refused, tried.next_path), *refused)
    )
    if inner:
        container = inner.line.container or script_line.container
        job_line = behind(script_line, msgspec.structs.replace(inner.line, line=script_line.line, container=container))
    job_line = msgspec.structs.replace(job_line, start_folder=start_folder(job_line, tried.next_path))
    source = _with_line(job_line, environ, filled("the job script {0}, line {1}", name, job_line.line))
    unread = [filled("{0}, line {1}: {2} {3}", name, part.line, part.text, part.reason) for part in script.unread[:8]]
    if job_line.conditional and not tried.is_reached and not (job_line.is_repeated and job_line.loops):
        where = "{0}, line {1}: in a branch, a loop or a function; not known: whether the script comes to this line"
        notes = [*notes, filled(where, name, job_line.line)]
    limits = [limit for limit in (script.resources.time_limit_s, step_limit(job_line)) if limit is not None]
    is_direct = script.resources == Resources()
    login = launcher_login(job_line, {**environ, **job_line.environ}) if is_direct else None
    source = msgspec.structs.replace(source, written=script_line, requested=script.resources, login=login, inner=inner)
    source = msgspec.structs.replace(source, sourced=script.sourced, time_limit_s=min(limits, default=None))
    notes = [*unread, *notes]
    return msgspec.structs.replace(source, notes=(*source.notes, *notes), not_followed=tuple(notes))


def _of_script(outer: LaunchLine, launches: Sequence[LaunchText]) -> LaunchText | None:
    """Of the lines of the script that a launch line runs, the one that starts ranks."""
    starting = [launch for launch in launches if launch.line.launchers[len(outer.launchers) :]]
    certain = [launch for launch in starting if not launch.line.conditional]
    return next(reversed(certain or starting), None)


def of_file(path: str, caller: Mapping[str, str]) -> JobEnvironment:
    """A saved environment: the output of ``env``, ``env -0`` or ``export -p``, or JSON. Raises: InputError."""
    name = printable(path, 200)
    environ = parse_environment(plain_lines(_read(path, "--env-file", "a saved environment")), f"--env-file {name}")
    return JobEnvironment(label=filled("the file {0}", name), environ={**_callers(caller), **environ})


def of_process(pid: int, caller: Mapping[str, str], proc: Path = Path("/proc")) -> JobEnvironment:
    """The environment, launch line and namespaces of a running process. Raises: InputError."""
    folder = proc / str(pid)
    if not folder.is_dir():
        raise InputError(filled("--like {0}: there is no such process on this host", pid))
    try:
        raw = (folder / "environ").read_bytes()[:MAX_FILE]
        argv = [word.decode("utf-8", "replace") for word in (folder / "cmdline").read_bytes()[: 1 << 20].split(b"\0")]
    except PermissionError:
        raise InputError(
            filled("--like {0}: the process is of another user; expected its user, or root", pid)
        ) from None
    except OSError as error:
        raise InputError(filled("--like {0}: {1}", pid, error.strerror or error)) from None
    environ = parse_environment(raw.decode("utf-8", "replace"), f"--like {pid}")
    label = filled("process {0}", pid)
    enter, notes = _namespaces(folder, proc / "self", pid)
    source = JobEnvironment(label=label, environ={**_callers(caller), **environ})
    try:
        line = read_launch_line(argv[:-1] if argv[-1:] == [""] else argv, environ)
    except NotALaunchLine:
        line = None
    if line and line.launchers:
        source = _with_line(line, source.environ, f"{label}, {line.launchers[0].launcher}")
    return msgspec.structs.replace(source, enter=enter, notes=(*source.notes, *notes))


def _namespaces(folder: Path, caller: Path, pid: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The command that enters the namespaces of a process that are not those of doctor, and notes."""
    flags = {"net": "-n", "mnt": "-m", "ipc": "-i", "uts": "-u"}
    try:
        other = [name for name in _NAMESPACES if os.readlink(folder / "ns" / name) != os.readlink(caller / "ns" / name)]
    except OSError:
        return (), (filled("the namespaces of process {0} cannot be read: its network and mounts may be others", pid),)
    if not other:
        return (), ()
    if os.geteuid():
        listed = ", ".join(other)
        why = "process {0} is in other namespaces ({1}), which only root may enter: not checked in them"
        return (), (filled(why, pid, listed),)
    return ("nsenter", "-t", str(pid), *(flags[name] for name in other), "--"), ()


def _read(path: str, option: str, expected: str) -> str:
    with refusing_unreadable(f"{option} {path}", expected):
        return read_bounded(path, MAX_FILE).decode("utf-8")


def _callers(environ: Mapping[str, str]) -> dict[str, str]:
    """What the user tells doctor itself."""
    return {name: environ[name] for name in _FROM_CALLER if name in environ}


def _with_line(line: LaunchLine, outside: Mapping[str, str], label: str) -> JobEnvironment:
    """The environment of the program of a line that starts from the environment ``outside``."""
    inherited = {name: outside[name] for name in outside if line.inherits_environment or name in line.passed}
    environ = {name: value for name, value in {**inherited, **line.environ}.items() if name not in line.removed}
    unresolved = {key[:-1]: text for key, text in line.unresolved.items() if key.endswith("=")}
    call = line.innermost
    if call and call.launcher in _SETS_RANKS:
        for name in (*RANK_VARIABLES, *JOB_WIDE, AGENT_STORE):
            environ.pop(name, None)
            unresolved.pop(name, None)
        for option in ("master-addr", "rdzv-endpoint", "main-process-ip"):
            if option in call.unresolved:
                unresolved["MASTER_ADDR"] = f"{option} {call.unresolved[option]}"
    for name in unresolved:
        environ.pop(name, None)
    scheduler = {name: value for name, value in outside.items() if name in _FROM_CALLER or "HOST" in name}
    notes = [
        filled("not known: {0} ({1})", key, text) for key, text in line.unresolved.items() if not key.endswith("=")
    ]
    notes += [filled("not known: the value of {0} ({1})", name, text) for name, text in unresolved.items()]
    return JobEnvironment(
        label=label,
        environ={**{name: value for name, value in scheduler.items() if name in _FROM_CALLER}, **environ},
        line=line,
        unresolved=unresolved,
        notes=tuple(printable(note, 300) for note in notes[:16]),
    )


def _master(call: LaunchCall) -> tuple[str, int | None]:
    """Where the ranks of a launch meet; empty where the line does not say it."""
    if call.launcher == "torchrun":
        return _torchrun_master(call)
    if call.launcher == "msrun":
        address = "" if "master-addr" in call.unresolved else call.master_addr or "127.0.0.1"
        return address, call.master_port or MINDSPORE_PORT
    if call.launcher == "paddle":
        return split_endpoint(call.rdzv_endpoint)
    if call.launcher in ("deepspeed", "accelerate", "colossalai", "composer"):
        return call.master_addr, call.master_port or TORCH_PORT
    return "", None


def _torchrun_master(call: LaunchCall) -> tuple[str, int | None]:
    """Source: PyTorch, torch/distributed/run.py, ``get_rdzv_endpoint``: it ignores the variable MASTER_ADDR."""
    if call.standalone:
        return "", None
    if call.rdzv_backend not in ("", "static", "c10d"):  # the endpoint is a service of its own, such as etcd
        return "", None
    if "rdzv-endpoint" in call.unresolved:  # of `localhost:$PORT` the host stands there
        host, colon, _ = call.option("rdzv-endpoint").partition(":$")
        return (host, None) if colon and re.fullmatch(r"[\w.-]{1,255}", host, re.ASCII) else ("", None)
    dynamic = call.rdzv_backend not in ("", "static")
    if call.rdzv_endpoint or dynamic:
        host, port = split_endpoint(call.rdzv_endpoint)
        return host or "localhost", port or (RENDEZVOUS_PORT if dynamic else TORCH_PORT)
    if "master-addr" in call.unresolved:
        return "", call.master_port or TORCH_PORT
    return call.master_addr or "127.0.0.1", call.master_port or (None if _has_default_port(call) else TORCH_PORT)


def _has_default_port(call: LaunchCall) -> bool:
    """Torchrun for one host, without an endpoint and a port. Source: PyTorch, torch/distributed/run.py, ``run``."""
    is_static = call.launcher == "torchrun" and call.max_nodes == 1 and call.rdzv_backend in ("", "static")
    is_stated = {"rdzv-backend", "rdzv-endpoint", "master-port", "options"} & call.unresolved.keys()
    return is_static and not (call.standalone or call.rdzv_endpoint or call.master_port or is_stated)


def _store_by_name(call: LaunchCall | None, overriding: str = "rdzv-conf") -> bool:
    """A c10d rendezvous of torchrun for several hosts, without the option that makes names of no account."""
    if call is None or call.launcher not in ("torchrun", "accelerate") or call.rdzv_backend != "c10d":
        return False
    several = call.max_nodes is None or call.max_nodes > 1
    overridden = overriding in call.unresolved or (
        "is_host" in call.option(overriding) if overriding == "rdzv-conf" else overriding in call.options
    )
    return several and not call.standalone and not overridden


def _framework(call: LaunchCall | None) -> str:
    if call is None or call.launcher not in _SETS_RANKS:
        return ""
    return {"msrun": "mindspore", "paddle": ""}.get(call.launcher, "torch")
