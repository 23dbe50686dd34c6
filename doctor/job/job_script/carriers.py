"""Files in YAML that carry launch lines, read as job scripts: rows of ``carriers.toml``. Pure; nothing of them is run.

The script has each word of a command in its line of the file. A kubelet replaces ``$(NAME)`` by a variable of the
container, and starts the words without a shell.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled, joined
from doctor.engine.toml_compat import read_table
from doctor.job.job_script.directives import Resources
from doctor.job.job_script.lines_of_one_job import host_over_ssh, meets_at, on_one_machine, with_misfits
from doctor.job.job_script.read import JobScript, read_job_script
from doctor.job.job_script.task_files import shell_of_recipes
from doctor.job.job_size import ONE_ON_EACH_HOST
from doctor.job.launch_line.model import LaunchCall, LaunchLine
from doctor.job.launch_line.read import SHELLS
from doctor.job.launch_line.wrappers import within_container
from doctor.job.training.tree import Node, read_documents
from doctor.job.variable_names import meant_key
from doctor.job.variables import TABLE_VARIABLES

SUFFIXES = (".yaml", ".yml")
_HOLDERS = ("items.*", "spec.components.*.template")  # where a List and an AppWrapper have other manifests
_DEVICES = re.compile(r"(?:nvidia|amd)\.com/gpu|huawei\.com/(?:Ascend[0-9]{3}[A-Z]?|npu)")
_TEMPLATE = re.compile(r"(\$\{?[A-Za-z_]\w{0,80}\}?|\$\([^()\n]{1,200}\)|\{\{[^{}\n]{0,200}\}\})")


class LaunchCarrier(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of file."""

    name: str
    """The kind of a manifest, behind its API group where others have a kind of this name; else the tool."""
    source: str
    marks: tuple[str, ...] = ()
    """Paths that a file has which is no manifest."""
    groups: tuple[str, ...] = ()
    keys: str = ""
    """Of ``spec``, with spaces between; empty: not judged."""
    group_keys: str = ""
    """Of a group."""
    pod: str = "template.spec"
    replicas: tuple[str, ...] = ()
    """In a group: numbers whose product is its hosts."""
    total: str = ""
    """The hosts of the job."""
    joins: bool = False
    """All groups are hosts of one job, also where they run different programs."""
    numbers: bool = False
    """Ranks get their numbers without a launcher."""
    ranks_per_host: str = ""
    slots: str = ""
    """Ranks that mpirun may start on each host of the group ``Worker``."""
    changes: tuple[str, ...] = ()
    """Where the file says that what a text may use is more or less than the devices of the other groups."""
    sets: tuple[str, ...] = ()
    """Variables with a value of each host's own."""
    hosts_variable: str = ""
    devices_variable: str = ""
    commands: tuple[str, ...] = ("command", "args")
    """Keys with the words of a command."""
    texts: tuple[str, ...] = ()
    """Keys with shell text."""
    environ: tuple[str, ...] = ("env",)
    """Keys with variables, also of what is around a group."""
    devices: str = ""
    """In a group: their number, also as ``H100:8``; empty: limits of the containers."""
    single: tuple[str, ...] = ()
    """Groups of one host."""
    container: str = ""
    """The name that a container must have."""
    restarts: tuple[str, ...] = ()
    """What restartPolicy may be."""
    strings: tuple[str, ...] = ()
    """Mappings of a group whose values must be strings."""
    gang: str = ""
    """Hosts that must be there at once."""

    @property
    def kind(self) -> str:
        """Without the API group."""
        return self.name.rpartition("/")[2]


@cache
def _carriers() -> list[LaunchCarrier]:
    return read_table(Path(__file__).with_suffix(".toml"), dict[str, list[LaunchCarrier]])["carrier"]


@cache
def _keys() -> dict[str, str]:
    return read_table(Path(__file__).with_name("manifest_keys.toml"), dict[str, str])


def is_carrier(name: str) -> bool:
    """Whether a launcher of a line is a kind of file that carries it."""
    return any(name == row.kind for row in _carriers())


class _Group(NamedTuple):
    name: str
    node: Node
    around: tuple[Node, ...]
    """From the top to the group, and the containers of its pods."""
    hosts: int | None
    """None: a template gives it."""


