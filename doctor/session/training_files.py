"""Reads the files of a training that a command line names, and those that its launch lines name. Runs nothing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from doctor.engine.bounded_read import plain_lines, read_bounded, refusing_unreadable
from doctor.engine.errors import InputError
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.environment.launch_trials import starts_by_login
from doctor.job.job_script import CARRIERS, NotAJobScript, scripts_of
from doctor.job.job_size import STARTS_TASKS
from doctor.job.launch_line import LaunchLine, NotALaunchLine, read_launch_line
from doctor.job.launch_line.commands import is_plain
from doctor.job.launch_line.read import SHELL_SCRIPTS
from doctor.job.training import Configuration, Setting, TrainingLaunch, TrainingScript
from doctor.job.training.assemble import GivenFiles, LaunchText, assemble, named_configurations, read_configuration
from doctor.job.training.configurations import named_data
from doctor.job.training.host_slots import ReadFile
from doctor.job.training.python_code import read_python
from doctor.job.training.tree import UnreadableFile
from doctor.session.code_revision import code_of_line
from doctor.session.script_launches import NoTrainingError, follow, launches_of_script

if TYPE_CHECKING:
    from doctor.environment.job_environment import JobEnvironment
    from doctor.session.examine_options import ExamineOptions

MAX_BYTES = 1 << 20
"""Bytes of a script, a program or a configuration."""
MAX_FILES = 64
"""Files of a command line, and files that launch lines name."""
_LEVELS = 5
"""Folders above that of a script in which a file that it names is looked for: most scripts run in one of them."""


_KEEP_FOLDER = ("srun", "openmpi", "hydra", "deepspeed")
"""Launchers that start the ranks of all hosts in the folder that they are called in."""
_CHANGES_FOLDER = re.compile(
    r"(?:^|[\s;&|('\"])(?:cd|pushd|-C|-D|-{1,2}(?:chdir|cwd|directory|project|wd|wdir|workdir))(?:\s|=)"
)
_FOLDER_OPTIONS = {"srun": "chdir", "openmpi": "wdir"}
"""By launcher, the option that names the folder in which it starts the ranks of all hosts."""
_CONFIGURATIONS = (".json", ".yaml", ".yml", ".toml")


def read_training(
    paths: Sequence[str],
    command: Sequence[str],
    environ: Mapping[str, str],
    counts: Mapping[str, int] = {},
    leave_out: Callable[[str], None] | None = None,
) -> TrainingLaunch:
    """The launches of the files and of the command. ``counts``: ``nodes`` and ``ranks_per_node``, as the user says.

    ``leave_out`` is called with each file that can be read and holds no training; without it, such a file is refused.
    Raises: InputError for a file or a command that cannot be read as what it has to be.
    """
    if len(paths) > MAX_FILES:
        raise InputError(filled("{0} files; expected at most {1}", len(paths), MAX_FILES))
    folders = ["", *dict.fromkeys(os.path.dirname(path) for path in paths)]
    named = _NamedFiles(folders)
    lines: list[LaunchText] = []
    configurations: list[Configuration] = []
    scripts: list[TrainingScript] = []
    for path in dict.fromkeys(paths):
        text, name = read_text(path), printable(path, 200)
        try:
            if path.endswith(CARRIERS) and scripts_of(plain_lines(text), path, {}, named.read):
                lines += launches_of_script(plain_lines(text), name, {}, named.read)
            elif path.endswith(_CONFIGURATIONS):
                configurations += _configurations(plain_lines(text), name)
            elif _is_python(path, text):
                module = read_configuration(plain_lines(text), name) if path.endswith(".py") else ()
                configurations += module
                scripts += [] if module else [read_python(plain_lines(text), name)]
            else:
                lines += launches_of_script(text, name, environ, named.read)
        except NoTrainingError as why:
            if leave_out is None:
                raise
            leave_out(str(why))
        except (UnreadableFile, NotAJobScript) as why:
            raise InputError(filled("{0}: {1}", name, why)) from None
    lines += [_launch_text(command, environ)] if command else []
    settings = {name: Setting(f"--{name.replace('_', '-')}", number, "command line") for name, number in counts.items()}
    return assemble(lines, GivenFiles(tuple(configurations), tuple(scripts)), named.read, settings)


def _launch_text(command: Sequence[str], environ: Mapping[str, str]) -> LaunchText:
    try:
        return LaunchText(read_launch_line(command, environ))
    except NotALaunchLine as why:
        raise InputError(filled("the command after --: {0}", why)) from None


def training_of_line(
    line: LaunchLine | None, script: str = "", time_limit_s: float | None = None
) -> TrainingLaunch | None:
    """The training that a launch line starts, with the files that it names; ``script``: where it stands.

    ``time_limit_s``: that of the job, in seconds; None where it is not known.
    """
    if line is None:
        return None
    folders = ["", *([os.path.dirname(script)] if script else [])]
    entry = LaunchText(line, printable(script, 200), time_limit_s=time_limit_s)
    named = _NamedFiles(folders)
    return assemble(follow(entry, {}, named.read), GivenFiles(), named.read)


def followed(path: str, environ: Mapping[str, str]) -> tuple[Callable[[LaunchLine], list[LaunchText]], ReadFile]:
    """What gives the launch lines of the script that a line of the job script ``path`` runs, and what gives files that
    it sources: see `launches_of_job_script`.
    """
    named = _NamedFiles(["", os.path.dirname(path)])
    return lambda line: follow(LaunchText(line, path), environ, named.read), named.read


def import_folder(source: JobEnvironment) -> str:
    """Where the job's Python looks first (``sys.path[0]``): the folder of its script, or with ``-m`` its working
    folder. Absolute; empty where that is not known.
    """
    line = source.line
    if line is None or line.container or source.environ.get("PYTHONSAFEPATH") or "program" in line.unresolved:
        return ""
    if line.is_module:
        return os.getcwd() if source.starts_here else ""
    return os.path.dirname(os.path.abspath(line.program)) if line.program.endswith(".py") else ""


def program_path(source: JobEnvironment) -> str:
    """The file that the line starts on each host; empty where that is not known, as in a container or on the PATH.

    Absolute, unless each host chooses the folder in which it starts. Slurm, MPI and DeepSpeed start all ranks in the
    folder they are called in: srun(1) ``--chdir``, mpirun(1) ``-wdir``, deepspeed/launcher/multinode_runner.py.
    """
    line = source.line
    if line is None or line.is_module or line.program in ("", "-", "-c"):
        return ""
    if any("bcast" in call.options for call in line.launchers):  # it starts a copy
        return ""
    if {"program", "folder of the program"} & line.unresolved.keys() or not (line.interpreter or "/" in line.program):
        return ""
    path = next(iter(_where_it_starts(source, [line.program])), "")
    return "" if path in _behind_cd(source) else path


def _behind_cd(source: JobEnvironment) -> list[str]:
    """The folder to which the job script changes before the line, unless it makes it; and the program within it, if
    commands may make it.

    Empty where that is not sure.
    """
    line = source.line
    if line is None or not line.start_folder or os.path.isabs(line.program) or not line.program.endswith(".py"):
        return []
    if _start_folder(line) != line.start_folder:
        return []
    folder = [] if line.makes_folder else [line.start_folder]
    return _where_it_starts(source, [*folder, *[line.program] * line.makes_files])


def _module(source: JobEnvironment) -> tuple[str, ...]:
    """The command that starts Python, the module that it starts, empty of a file, the folder, and what the launcher
    imports; none if not sure.
    """
    line = source.line
    if line is None or "program" in line.unresolved or not (line.is_module or program_path(source).endswith(".py")):
        return ()
    command, folder = _starting(line), _where_it_starts(source, ["."])
    changes = any(name.endswith("prolog") for call in line.launchers for name in call.options)
    if line.is_module and re.search(r"/|\.py$", line.program):  # no module: `launch-option-refused` tells
        return ()
    if not (folder or line.is_module) and line.is_first and os.path.isabs(command) and os.path.isabs(line.program):
        folder = [os.path.dirname(line.program)]  # where Python looks first, wherever it starts
    is_told = line.is_first or not (line.makes_folder or _behind_cd(source))
    if changes or not (folder and is_told and re.match("torchrun|python", os.path.basename(command))):
        return ()
    has_path = bool(line.launchers) and line.launchers[0].launcher == "srun" and not source.is_of_script
    if not (os.path.isabs(command) or all(is_plain(word.split()[0]) for word in line.wrappers)):
        return ()  # another user's
    if has_path or not (line.is_module or _by_login(source)):  # another Python says nothing of what this one imports
        command = shutil.which(command, path=source.environ.get("PATH", "")) or (command if line.is_module else "")
    return (command, line.program if line.is_module else "", *folder, *_needs(line)) if command else ()


def _needs(line: LaunchLine) -> list[str]:
    """The modules that torchrun imports. Source: PyTorch, torch/distributed/elastic/rendezvous, etcd's backends."""
    call = line.innermost
    if call is None or call.launcher != "torchrun":
        return []
    needed = {"etcd": ["etcd"], "etcd-v2": ["etcd", "urllib3"]}.get(call.rdzv_backend, [])
    return [call.command.partition(" -m ")[2] or "torch.distributed.run", *needed]


