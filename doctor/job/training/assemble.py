"""Puts launch lines, configurations and programs together: which are used with which."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import STARTS_TASKS
from doctor.job.launch_line import LaunchCall, LaunchLine
from doctor.job.training.configurations import Arguments, of_arguments, of_nemo, of_server, of_tree, overridden, scalar
from doctor.job.training.host_slots import ReadFile, slots_of
from doctor.job.training.model import (
    CUDA_QUEUES,
    HCCL_TIMEOUTS,
    OF_CONTAINER,
    Configuration,
    Setting,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
)
from doctor.job.training.python_code import read_python
from doctor.job.training.python_config import read_python_config
from doctor.job.training.tree import UnreadableFile, read_json, read_toml, read_yaml
from doctor.job.variables import VISIBLE_DEVICES

_CONFIGS = "deepspeed deepspeed-config deepspeed-config-file config config-file cfg yaml-config job.config-file"
_TORCHTITAN = ("torchtitan.train", "torchtitan/train.py")
"""What reads a configuration of torchtitan by its own rules; other programs borrow its form."""
_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".py")
"""Of files that are read as configurations."""
_COUNTS = """
nnodes nproc-per-node nodes ntasks ntasks-per-node np npernode worker-num local-worker-num num-processes num-machines
num-nodes num-gpus ppn include
"""


class LaunchText(NamedTuple):
    """A launch line, and the script that it stands in."""

    line: LaunchLine
    path: str = ""
    """Empty: of the command line."""
    text: str = ""
    """Of the script, to find the line of an option."""
    time_limit_s: float | None = None
    """That the script asks the scheduler for, or the line sets."""
    gpus_per_node: int | None = None
    """That the script asks the scheduler for."""
    own_slots: Setting | None = None
    """Ranks that Open MPI starts on all hosts of a manifest (``slots``) or of a scheduler's job (``tasks``); or
    ``devices`` of them all.
    """

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line.line}" if self.path else "command line"

    def reading(self, read_file: ReadFile) -> ReadFile:
        """``read_file``, before which goes what the script itself writes before the line."""
        written = self.line.written
        return lambda path: written[path.removeprefix("./")] if path.removeprefix("./") in written else read_file(path)

    def place(self, option: str) -> str:
        """Where an option is written: the only line of the script that has it; else the launch line."""
        name = option.lstrip("-").replace("-", "[-_]")
        pattern = re.compile(rf"(?<![\w-])-{{1,2}}{name}(?![\w-])") if re.fullmatch(r"[\w\[\]-]{1,80}", name) else None
        return self._only_line(pattern)

    def place_of_override(self, key: str) -> str:
        """The same of ``KEY=VALUE``, as Hydra has it."""
        return self._only_line(re.compile(rf"(?<![\w.]){re.escape(key)}=") if len(key) < 200 else None)

    @property
    def place_of_gpus(self) -> str:
        """The directive that requests them."""
        return self._only_line(
            re.compile(
                r"^#SBATCH\s.*--(gres|gpus-per-(?:node|task))\b|^#PBS\s.*:n?gpus=|^\s*\w{1,20}\.com/(gpu|Ascend|npu)"
            )
        )

    def _only_line(self, pattern: re.Pattern[str] | None) -> str:
        lines = [number for number, line in enumerate(self.text.split("\n"), 1) if pattern and pattern.search(line)]
        return f"{self.path}:{lines[0]}" if self.path and len(lines) == 1 else self.where


class GivenFiles(NamedTuple):
    """Files that the user names beside launch lines."""

    configurations: tuple[Configuration, ...] = ()
    scripts: tuple[TrainingScript, ...] = ()


def assemble(
    lines: Sequence[LaunchText], files: GivenFiles, read_file: ReadFile, counts: dict[str, Setting] | None = None
) -> TrainingLaunch:
    """One job for each launch line; without one, one job of the files. ``counts``: what the user says of the launch."""
    counts = counts or {}
    jobs = [_job(line, files, read_file, counts) for line in lines]
    if not jobs:
        configurations = (*files.configurations, *_named_by(files.configurations, read_file))
        launch = {**_launch_of_accelerate(configurations, {}), **counts}
        _multiply(launch)
        jobs = [TrainingJob(launch, configurations, files.scripts)]
    return TrainingLaunch(tuple(jobs))


def read_configuration(text: str, path: str) -> tuple[Configuration, ...]:
    """The configurations of a JSON, TOML or YAML file, or of a Python module that is one. Raises: UnreadableFile."""
    if path.endswith(".py"):
        module = read_python_config(text)
        return of_tree(module, path) if module else ()
    tree = read_json(text) if path.endswith(".json") else read_toml(text) if path.endswith(".toml") else read_yaml(text)
    return of_tree(tree, path)


def _job(entry: LaunchText, files: GivenFiles, read_file: ReadFile, counts: dict[str, Setting]) -> TrainingJob:
    line, read_file = entry.line, entry.reading(read_file)
    arguments = Arguments(line.arguments, line.unresolved_arguments, entry.where)
    for option, setting in arguments.options.items():
        arguments.options[option] = Setting(setting.option, setting.value, entry.place(option), setting.undecided)
    for key, setting in arguments.overrides.items():
        arguments.overrides[key] = msgspec.structs.replace(setting, where=entry.place_of_override(key))
    launchers = [call.launcher for call in line.launchers]
    used = [*of_arguments(arguments, launchers, line.program), *files.configurations]
    scripts = list(files.scripts)
    for path in _named(arguments, line):
        used += _read_named(path, entry.where, read_file, {c.where for c in used})
    used += _named_by(used, read_file)
    if re.match(r"(?:.*/)?megatron_\w+\.py", line.program) and not {"nemo", "lightning"} & {c.framework for c in used}:
        used += of_nemo(arguments)
    options = _mindformers_options(arguments)
    for option, setting in arguments.options.items():
        if option.startswith("parallelism."):  # of torchtitan: what the line says wins over the file
            options[option.replace("-", "_")] = setting
    if line.program.startswith(("vllm.", "sglang.")):
        used.append(of_server(arguments, line.program.partition(".")[0]))
    used = [overridden(configuration, {**arguments.overrides, **options}) for configuration in used]
    used = [
        msgspec.structs.replace(configuration, incomplete=configuration.incomplete or arguments.incomplete)
        for configuration in used
        if configuration.framework != "torchtitan" or line.program.endswith(_TORCHTITAN)
    ]
    if line.program.endswith(".py") and not any(script.path == line.program for script in scripts):
        scripts += _read_program(line.program, read_file)
    used = [_with_machine(configuration, entry) for configuration in [*used, *_of_lightning(scripts)]]
    launch = _launch(entry)
    if "unnumbered" in launch and (prolog := _task_prolog(line, read_file)):
        launch["unnumbered"] = Setting("launcher", None, entry.where, prolog)
    launch.update(_launch_of_accelerate(used, launch))
    launch.update(slots_of(line, entry.own_slots, entry.place, read_file))
    launch.update(_launch_of_verl(used))
    launch.update(counts)
    _multiply(launch)
    unread = _unread(entry)
    if unread and not launch:
        launch["launcher"] = Setting("launcher", None, entry.where, unread)
    return TrainingJob(launch, tuple(used), tuple(scripts), unread)


def _unread(entry: LaunchText) -> str:
    """Why it is not known what the ranks run; text after ``python -c`` is a helper of the script, no training."""
    reason = entry.line.unresolved.get("program", "")
    return filled("the program: {0}", reason) if reason and entry.line.program != "-c" else ""


def _mindformers_options(arguments: Arguments) -> dict[str, Setting]:
    settings_by_option = {"use-parallel": "use_parallel", "run-mode": "run_mode"}
    return {
        settings_by_option[option]: setting
        for option, setting in arguments.options.items()
        if option in settings_by_option
    }


def named_configurations(line: LaunchLine) -> list[str]:
    """Paths with the suffix of a configuration that the launch line names and that are known."""
    paths = _named(Arguments(line.arguments, line.unresolved_arguments, ""), line)
    return [path for path in paths if path.endswith(_SUFFIXES[:4]) and not re.search(r"[$`*?]|://", path)]


def _named(arguments: Arguments, line: LaunchLine) -> list[str]:
    """Paths of configurations that the launch line names, each once."""
    paths = [arguments.text(option) for option in _CONFIGS.split()]
    paths += [arguments.text("config-path") + "/" + name for name in [arguments.text("config-name")] if name]
    for call in line.launchers:
        paths += [call.option(option) for option in ("config-file", "deepspeed-config-file")]
    paths += [word for word in arguments.positional if word.endswith(_SUFFIXES[:4])]
    return [
        path for path in dict.fromkeys(path.lstrip("/") if path.startswith("//") else path for path in paths) if path
    ]


def _named_by(used: Sequence[Configuration], read_file: ReadFile) -> list[Configuration]:
    """The DeepSpeed configurations that files for a Trainer, for axolotl or for LLaMA-Factory v1 name."""
    read: list[Configuration] = []
    for configuration in used:
        setting = configuration.settings.get("deepspeed")
        if setting is None or setting.where == configuration.where or not isinstance(setting.value, str):
            continue  # an option of the launch line is read with it
        if setting.value.endswith(".json"):
            read += _read_named(setting.value, setting.where, read_file, {other.where for other in [*used, *read]})
    return read


def _read_named(path: str, where: str, read_file: ReadFile, seen: set[str]) -> list[Configuration]:
    names = [path] if path.endswith(_SUFFIXES) else [f"{path}.yaml", path]
    for name in names:
        if name in seen:
            return []
        text = read_file(name)
        if text is None:
            continue
        try:
            return list(read_configuration(text, name))
        except UnreadableFile as why:
            return [Configuration("unreadable", name, {"file": Setting(name, None, name, str(why))})]
    if not path.endswith(_SUFFIXES):
        return []
    return [Configuration("unreadable", where, {"file": Setting(path, None, where, "cannot be read here")})]


def _read_program(path: str, read_file: ReadFile) -> list[TrainingScript]:
    text = read_file(path)
    if text is None:
        return []
    try:
        return [read_python(text, path)]
    except UnreadableFile:
        return []


def _of_lightning(scripts: Sequence[TrainingScript]) -> list[Configuration]:
    """What programs with one Trainer write into it, where it is for several ranks: a second one is often for a test."""
    listed = []
    for script in scripts:
        marks = script.all("devices") + script.all("machines")
        numbers = [int(mark.text or 0) for mark in marks]  # none: that of a Trainer with plugins
        if [mark.kind for mark in marks] == ["devices", "machines"] and min(numbers) > 0 and max(numbers) > 1:
            named = zip(marks, ("devices", "num_nodes"), strict=True)
            settings = {mark.kind: Setting(f"Trainer({name})", int(mark.text), mark.where) for mark, name in named}
            listed.append(Configuration("lightning", script.path, settings))
    return listed


def _variables(entry: LaunchText) -> dict[str, Setting]:
    """Visible devices, time limits and queues that the launch line sets."""
    line = entry.line
    settings: dict[str, Setting] = {}
    for variable in (*VISIBLE_DEVICES, "ASCEND_VISIBLE_DEVICES"):
        if variable in line.environ:
            settings["visible"] = Setting(variable, printable(line.environ[variable], 200), entry.where)
            break
    if entry.time_limit_s:
        settings["time_limit"] = Setting("the time limit", entry.time_limit_s, entry.place("time"))
    if entry.gpus_per_node:
        source = OF_CONTAINER if line.container else "GPUs of a host that are asked for"
        settings["gpus"] = Setting(source, entry.gpus_per_node, entry.place_of_gpus)
    for variable in ("NVIDIA_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES") if line.container else ():
        value = line.environ.get(variable, "")
        if re.fullmatch("[0-9]{1,3}(?:,[0-9]{1,3}){0,63}", value, re.ASCII):
            settings["gpus"] = Setting(OF_CONTAINER, value.count(",") + 1, entry.where)
    for variable in (*HCCL_TIMEOUTS, CUDA_QUEUES):
        if f"{variable}=" in line.unresolved:
            settings[variable] = Setting(variable, None, entry.where, line.unresolved[f"{variable}="])
        elif variable in line.environ:
            settings[variable] = Setting(variable, scalar(line.environ[variable]), entry.where)
    return settings


_OF_SLURM = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
_ON_EACH = ("nproc-per-node", "ntasks-per-node", "npernode", "local-worker-num", "num-gpus")


def _launch(entry: LaunchText) -> dict[str, Setting]:
    """Counts of the launch line. A plain program says nothing: it may start ranks itself."""
    line, call = entry.line, entry.line.innermost
    settings = _variables(entry)
    if call is None or call.launcher == "ssh":
        return settings
    settings["launcher"] = Setting("launcher", call.launcher, entry.where)
    may_set = line.container or "container-image" in call.options or any(word.endswith(" -c") for word in line.wrappers)
    if call.launcher in STARTS_TASKS and not may_set and not {"RANK", "RANK="} & {*line.environ, *line.unresolved}:
        settings["unnumbered"] = settings["launcher"]
    reason = _reason(call, line)
    why = reason or "the launch line does not say it"
    for name, value, options in (
        ("nodes", line.nodes, ("nnodes", "nodes", "num-nodes", "num-machines")),
        ("ranks_per_node", line.ranks_per_node, _ON_EACH),
        ("world_size", line.world_size, ("worker-num", "num-processes", "np", "ntasks", "nproc-per-node", "num-gpus")),
    ):
        option = next((option for option in options if option in call.options or option in call.unresolved), "")
        label = f"--{option}" if option and name != "world_size" else name.replace("_", " ")
        place = entry.place(option) if option else entry.where
        if value is not None:
            settings[name] = Setting(label, value, place)
        elif name != "world_size" or reason:
            settings[name] = Setting(label, None, place, why)
    settings.setdefault("world_size", Setting("world size", None, entry.where, why))
    add_own = _OF_LAUNCHERS.get(call.launcher)
    if add_own:
        add_own(call, entry, settings)
    return settings


def _task_prolog(line: LaunchLine, read_file: ReadFile) -> str:
    """What may set variables of srun's tasks; empty: nothing that is known here.

    Source: srun(1), "--task-prolog"; slurm.conf(5), "TaskProlog": a line ``export NAME=value`` of its output does.
    """
    call = line.innermost
    if call is None or call.launcher != "srun":
        return ""
    prolog = call.option("task-prolog") or line.environ.get("SLURM_TASK_PROLOG", "")
    texts = (read_file(path) or "" for path in (line.environ.get("SLURM_CONF", ""), *_OF_SLURM) if path)
    match = re.search(
        r"^[ \t]*TaskProlog[ \t]*=[ \t]*(\S+)", next(filter(None, texts), ""), re.MULTILINE | re.IGNORECASE
    )
    prolog = prolog or (match[1] if match else "")
    return filled("{0} may set variables of the tasks", f"TaskProlog={printable(prolog, 80)}") if prolog else ""


def _reason(call: LaunchCall, line: LaunchLine) -> str:
    for option in _COUNTS.split():
        if option in call.unresolved:
            return f"--{option} {call.unresolved[option]}"
    if call.ranks_by_devices:
        return filled("as many ranks as devices ({0})", call.ranks_by_devices)
    if call.max_nodes != call.nodes and call.nodes is not None:
        return filled("an elastic launch of {0} to {1} hosts", call.nodes, call.max_nodes)
    unresolved = {**line.unresolved, **call.unresolved}
    return next((source for name, source in unresolved.items() if not name.endswith("=")), "")


def _add_restarts(call: LaunchCall, entry: LaunchText, settings: dict[str, Setting]) -> None:
    """What decides whether ranks that are started again can meet; torchrun's defaults where nothing is said."""
    text = call.option("max-restarts") or "0"
    count = scalar(text) if "max-restarts" not in call.unresolved else None
    place = entry.place("max-restarts")
    reason = call.unresolved.get("max-restarts", "")
    settings["restarts"] = Setting("--max-restarts", count if isinstance(count, int) else None, place, reason or text)
    backend = "c10d" if call.standalone else call.option("rdzv-backend") or "static"
    unresolved = call.unresolved.get("rdzv-backend", "")
    place = entry.place("rdzv-backend")
    settings["rdzv_backend"] = Setting("--rdzv-backend", None if unresolved else backend, place, unresolved)
    name = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
    unresolved = entry.line.unresolved.get(f"{name}=", "")
    value = printable(entry.line.environ.get(name, "0"), 200)
    settings["own_store"] = Setting(name, None if unresolved else value, entry.where, unresolved)


