"""What the readers of launchers share: the call that they make, hosts, and numbers. Pure."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import python_number
from doctor.job.launch_line.commands import LauncherRow
from doctor.job.launch_line.model import OWN_DEVICES, OWN_MEMORY, OWN_NETWORK, LaunchCall
from doctor.job.launch_line.options import Options
from doctor.job.shell.word import Word
from doctor.job.variable_names import documented_variables
from doctor.job.variable_values import expected_host

Argv = tuple[Word, ...]


Exports = tuple[dict[str, str], tuple[str, ...]]
"""Variables with their values, and names of the caller's variables."""


class Started(NamedTuple):
    """A launcher's call, and what it starts."""

    call: LaunchCall
    argv: Argv
    """The program with its arguments, or the next launcher."""
    runs_python: bool = False
    """The program is a Python script, or with ``is_module`` a module, without an interpreter before it."""
    is_module: bool = False
    inherits_environment: bool = True
    others: tuple[Argv, ...] = ()
    """Further programs that the launcher starts beside the first."""


def host_list(text: str) -> tuple[str, ...]:
    """Hosts with commas between, but not within brackets: ``n[1,3],gpu7`` are two; at most 65,536.

    >>> host_list("n[1,3],gpu7,")
    ('n[1,3]', 'gpu7')
    """
    hosts: list[str] = []
    start = depth = 0
    for position, letter in enumerate(f"{text},"):
        if letter == "," and depth <= 0:
            if text[start:position].strip():
                hosts.append(text[start:position].strip())
            start = position + 1
        depth += (letter == "[") - (letter == "]")
    return tuple(hosts[:65_536])


def of_this_size(problems: Iterable[OptionProblem], calls: Sequence[LaunchCall]) -> Iterator[OptionProblem]:
    """Those that there are: on one host, or an unknown number of them, ranks may meet in a container's own network, and
    one rank, or a program without a launcher, needs no more memory.
    """
    hosts = next((call.nodes for call in reversed(calls) if call.nodes is not None), 1)
    each = next((call.ranks_per_node for call in reversed(calls) if call.ranks_per_node is not None), 2)
    least = {OWN_NETWORK: hosts, OWN_MEMORY: each, OWN_DEVICES: each, "--nv": each}
    return (problem for problem in problems if problem.option not in least or (calls and least[problem.option] > 1))


def numbers_of(hosts: int) -> str:
    """What a host's number must be."""
    return filled("a number from 0 to {0}, as the line is for {1} hosts", hosts - 1, hosts)


_PLACING = {"bynode", "loadbalance", "npersocket", "rankfile", "nolocal", "app", "cpu-set", "add-host", "add-hostfile"}


HOSTS_OF_SCHEDULER = re.compile(r"\$\{?(?:PBS_NODEFILE|LSB_DJOB_HOSTFILE)\b.*")
"""Hostfiles of a scheduler, with as many lines or slots as the job has tasks."""


def fills_in_order(call: LaunchCall) -> bool:
    """Whether mpirun of Open MPI fills the slots of one host after the other, or so many ranks on each; False where
    that is not known. Source: mpirun(1), "Mapping".
    """
    is_mapped = "map-by" in call.options and call.ranks_per_node is None
    is_open = {"map-by", *_PLACING} & call.unresolved.keys() or "rmaps" in " ".join(call.options.get("mca", ()))
    return not (is_mapped or is_open or _PLACING & call.options.keys())


def refuse_hosts(row: LauncherRow, options: Options) -> None:
    """Notes an address of the first host that is none."""
    endpoint = options.text(row.rdzv_endpoint)
    host = re.sub(r":[0-9]*$", "", endpoint) if "://" not in endpoint and "," not in endpoint else ""
    for name, text in ((row.master_addr, options.text(row.master_addr)), (row.rdzv_endpoint, host.strip("[]"))):
        if text and expected_host(text):
            options.refuse([name], expected_host(text))
    if (word := options.word(row.rdzv_endpoint)) and re.fullmatch(r"[^:]+:[A-Za-z_]+", word.text):
        options.refuse([row.rdzv_endpoint], "the number of a port behind the colon")


_ALL_NAMES = re.compile(r"\$\( *scontrol +show +hostnames?(?: [^|()]*)?\)")
_CUT_LIST = re.compile(
    r"\$\( *(?:echo|printf \S{1,20}) +\"?\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?\"? *\| *"
    r"(?:cut|sed|tr|awk|head)\b[^|()]{0,80}\)"
    r"|\$\{SLURM_(?:JOB_|STEP_)?NODELIST(?:%%?|//?|:)[^{}]{1,40}\}|\$\{?SLURM_(?:JOB_|STEP_)?NODELIST\}?(?=:|$)",
    re.ASCII,
)
"""A part of Slurm's list of hosts, which is shortened: ``node[01-02]``."""
_UNBOUND_PORT = re.compile(
    r"\$\(\( ?(?:[0-9]{4,6} ?\+ ?)?\$?\{?SLURM_(?:JOB_?ID|JOBID)\}?(?: ?\+ ?[0-9]{4,6})? ?\)\)|\$\{?SLURM_JOB_?ID\}?",
    re.ASCII,
)
_MEETING = ("rdzv-endpoint", "master-addr", "main-process-ip", "MASTER_ADDR")