def _starting(line: LaunchLine) -> str:
    """The command that starts Python on each host."""
    call = line.innermost
    command = line.interpreter if call is None or call.launcher in STARTS_TASKS else call.command.partition(" ")[0]
    return next((path for path in line.paths if os.path.basename(path) == command), command)


def _interpreter(source: JobEnvironment) -> str:
    """The path of the Python that the line names, or that the launcher of its path was installed for."""
    line = source.line
    scripts = filter(os.path.isabs, line.paths[-1:]) if line else ()
    paths = [_starting(line), *map(_installed_for, scripts)] if line else []
    named = [path for path in paths if re.match(r"/.*/python[^/]*\Z", path)]
    return "".join(_where_it_starts(source, named[:1]))


_ENVIRONMENT = re.compile(r"(?:venv[^/]{0,64}|/envs?/[^/]{1,64}|conda[0-9]?)/bin\Z")
"""The folder of the programs of a virtual environment or one of conda, by the usual names."""


def _installed_for(path: str) -> str:
    """The interpreter of a console script that is here too, or in an environment of Python; empty without one.

    Source: distlib, scripts.py, of pip; venv and conda have their python3 beside their scripts.
    """
    try:
        start = read_bounded(path, 4096).decode("utf-8", "replace")
    except (OSError, ValueError):
        folder = os.path.dirname(path)
        return os.path.join(folder, "python3") if _ENVIRONMENT.search(folder) else ""
    named = re.match(r"#!(?:/bin/sh\n'''exec' )?\"?(/[^\s\"]+)", start)
    return named[1] if named else ""