def scripts_of(
    text: str, path: str, environ: Mapping[str, str], read_file: Callable[[str], str | None] = lambda _: None
) -> list[JobScript]:
    """The job scripts that a file carries, or the one that it is; none: it carries no launch.

    ``environ``: what a script inherits; a container does not. Raises: NotAJobScript, UnreadableFile.
    """
    if not path.endswith(SUFFIXES):
        script = read_job_script(shell_of_recipes(text, path) or text, environ, read_file=read_file)
        return with_misfits([script], host_over_ssh)
    documents = read_documents(text)
    held = [node for document in documents for path in _HOLDERS for node in document.find(path)]
    rows = [
        (next((row for row in _carriers() if _is_of(row, document)), None), document) for document in documents + held
    ]
    files = [_File(row, document, read_file) for row, document in rows if row is not None]
    return [script for file in files for script in file.scripts()] or [
        file.of_image() for file in files if file.is_open
    ]


def _is_of(row: LaunchCarrier, document: Node) -> bool:
    if row.marks:
        return all(any(document.find(path)) for path in row.marks)
    group = document.text("apiVersion").partition("/")[0]
    kind = document.text("kind")
    return bool(kind) and row.name in (kind, f"{group}/{kind}") and "spec" in document.entries


class _File:
    def __init__(self, row: LaunchCarrier, document: Node, read_file: Callable[[str], str | None]) -> None:
        self.row = row
        self.document = document
        self.read_file = read_file
        self.groups = [self._group(node, around) for path in row.groups for node, around in document.walk(path)]
        self.sum = _sum(self.groups)
        self.total = document.number(row.total) if row.total else self.sum
        self.problems = tuple(self._refused())
        self.commands = [
            (group, script)
            for group in self.groups
            for container in (group.node, *group.node.find(f"{row.pod}.containers.*"))
            if (script := self._script(group, container)) is not None
        ]
        self.is_open = bool(self.groups) and not (row.marks or self.commands)
        """A manifest without a command: what its pods run is not known."""

    def _group(self, node: Node, around: tuple[Node, ...]) -> _Group:
        numbers = [node.number(path) if any(node.find(path)) else 1 for path in self.row.replicas]
        hosts = None if None in numbers else math.prod(number or 0 for number in numbers)
        return _Group(node.text("name") or node.key, node, around, hosts)

    def of_image(self) -> JobScript:
        """With what is refused of the manifest alone."""
        line = LaunchLine(
            text=f"{self.row.kind} {self.document.text('metadata.name')}",
            line=self.document.line,
            unresolved={"program": "no container names a command: that of its image"},
            problems=self.problems,
        )
        return JobScript(launch_lines=(line,))

    def scripts(self) -> list[JobScript]:
        read = [(group, script) for group, script in self.commands if _may_start_ranks(script)]
        if not read and self.problems and not self.row.marks:
            return [self.of_image()]
        starting = [group for group, script in read if any(_on_each_host(line) for line in script.launch_lines)]
        several = _sum(starting)
        joined_hosts = self.total if self.row.joins or self.row.total else several
        names = [group.name if group.hosts == 1 and self.row.marks else "" for group, _ in read]
        scripts = [
            msgspec.structs.replace(
                script,
                launch_lines=tuple(
                    self._around(line, group, joined_hosts, self.problems if not position else ())
                    for line in script.launch_lines
                ),
            )
            for position, (group, script) in enumerate(read)
        ]
        return on_one_machine(with_misfits(scripts, lambda at, line: names[at] if meets_at(line) in names else ""))

    def _around(
        self, line: LaunchLine, group: _Group, hosts: int | None, problems: tuple[OptionProblem, ...]
    ) -> LaunchLine:
        """The line as each of the hosts runs it."""
        line = msgspec.structs.replace(line, is_alone=False, problems=(*line.problems, *problems))
        if not (_on_each_host(line) or (self.row.numbers and not line.launchers)):
            return line
        alone = (group.hosts, group.node.number(self.row.replicas[-1]) if self.row.replicas else None)
        if line.nodes in alone and line.launchers and not self.row.joins:
            hosts = line.nodes  # a job of its own, and of a JobSet each replica is one
        if hosts is None or hosts < 2:
            return line
        kind = self.row.kind
        outer = LaunchCall(
            launcher=kind,
            command=kind,
            nodes=hosts,
            max_nodes=hosts,
            ranks=hosts,
            ranks_per_node=1,
            standalone=group.hosts == 1 < len(self.groups),
        )
        return msgspec.structs.replace(line, launchers=(outer, *line.launchers))

    def _script(self, group: _Group, container: Node) -> JobScript | None:
        variables = _variables(self.row, (*group.around, container))
        devices = self._devices(group, container)
        variables = {**self._variables_of_controller(devices), **variables}
        texts = _lines(self.row, container, variables)
        if not texts:
            return None
        exports = [
            f"{name}={shlex.quote(value) if is_exact else value}" for name, (value, is_exact) in variables.items()
        ]
        texts[1] = " ".join(["export", *exports, ";", texts.get(1, "")])
        text = "\n".join(texts.get(number, "") for number in range(1, max(texts) + 1))
        requested = Resources(gpus_per_node=devices, slots=self._slots(group))
        script = read_job_script(text, {}, read_file=self.read_file, requested=requested)
        image = printable(container.text("image") or ("" if self.row.marks else self.row.kind), 200)
        keys = {key: node.value for key, node in container.entries.items()} | {"kind": self.row.kind}
        keys = keys if self.row.marks == ("services",) else {}
        services = [group.name for group in self.groups]
        launch_lines = tuple(within_container(line, image, keys, services) for line in script.launch_lines)
        scripts = tuple(within_container(line, image, {}, ()) for line in script.scripts)
        return msgspec.structs.replace(script, launch_lines=launch_lines, scripts=scripts)

    def _variables_of_controller(self, devices: int | None) -> dict[str, tuple[str, bool]]:
        """Variables that a controller sets, and whether their value is known here."""
        variables = {name: (f'"$({self.row.kind} {name})"', False) for name in self.row.sets}
        each = self.document.text(self.row.ranks_per_host) if self.row.ranks_per_host else ""
        if each.isdecimal():
            variables["PET_NPROC_PER_NODE"] = (each, True)
        if self.row.joins and self.total and not any(self.document.find("spec.elasticPolicy")):
            variables["PET_NNODES"] = (str(self.total), True)
        if self.row.hosts_variable and (self.total or not self.row.total):
            variables[self.row.hosts_variable] = (str(self.total), True)
        if self.row.devices_variable and devices:
            variables[self.row.devices_variable] = (str(devices), True)
        return variables

    def _slots(self, group: _Group) -> int | None:
        """Ranks that may start on all hosts, of Ray its GPUs and NPUs; None where nothing says it."""
        if self.row.slots:
            each = self.document.number(self.row.slots)
            workers = next((other.hosts for other in self.groups if other.name == "Worker"), None)
            return each * workers if each and workers else None
        others = [other for other in self.groups if other is not group]
        is_open = any(node.value != "false" for path in self.row.changes for node in self.document.find(path))
        if not self.row.changes or is_open or None in (other.hosts for other in others):
            return None
        pods = [(other, node) for other in others for node in other.node.find(f"{self.row.pod}.containers.*")]
        return sum((other.hosts or 0) * (self._devices(other, node) or 0) for other, node in pods) or None

    def _devices(self, group: _Group, container: Node) -> int | None:
        """Of a host; None where nothing says it."""
        if self.row.devices:
            nodes = [node.value or next(iter(node.entries), "") for node in group.node.find(self.row.devices)]
            numbers = [text.rpartition(":")[2] for text in nodes if isinstance(text, str)]
            numbers = [*(node.value for node in group.node.find(f"{self.row.devices}.*")), *numbers]
            ids = [*group.node.find(self.row.devices.removesuffix("count") + "device_ids.*")]  # of docker compose
            return next((int(text) for text in numbers if text.isascii() and text.isdecimal()), len(ids) or None)
        pods = container.find("resources.limits.*"), container.find("resourcesPerNode.limits.*")
        limits = [node for limit in pods for node in limit if _DEVICES.fullmatch(node.key)]
        if container is group.node and self.row.texts:  # it runs on the hosts of the other groups
            near = (node for other in self.groups for node in other.node.find(f"{self.row.pod}.containers.*"))
            limits = [node for pod in near for node in pod.find("resources.limits.*") if _DEVICES.fullmatch(node.key)]
        return next((node.number() for node in limits), None)

    # -- what an API server or a controller refuses

    def _refused(self) -> Iterator[OptionProblem]:
        if self.row.marks:
            return
        for spec in self.document.find("spec"):
            yield from self._unknown_keys(spec, self.row.keys)
        for group in self.groups:
            yield from self._refused_of_group(group)
            for container in group.node.find(f"{self.row.pod}.containers.*"):
                yield from self._refused_of_container(container)
        minimum = self.document.number(self.row.gang) if self.row.gang else None
        if minimum and self.sum is not None and minimum > self.sum:
            yield self._problem(self.row.gang, minimum, filled("at most {0}, the replicas of all tasks", self.sum))

    def _unknown_keys(self, node: Node, allowed: str) -> Iterator[OptionProblem]:
        """Keys that kubectl refuses to send, as each is another one misspelt."""
        for key in node.entries:
            if meant := meant_key(key, allowed.split()):
                yield self._problem(key, "", meant)

    def _problem(self, option: str, value: object, expected: str) -> OptionProblem:
        return OptionProblem(self.row.kind, option, printable(str(value), 80), expected)

    def _refused_of_group(self, group: _Group) -> Iterator[OptionProblem]:
        yield from self._unknown_keys(group.node, self.row.group_keys)
        for pod in group.node.find(self.row.pod):
            yield from self._unknown_keys(pod, _keys()["pod"])
        for path in self.row.replicas:
            for node in group.node.find(path):
                if node.value and not node.is_template and not isinstance(node.scalar, int):
                    yield self._problem(path.rpartition(".")[2], node.value, "a whole number, without quotes")
        if group.name in self.row.single and (group.hosts or 1) > 1:
            yield self._problem("replicas", filled("{0} of {1}", group.hosts, group.name), "1")
        yield from self._out_of_bounds(group)
        for path in self.row.strings:
            for node in group.node.find(f"{path}.*"):
                if not node.is_text and not node.is_template:
                    yield self._problem(node.key, node.value, filled("a string: {0}", f'"{node.value}"'))
        policy = group.node.text(f"{self.row.pod}.restartPolicy")
        if policy and self.row.restarts and policy not in self.row.restarts:
            yield self._problem("restartPolicy", policy, joined(" or ", self.row.restarts))
        job = "template.spec." if self.row.kind == "JobSet" else ""
        if group.node.text(f"{job}completionMode") == "NonIndexed" and group.node.mentions("JOB_COMPLETION_INDEX"):
            yield self._problem("completionMode", "NonIndexed", "Indexed, as the command reads JOB_COMPLETION_INDEX")
        names = [node.text("name") for node in group.node.find(f"{self.row.pod}.containers.*")]
        if self.row.container and names and self.row.container not in names:
            yield self._problem("name", joined(", ", names), self.row.container)

    def _out_of_bounds(self, group: _Group) -> Iterator[OptionProblem]:
        least, most = group.node.number("minReplicas"), group.node.number("maxReplicas")
        if group.hosts is not None and least is not None and group.hosts < least:
            yield self._problem("replicas", group.hosts, filled("at least {0}, as minReplicas says", least))
        if group.hosts is not None and most is not None and group.hosts > most:
            yield self._problem("replicas", group.hosts, filled("at most {0}, as maxReplicas says", most))

    def _refused_of_container(self, container: Node) -> Iterator[OptionProblem]:
        yield from self._unknown_keys(container, _keys()["container"])
        for node in container.find("env.*"):
            value = node.entries.get("value")
            if value is not None and not value.is_text and not value.is_template and value.value:
                yield self._problem(node.text("name"), value.value, filled("a string: {0}", f'"{value.value}"'))
        for key in self.row.commands:
            for node in container.find(f"{key}.*"):
                if not node.is_text and not node.is_template:
                    yield self._problem(key, node.value, filled("a string: {0}", f'"{node.value}"'))
        limits = {node.key: node for node in container.find("resources.limits.*")}
        for node in container.find("resources.requests.*"):
            limit = limits.get(node.key)
            if not _DEVICES.fullmatch(node.key) or node.is_template or (limit and limit.is_template):
                continue
            if limit is None:
                yield self._problem(node.key, filled("{0} in requests alone", node.value), "the same in limits")
            elif limit.value != node.value:
                yield self._problem(
                    node.key, filled("{0} in requests", node.value), filled("{0}, as in limits", limit.value)
                )