def refuse_meeting(calls: Sequence[LaunchCall], not_known: Mapping[str, str]) -> Iterator[OptionProblem]:
    """Addresses and ports that only a shell computes, and at which ranks do not meet."""
    yield from _refuse_several(calls, not_known)
    yield from _refuse_port(calls, not_known)


def _refuse_several(calls: Sequence[LaunchCall], not_known: Mapping[str, str]) -> Iterator[OptionProblem]:
    """An address of the first host that is the names of all hosts. ``not_known``: the source texts of variables."""
    if max((call.nodes or 1 for call in calls), default=1) > 1:
        sources = {**calls[-1].unresolved, "MASTER_ADDR": not_known.get("MASTER_ADDR", "")}
        for name in _MEETING:
            if match := _ALL_NAMES.search(sources.get(name, "")):
                option = name if name.isupper() else f"--{name}"
                expected = "one name: `| head -n 1` behind it"
                yield OptionProblem(calls[-1].command, option, printable(match[0], 80), expected)
                return
            if match := _CUT_LIST.search(sources.get(name, "")):
                value, reason = (
                    "$(scontrol show hostnames | head -n 1)",
                    filled("in place of {0}", printable(match[0], 80)),
                )
                yield OptionProblem(calls[-1].command, FIRST_HOST, value, reason, "wanted")
                return


FIRST_HOST, PORT = "the name of its first host", "a port within 65535"
"""What a launcher lacks, in place of an option."""


def _refuse_port(calls: Sequence[LaunchCall], not_known: Mapping[str, str]) -> Iterator[OptionProblem]:
    """A port that is the number of the job: Slurm's go on to 67 million (slurm.conf(5), "MaxJobId")."""
    names = ("master-port", "main-process-port")
    sources = [call.unresolved.get(name, "") for call in calls[-1:] for name in names]
    source = next(filter(None, [*sources, not_known.get("MASTER_PORT", "")]), "")
    if calls and _UNBOUND_PORT.fullmatch(source):
        reason = filled("in place of {0}", printable(source, 80))
        yield OptionProblem(calls[-1].command, PORT, "$((10000 + SLURM_JOB_ID % 50000))", reason, "wanted")


_TRUE, _FALSE = ("1", "true", "t", "yes", "y"), ("0", "false", "f", "no", "n")
_NUMBERS_OF_RENDEZVOUS = re.compile(
    r"(?:join|last_call|close|heartbeat|read)_timeout|keep_alive_(?:interval|max_attempt)", re.ASCII
)


def refuse_rendezvous(options: Options) -> None:
    """Notes what torchrun cannot read of ``--rdzv-conf NAME=VALUE,...``, and with c10d of the values that it knows.

    Source: PyTorch, torch/distributed/elastic/rendezvous: utils.py, ``_parse_rendezvous_config``; api.py,
    ``get_as_bool``, ``get_as_int``; measured with 2.13.
    """
    text = options.text("rdzv-conf").strip()
    entries = [tuple(part.strip() for part in entry.partition("=")) for entry in text.split(",")] if text else []
    is_c10d = options.text("rdzv-backend") == "c10d" or "standalone" in options
    for name, _, value in entries:
        if not name or not value:
            options.refuse(["rdzv-conf"], "NAME=VALUE, with commas between several of them")
        elif is_c10d and name == "is_host" and value.lower() not in (*_TRUE, *_FALSE):
            options.refuse(["rdzv-conf"], "is_host=1 or is_host=0")
        elif is_c10d and _NUMBERS_OF_RENDEZVOUS.fullmatch(name) and python_number(value) is None:
            options.refuse(["rdzv-conf"], filled("a whole number of seconds for {0}", name))


def opens_no_store(call: LaunchCall) -> bool:
    """Whether a launcher leaves the store of a c10d rendezvous to another host.

    >>> opens_no_store(LaunchCall(launcher="torchrun", command="", options={"rdzv-conf": ("a=1,is_host = No",)}))
    True
    """
    given = dict(part.replace(" ", "").partition("=")[::2] for part in call.option("rdzv-conf").split(","))
    return "rdzv-conf" not in call.unresolved and given.get("is_host", "").lower() in _FALSE