def _needed(line: LaunchLine, environ: Mapping[str, str]) -> list[str]:
    """Configurations, where Open MPI starts the ranks, what srun runs before and after them, NCCL's file of graphs."""
    paths = [call.option(name) for call in line.launchers for name in ("wdir", "task-prolog", "task-epilog")]
    copies = [os.path.dirname(call.option("bcast")) for call in line.launchers]
    paths += [*copies, *line.paths, environ.get("NCCL_GRAPH_FILE", "")]
    files = named_configurations(line)
    return [*(filter(os.path.isabs, files) if line.makes_files else files), *filter(os.path.isabs, paths)]


def _counts_gpus(source: JobEnvironment) -> bool:
    call = source.line.innermost if source.line else None
    return call is not None and call.ranks_by_devices == "gpu" and bool(_where_it_starts(source, ["/"]))


def _output(source: JobEnvironment) -> str:
    """The folder for logs of a launcher that makes it."""
    calls = source.line.launchers if source.line else ()
    paths = [call.option("log-dir") for call in calls if "log-dir" not in call.unresolved]
    return next(iter(_where_it_starts(source, list(filter(None, paths)))), "")


def _where_it_starts(source: JobEnvironment, paths: Sequence[str]) -> list[str]:
    """Those of the paths of a launch line whose place on the hosts is known, as `program_path` says."""
    line = source.line
    by_directive = any(name.startswith("container") for name in source.requested.options)
    if line is None or line.conditional or by_directive or _in_container(line, source.environ):
        return []
    folder = _start_folder(line)
    is_known = folder is not None and (os.path.isabs(folder) or not source.is_of_script)
    keeps_folder = any(call.launcher in _KEEP_FOLDER for call in line.launchers[:1])
    placed = [os.path.join(folder or "", path) for path in paths if is_known or os.path.isabs(path)]
    return [os.path.abspath(path) for path in placed] if keeps_folder else placed


def _start_folder(line: LaunchLine) -> str | None:
    """The folder in which the ranks of all hosts start; empty: the present one; None: it is not known."""
    changes, call = _CHANGES_FOLDER.findall(line.text), next(iter(line.launchers), None)
    option = _FOLDER_OPTIONS.get(call.launcher, "") if call else ""
    if call and len(changes) == 1 and option in call.options and option not in call.unresolved:
        return call.option(option)
    is_here = all(is_plain(word.split()[0]) for word in line.wrappers)
    return None if changes else line.start_folder if is_here else ""