def _may_start_ranks(script: JobScript) -> bool:
    """Also one that is not understood."""
    parts = (script.launch_lines, script.services, script.scripts, script.not_understood)
    return script.refused or any(parts)


def _sum(groups: Sequence[_Group]) -> int | None:
    """The hosts of all; None where a template gives some."""
    sizes = [group.hosts for group in groups]
    return None if None in sizes else sum(number or 0 for number in sizes)


def _on_each_host(line: LaunchLine) -> bool:
    return line.innermost is not None and line.innermost.launcher in ONE_ON_EACH_HOST and len(line.launchers) == 1


def _variables(row: LaunchCarrier, around: Sequence[Node]) -> dict[str, tuple[str, bool]]:
    """By name the value, and whether it is known; else shell text that only a host can compute."""
    listed: dict[str, tuple[str, bool]] = {}
    for node in around:
        for entry in (entry for key in row.environ for entry in node.find(f"{key}.*")):
            name, _, value = entry.value.partition("=")
            if entry.entries:
                name, value = entry.text("name"), entry.text("value")
                of_field = next(iter(entry.find("valueFrom.*")), None)
                if of_field is not None:
                    listed[name] = (f'"$(valueFrom {of_field.key})"', False)
                    continue
            elif not entry.key.isdecimal():
                name, value = entry.key, entry.value
            if re.fullmatch(r"[A-Za-z_]\w{0,200}", name, re.ASCII):
                value = '"$(file of the container)"' if name in TABLE_VARIABLES else value
                is_known = not _TEMPLATE.search(value)
                listed[name] = (value, True) if is_known else (_shell_word(value, listed), False)
    return listed