def started(
    row: LauncherRow,
    command: str,
    options: Options,
    *,
    argv: Argv | None = None,
    others: tuple[Argv, ...] = (),
    inherits_environment: bool = True,
    exports: Exports = ({}, ()),
    **decided: Any,
) -> Started:
    """By the columns of the row. ``argv``: None: what follows the options. ``decided``: other fields of the call."""
    options.refuse_unlisted(row)
    runs_python = row.runs_python or (bool(row.not_python) and row.not_python not in options)
    if runs_python:
        options.refuse_program(row.module, is_optional=bool(row.not_python))
    node_rank, most = options.number(row.node_rank), decided.get("max_nodes") or decided.get("nodes")
    is_read = (most or 0) > (row.name == "torchrun")  # of one host torchrun ignores it: its ranks meet, in 2.13
    if node_rank is not None and most and is_read and node_rank >= most:
        refused = OptionProblem(command, f"--{row.node_rank}", str(node_rank), numbers_of(most), "beyond")
        options.problems.append(refused)
    refuse_hosts(row, options)
    _refuse_logs(options)
    call = LaunchCall(
        launcher=row.name,
        command=command,
        environ=exports[0],
        passed=exports[1],
        node_rank=node_rank,
        master_addr=options.text(row.master_addr),
        master_port=_master_port(row, options),
        rdzv_backend=options.text(row.rdzv_backend),
        rdzv_endpoint=options.text(row.rdzv_endpoint),
        standalone=row.standalone in options,
        hostfile=options.text(*row.hostfile.split()),
        options=options.as_texts(),
        unresolved=options.unresolved,
        problems=tuple(options.problems),
        **decided,
    )
    argv = options.rest if argv is None else argv
    return Started(call, argv, runs_python, row.module in options, inherits_environment, others)


def _refuse_logs(options: Options) -> None:
    logs = options.word("log-dir")
    if logs and not logs.unresolved and re.match("/(?:proc|sys)(?:/|$)", logs.text):
        options.refuse(["log-dir"], "a folder in which files can be made")


def _master_port(row: LauncherRow, options: Options) -> int | None:
    """Where another option says where the ranks meet, the port is ignored, and any will do."""
    is_static = options.text(row.rdzv_backend) in ("", "static")
    meets_there = is_static and not {row.standalone, row.rdzv_endpoint} & {*options.by_name}
    return options.number(row.master_port, least=row.least_port if meets_there else 0, most=65535)


def least_and_most(options: Options, name: str, example: str) -> tuple[int | None, int | None]:
    """A number of hosts, or the least and the most; both None where the option is not given, or is refused."""
    text, word = options.text(name), options.word(name)
    if not text and (word is None or word.unresolved):
        return None, None
    match = re.fullmatch(rf"([0-9]{{1,7}})(?:{example[1]}([0-9]{{1,7}}))?", text, re.ASCII)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if 0 < least <= most:
        return least, most
    if re.fullmatch(r"[0-9-]{1,99}[,:][0-9,:-]{0,99}[0-9]|[0-9]{1,7}[kKmM]", text) and "-" in example:
        options.unresolved[name] = text  # `1-15:4` and `2k` of Slurm
    else:
        options.refuse([name], filled("a number of hosts, or the least and the most: {0}", example))
    return None, None


def node_range(options: Options) -> tuple[int | None, int | None]:
    """Slurm's ``-N 4`` and ``-N 2-4``; both None where it is not given."""
    return least_and_most(options, "nodes", "2-4")


def known_or_open(value: str) -> Word:
    """A variable's value; behind a zero byte, the source text of one that is not known."""
    return Word(value.lstrip("\0"), value.partition("\0")[2])


def is_default(options: Options, name: str) -> bool:
    """Whether an option without a value is surely not given."""
    return name not in options and options.is_complete


def refuse_time(options: Options) -> None:
    """Notes a time limit that Slurm cannot read: srun(1), "--time"."""
    text = options.text("time")
    if text and not re.fullmatch(r"(?:[0-9]+-)?[0-9]+(?::[0-9]+){0,3}|(?i:infinite|unlimited|-1)", text, re.ASCII):
        options.refuse(["time"], "minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS or DAYS-HOURS")


def positive(text: str) -> int | None:
    """Also -1, the default, is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 and int(text) else None


def set_before(environ: Mapping[str, str], kept: Container[str]) -> list[str]:
    """Variables of how ranks meet and speak to each other that do not reach them; that of rank 0 first."""
    names = sorted(name for name in environ if re.match("(?:NCCL|HCCL|GLOO)_", name) and name in documented_variables())
    return [name for name in ("MASTER_ADDR", *names) if name in environ and name not in kept]
