"""The table of commands: launchers, commands that run another one, and the options of both."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.engine.toml_compat import table_beside
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import OptionTable
from doctor.job.variable_names import documented_variables, is_misspelt

_UNREAD_LAUNCHERS = frozenset(("jsrun", "aprun", "ibrun", "lrun", "fleetrun", "torchx", "poe"))
"""Launchers whose options doctor does not know."""
_UNREAD_MODULES = frozenset(("oneflow.distributed.launch", "bagua.distributed.launch", "torch.distributed.elastic"))
_WITH_STRAY_SIGN = re.compile(
    r"(?im)^(--(?:[a-z]{1,20}[-_]){0,3}(?:lr|learning[-_]rate|weight[-_]decay|dropout|epochs|steps|batch[-_]size|"
    r"seq[-_]length|hidden[-_]size|num[-_]layers|warmup[-_]ratio|clip[-_]grad|seed))[=\n]"
    r"([0-9]{1,12}(?:\.[0-9]{1,12})?(?:e[+-]?[0-9]{1,3})?)([,;\"'`]{1,3})$"
)
"""An option that takes one number, and behind the number a sign of another text."""
_SILENT = """
pip pip3 conda mamba apt apt-get yum dnf spack module ml git which type command man whereis dpkg rpm pgrep pkill
killall kill ps grep egrep awk sed tee cat ls cp mv rm ln mkdir chmod find xargs touch export echo printf
"""
RUN_NO_WORDS = frozenset(_SILENT.split())
"""Commands that run none of their words."""


class LauncherRow(OptionTable, frozen=True, kw_only=True):
    """A launcher, and the options that say what its name says; other names of an option follow it, the first wins."""

    name: str
    commands: tuple[str, ...]
    modules: tuple[str, ...] = ()
    """As ``python -m`` runs it."""
    subcommands: dict[str, tuple[str, ...]] = {}
    """By command or module: words; one of them must follow it."""
    runs_python: bool = False
    """The program is a Python script, without an interpreter before it."""
    not_python: str = ""
    """The same, unless this option is given."""
    module: str = ""
    """The program is a Python module."""
    standalone: str = ""
    node_rank: str = ""
    master_addr: str = ""
    master_port: str = ""
    least_port: int = 0
    rdzv_backend: str = ""
    rdzv_endpoint: str = ""
    hostfile: str = ""
    of_launcher: str = ""
    """Options that programs usually lack: behind the program they were meant for the launcher."""
    source: str


class WrapperRow(OptionTable, frozen=True, kw_only=True):
    """How a command that runs another is written."""

    commands: tuple[str, ...]
    subcommands: tuple[str, ...] = ("",)
    """The word that must follow its name: ``run`` of docker."""
    after_dashes: bool = False
    """The command stands after ``--``, behind options that may follow the positional words."""
    runs_python: bool = False
    """The command is a Python script or, after ``-m``, a module."""
    positionals: int = 0
    """Words between the options and the command: a duration, an image."""
    is_container: bool = False
    own_network: bool = False
    """Without an option the container has a network of its own, within its machine."""
    inherits_environment: bool = True
    variables: tuple[str, ...] = ()
    """Options with ``NAME=value`` or ``NAME``."""
    is_remote: bool = False
    """The command is shell text for another host."""
    is_text: bool = False
    """The command, where it is one word, is the text of a shell."""
    shell_text: str = ""
    """The option with the text of a shell, before or behind the name of a user."""
    is_plain: bool = False
    """The command runs on this host, as this user, in this environment."""
    by_name: str = ""
    """It leaves out the environment without this option, behind which stand the names of what it keeps."""
    also: dict[str, str] = {}
    """By command, flags that only this one has."""
    is_other_user: bool = False
    """The command runs on this host, as a user who may find other programs, or may not start those of this one."""


class _NamedTable(OptionTable, frozen=True, kw_only=True):
    name: str


class _Tables(msgspec.Struct, forbid_unknown_fields=True):
    launcher: tuple[LauncherRow, ...]
    wrapper: tuple[WrapperRow, ...]
    table: tuple[_NamedTable, ...]


_tables = table_beside(__file__, _Tables)


@cache
def launcher_rows() -> dict[str, LauncherRow]:
    """By the commands that start it."""
    return {command: row for row in _tables().launcher for command in row.commands}


def meant_module(name: str) -> str:
    """The launcher's module that a dotted name is misspelt from; else the name.

    >>> meant_module("torch.distributed.runn"), meant_module("torch/distributed/run.py"), meant_module("train.run")
    ('torch.distributed.run', 'torch.distributed.run', 'train.run')
    """
    rows = module_rows()
    as_module = name.removesuffix(".py").replace("/", ".")
    near = [other for other in rows if name not in rows and "." in other and is_misspelt(as_module, other)]
    return near[0] if len(near) == 1 else name


@cache
def module_rows() -> dict[str, LauncherRow]:
    """By the modules that start it."""
    return {module: row for row in _tables().launcher for module in row.modules}


@cache
def wrapper_rows() -> dict[tuple[str, str], WrapperRow]:
    """By command and its subcommand; an empty one where it has none."""
    rows = [(name, row, row.also.get(name)) for row in _tables().wrapper for name in row.commands]
    own = [
        (name, msgspec.structs.replace(row, flags=f"{row.flags} {flags}") if flags else row)
        for name, row, flags in rows
    ]
    return {(name, word): row for name, row in own for word in row.subcommands}


def is_plain(wrapper: str) -> bool:
    """Whether what a wrapper runs is what the shell beside it would run, but for variables that ``env`` sets.

    >>> is_plain("nice"), is_plain("env"), is_plain("sudo"), is_plain("docker run")
    (True, True, False, False)
    """
    row = wrapper_rows().get((wrapper, ""))
    return wrapper == "env" or (row is not None and row.is_plain)


def stays_here(wrapper: str) -> bool:
    """Whether what a wrapper runs is run on this host, in its files and network.

    >>> stays_here("nice"), stays_here("sudo"), stays_here("docker run")
    (True, True, False)
    """
    return is_plain(wrapper) or any(row.is_other_user for (name, _), row in wrapper_rows().items() if name == wrapper)


@cache
def option_table(name: str) -> OptionTable:
    """The options of a shell, an interpreter, or the directives of a scheduler."""
    return next(table for table in _tables().table if table.name == name)


def launcher_among(command: Sequence[str]) -> str:
    """The launcher that a command names behind a program that is not followed; empty where it names none.

    >>> launcher_among(["debugpy-run", "-m", "torch.distributed.run", "-p", "1"]), launcher_among(["jsrun", "-n", "4"])
    ('torch.distributed.run', 'jsrun')
    >>> launcher_among(["pip", "install", "deepspeed"]), launcher_among(["pkill", "-f", "torchrun", "-9"])
    ('', '')
    """
    names = [word.rpartition("/")[2] for word in command[:64]]
    if not names or names[0] in RUN_NO_WORDS:
        return ""
    for before, name, after in zip(["", *names], names, [*names[1:], ""], strict=False):
        if before == "-m" and (name in module_rows() or name in _UNREAD_MODULES):
            return name
        is_command = name in launcher_rows() or name in _UNREAD_LAUNCHERS
        if is_command and name not in ("ds", "prun") and (after.startswith("-") or after.endswith(".py")):
            return name
    return ""


def behind_program(calls: Sequence[LaunchCall], program: str, arguments: Sequence[str]) -> Iterator[OptionProblem]:
    """The options of a launcher that stand behind the program, which gets them in place of the launcher.

    Only options that the launcher is not given before, and that programs usually lack.
    """
    for before, word, after in zip(arguments, arguments[1:], [*arguments[2:], ""], strict=False):
        if word == "=" and after and re.fullmatch(r"-{0,2}[A-Za-z_][\w.+-]{0,99}", before, re.ASCII):
            yield OptionProblem(program, before, printable(f"= {after}", 80), printable(f"{before}={after}", 80))
            break
        if re.fullmatch(r"[a-z_]+(?:\.\w+)+=", before) and re.fullmatch(r"[\w.]{1,40}", word):
            yield OptionProblem(program, before[:-1], f"= {word}", printable(f"{before}{word}", 80))
    for match in re.finditer(_WITH_STRAY_SIGN, "\n".join(arguments)):
        yield OptionProblem(program, match[1], match[2] + match[3], match[2])
    exported = next(reversed([value for call in calls[-1:] for value in call.options.get("x", ())]), "")
    if re.fullmatch(r"[0-9]{1,9}|INFO|WARN|TRACE|DETAIL", program) and exported in documented_variables():
        yield OptionProblem(calls[-1].command, "-x", f"{exported} {program}", f"{exported}={program}")
    if (hosts := next((call.option("host") for call in calls[-1:]), "")).endswith(","):
        yield OptionProblem(calls[-1].command, "--host", printable(f"{hosts} {program}", 80), f"{hosts}{program}"[:80])
    rows = {row.name: row for row in launcher_rows().values()}
    is_program = "$" not in program and program.lower() not in ("true", "false")  # of a flag: `value_of_flag`
    for call in calls if is_program else ():
        row = rows.get(call.launcher)
        if row is None or "options" in call.unresolved:
            continue
        for place, argument in enumerate(arguments):
            spelled, equals, value = argument.partition("=")
            name = spelled.lstrip("-").replace("_", "-")
            option = row.canonical(row.spelled(name))
            if name in row.of_launcher.split() and spelled.startswith("-") and option not in call.options:
                follows = arguments[place + 1 : place + 2] if row.word_counts[option] and not equals else ()
                reason = filled("before {0}: what stands behind the program is an argument of it", program)
                value = printable(value or "".join(follows), 80)
                yield OptionProblem(call.command, spelled, value, reason, "wanted")