def _lines(row: LaunchCarrier, container: Node, variables: Mapping[str, tuple[str, bool]]) -> dict[int, str]:
    """The text of the script by its line in the file."""
    lines: dict[int, str] = {}
    nodes = [node for key in row.commands for node in container.find(key)]
    argv = [word for node in nodes for word in (node.entries.values() if node.entries else [node])]
    texts = [node for key in row.texts for node in container.find(key)]
    texts = [text for node in texts for text in (node.find("cmd") if node.entries else [node])]
    if nodes and not any(node.entries for node in nodes):
        texts, argv = [*texts, *argv], []  # a command in one string
    is_shell = bool(argv) and argv[0].value.rpartition("/")[2] in SHELLS
    option = next((at for at, word in enumerate(argv) if is_shell and re.fullmatch(r"-\w{0,8}c", word.value)), 0)
    if option and len(argv) > option + 1:
        texts, argv = [*texts, argv[option + 1]], []
    for node in texts:
        text = re.sub(r"\$\(([A-Za-z_]\w{0,80})\)", lambda match: _of_kubelet(match, variables), node.value)
        text = re.sub(r"\{\{[^{}\n]{0,200}\}\}", '"$(template)"', text)
        for number, line in enumerate(text.split("\n"), node.first_line):
            lines[number] = f"{lines[number]}; {line}" if lines.get(number) else line
    previous = 0
    for word in argv:
        text = _shell_word(word.value.replace("\n", " "), variables)
        for number in range(previous, word.line) if previous else ():
            lines[number] = (lines.get(number, "") + " \\").lstrip()
        lines[word.line] = (lines.get(word.line, "") + " " + text).strip()
        previous = word.line
    return lines


def _of_kubelet(match: re.Match[str], variables: Mapping[str, object]) -> str:
    return f"${{{match[1]}}}" if match[1] in variables or match[1].isupper() else match[0]  # an operator may declare it


def _shell_word(text: str, variables: Mapping[str, tuple[str, bool]]) -> str:
    """A word for a shell: quoted but for what a kubelet or a template puts in."""
    parts: list[str] = []
    for part in _TEMPLATE.split(text):
        name = part.strip("${()}")
        if not _TEMPLATE.fullmatch(part) or (part[:2] not in ("$(", "{{") and variables.get(name, ("$", False))[1]):
            parts.append(shlex.quote(part) if part else "")  # no shell is there to replace it
        elif part.startswith("$(") and (name in variables or name.isupper()):
            parts.append(f'"${{{name}}}"')
        else:
            parts.append('"$(template)"' if part.startswith("{{") else f'"{part}"')
    return "".join(parts) or "''"