def _in_container(line: LaunchLine, environ: Mapping[str, str]) -> bool:
    """Also in one that Slurm's Pyxis or its own runtime starts: ``srun --container-image``, ``--container``."""
    by_option = any(name.startswith("container") for call in line.launchers for name in call.options)
    by_variable = any(name.startswith(("SLURM_CONTAINER", "PYXIS_")) for name in environ)
    elsewhere = any(call.launcher == "ssh" for call in line.launchers)
    return bool(line.container) or by_option or by_variable or elsewhere


def _job_environ(source: JobEnvironment) -> dict[str, str]:
    """What the ranks get, without a TMPDIR of a script whose commands may make that folder before the line."""
    line = source.line
    is_known = line is not None and not line.conditional and (line.is_first or not source.is_of_script)
    return {name: value for name, value in source.environ.items() if is_known or name != "TMPDIR"}


def _by_login(source: JobEnvironment) -> bool:
    """Whether a shell on each host starts a line that was given, and no job script's."""
    return source.line is not None and not source.is_of_script and starts_by_login(source.line, source.environ)


def with_launch_line(options: ExamineOptions, source: JobEnvironment, script: str = "") -> ExamineOptions:
    """The options with all that the launch line tells; ``script``: the job script in which it stands."""
    launch = options.launch
    if not launch.python:
        launch = msgspec.structs.replace(launch, python=_interpreter(source))
    inputs, results = ([], []) if source.line is None else named_data(source.line)
    limits = [limit for limit in (launch.time_limit_s, launch.time_left_s) if limit is not None]
    return msgspec.structs.replace(
        options,
        launch=launch,
        training=training_of_line(source.written or source.line, script, min(limits, default=None)),
        login=source.login,
        by_login=_by_login(source),
        job_environ=_job_environ(source),
        import_folder=import_folder(source),
        program=program_path(source),
        is_started=bool(source.line and not source.line.interpreter),
        files=(*_where_it_starts(source, _needed(source.line, source.environ)), *_behind_cd(source))
        if source.line
        else (),
        inputs=tuple(_where_it_starts(source, inputs)),
        results=tuple(_where_it_starts(source, results)),
        module=_module(source),
        output=_output(source),
        counts_gpus=_counts_gpus(source),
        code=code_of_line(source.line) if options.reads_settings else None,
    )


def read_text(path: str) -> str:
    """A file of the command line, with the ends of its lines as they are. Raises: InputError."""
    with refusing_unreadable(path, "a job script, a configuration or a program"):
        return read_bounded(path, MAX_BYTES).decode("utf-8-sig")


def _is_python(path: str, text: str) -> bool:
    return path.endswith(".py") or (text.startswith("#!") and "python" in text.split("\n", 1)[0])


def _configurations(text: str, name: str) -> tuple[Configuration, ...]:
    configurations = read_configuration(text, name)
    if not configurations:
        raise NoTrainingError(
            filled(
                "{0}: no setting of a known framework; expected a configuration of DeepSpeed, Transformers, "
                "MindFormers, Accelerate, Lightning, NeMo, FSDP, axolotl, torchtune or torchtitan",
                name,
            )
        )
    return configurations


class _NamedFiles:
    """Files that launch lines name: relative to the working folder, else to the folder of a file that was given."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.folders = folders
        self.texts: dict[str, str | None] = {}

    def read(self, path: str) -> str | None:
        """The text; None for what is not here, is too large or is no text."""
        if path not in self.texts and len(self.texts) < MAX_FILES:
            self.texts[path] = next((text for text in map(self._try, self._candidates(path)) if text is not None), None)
        return self.texts.get(path)

    def _candidates(self, path: str) -> list[str]:
        if os.path.isabs(path):
            return [path]
        above = [os.path.join(folder, *[".."] * level) for level in range(1, _LEVELS) for folder in self.folders[1:]]
        return [os.path.join(folder, path) for folder in [*self.folders, *above]]

    def _try(self, path: str) -> str | None:
        try:
            text = read_bounded(path, MAX_BYTES).decode("utf-8-sig")
            return text if path.endswith(SHELL_SCRIPTS) else plain_lines(text)
        except (OSError, ValueError):
            return None