def _add_msrun(call: LaunchCall, entry: LaunchText, settings: dict[str, Setting]) -> None:
    for name, option in (("workers", "worker-num"), ("local_workers", "local-worker-num")):
        text = call.option(option)
        if text and option not in call.unresolved:
            settings[name] = Setting(f"--{option.replace('-', '_')}", scalar(text), entry.place(option))
    if "join" in call.unresolved:
        settings["joined"] = Setting("--join", None, entry.place("join"), call.unresolved["join"])
    else:
        joined = call.option("join").lower() in ("true", "1", "yes")
        settings["joined"] = Setting("--join", joined, entry.place("join"))


_OF_LAUNCHERS = {"msrun": _add_msrun, "torchrun": _add_restarts, "accelerate": _add_restarts}
"""What adds the settings that one launcher has."""


def _launch_of_accelerate(used: Sequence[Configuration], launch: dict[str, Setting]) -> dict[str, Setting]:
    """Of ``accelerate launch``: what its options leave open, its configuration file decides."""
    launcher = launch.get("launcher")
    if launcher is not None and launcher.value != "accelerate":
        return {}
    settings: dict[str, Setting] = {}
    for configuration in used:
        if configuration.framework != "accelerate":
            continue
        for name, key in (("world_size", "ranks"), ("nodes", "machines")):
            value = configuration.settings.get(key)
            if value is not None and (name not in launch or launch[name].value is None):
                settings[name] = value
        settings.setdefault("launcher", Setting("launcher", "accelerate", configuration.where))
    merged = {**launch, **settings}
    ranks, nodes = (merged[name].value if name in merged else None for name in ("world_size", "nodes"))
    if isinstance(ranks, int) and isinstance(nodes, int) and nodes > 0 and ranks % nodes == 0:
        settings["ranks_per_node"] = Setting("processes on each machine", ranks // nodes, merged["world_size"].where)
    return settings


def _with_machine(configuration: Configuration, entry: LaunchText) -> Configuration:
    """What the line of ``accelerate launch`` says of this machine goes before the file."""
    call = entry.line.innermost
    if configuration.framework != "accelerate" or call is None or call.launcher != "accelerate":
        return configuration
    changed = dict(configuration.settings)
    for name, option in (("machine_rank", "machine-rank"), ("main_address", "main-process-ip")):
        if option in call.unresolved:
            changed.pop(name, None)  # each machine has its own
        elif option in call.options:
            words = f"--{option.replace('-', '_')}"
            changed[name] = Setting(words, scalar(call.option(option)), entry.place(option))
    return msgspec.structs.replace(configuration, settings=changed)


def _launch_of_verl(used: Sequence[Configuration]) -> dict[str, Setting]:
    """Of a program of verl or OpenRLHF that starts its ranks by Ray: hosts and ranks on each, from its arguments."""
    settings = next((other.settings for other in used if other.framework in ("verl", "openrlhf")), {})
    launch = {
        name: settings[key] for name, key in (("nodes", "machines"), ("ranks_per_node", "devices")) if key in settings
    }
    unknown = next((setting for setting in launch.values() if setting.value is None), None)
    if unknown or len(launch) > 1:
        launch["world_size"] = unknown or Setting("world size", None, launch["nodes"].where)
    return launch if len(launch) > 1 else {}


def _multiply(launch: dict[str, Setting]) -> None:
    """The world size from hosts and ranks on each, where nothing else gives it."""
    nodes, ranks, world = (launch.get(name) for name in ("nodes", "ranks_per_node", "world_size"))
    if nodes is None or ranks is None or (world is not None and world.value is not None):
        return
    if isinstance(nodes.value, int) and isinstance(ranks.value, int):
        launch["world_size"] = Setting("world size", nodes.value * ranks.value, nodes.where)
