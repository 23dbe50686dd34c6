"""What the options of a launcher say of hosts, ranks and variables. Sources: commands.toml. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from doctor.engine.texts import filled
from doctor.job.job_size import STARTS_TASKS
from doctor.job.launch_line.commands import LauncherRow, launcher_rows
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import Options, split_options
from doctor.job.shell.word import Word
from doctor.job.variable_values import expected_host

DEFAULT_HOSTFILE = "/job/hostfile"
"""Of DeepSpeed."""
_MSRUN_RANKS = 8
"""Of msrun where the line does not say it, in all and on each host."""
_OF_EACH_TASK = re.compile(
    r"SLURM_(?:NODEID|PROCID|LOCALID)|SLURMD_NODENAME|HOSTNAME|(?:OMPI_COMM_WORLD|PMI|PMIX)_\w*RANK", re.ASCII
)
"""Variables that differ from task to task: what the caller of srun or mpirun has of them is not what a task has."""

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


def read_call(row: LauncherRow, command: str, argv: Argv, environ: Mapping[str, str]) -> Started:
    """The call of a launcher. ``argv``: the words after its name; ``environ``: at this place."""
    options = split_options(command, argv, row)
    if not options.is_complete:  # what is not read may be the launcher to which they belong
        options.forgive({name for other in launcher_rows().values() if other is not row for name in other.word_counts})
    return _READERS[row.name](row, command, options, environ)


def environ_of_tasks(environ: Mapping[str, str], launchers: Sequence[LaunchCall]) -> dict[str, str]:
    """The variables that a program of these launchers has of its caller's.

    >>> environ_of_tasks({"SLURM_NODEID": "0", "A": "1"}, [LaunchCall(launcher="srun", command="srun")])
    {'A': '1'}
    """
    starts_tasks = any(call.launcher in STARTS_TASKS for call in launchers)
    return {name: text for name, text in environ.items() if not (starts_tasks and _OF_EACH_TASK.fullmatch(name))}


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


def _refuse_hosts(row: LauncherRow, options: Options) -> None:
    """Notes an address of the first host that is none."""
    endpoint = options.text(row.rdzv_endpoint)
    host = re.sub(r":[0-9]*$", "", endpoint) if "://" not in endpoint and "," not in endpoint else ""
    for name, text in ((row.master_addr, options.text(row.master_addr)), (row.rdzv_endpoint, host.strip("[]"))):
        if text and expected_host(text):
            options.refuse([name], expected_host(text))


def _started(
    row: LauncherRow,
    command: str,
    options: Options,
    *,
    argv: Argv | None = None,
    inherits_environment: bool = True,
    exports: Exports = ({}, ()),
    **decided: Any,
) -> Started:
    """By the columns of the row. ``argv``: None: what follows the options. ``decided``: other fields of the call."""
    options.refuse_unlisted(row)
    runs_python = row.runs_python or (bool(row.not_python) and row.not_python not in options)
    if runs_python:
        options.refuse_value_of_flag()
        if row.not_python and row.module not in options:
            options.refuse_interpreter()
    node_rank, most = options.number(row.node_rank), decided.get("max_nodes") or decided.get("nodes")
    is_read = (most or 0) > (row.name == "torchrun")  # of one host torchrun ignores it: its ranks meet, in 2.13
    if node_rank is not None and most and is_read and node_rank >= most:
        options.refuse([row.node_rank], filled("a number from 0 to {0}: the line is for {1} hosts", most - 1, most))
    _refuse_hosts(row, options)
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
    return Started(call, argv, runs_python, row.module in options, inherits_environment)


def _master_port(row: LauncherRow, options: Options) -> int | None:
    """Where another option says where the ranks meet, the port is ignored, and any will do."""
    is_static = options.text(row.rdzv_backend) in ("", "static")
    meets_there = is_static and not {row.standalone, row.rdzv_endpoint} & {*options.by_name}
    return options.number(row.master_port, least=row.least_port if meets_there else 0, most=65535)


def _least_and_most(options: Options, name: str, example: str) -> tuple[int | None, int | None]:
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
    return _least_and_most(options, "nodes", "2-4")


def _torchrun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """What is not in the line comes from variables: ``PET_NNODES`` and so on."""
    for name in sorted(name for name, count in row.word_counts.items() if count):
        value = environ.get("PET_" + name.upper().replace("-", "_"), "")
        if value and name not in options:
            options.by_name[name] = [(Word(value),)]
    options.text("rdzv-endpoint")  # notes what is unresolved
    endpoint = options.word("rdzv-endpoint")
    port = re.fullmatch(r"[^,]*:([^:\],]*)", endpoint.text) if endpoint else None
    if port and endpoint and endpoint.unresolved and not re.fullmatch("[0-9]{1,9}", port[1], re.ASCII):
        port = None  # the source text: its end is a part of an expansion
    if port and not (port[1].isascii() and port[1].isdecimal() and len(port[1]) < 6 and int(port[1]) < 65536):
        options.refuse(["rdzv-endpoint"], "HOST:PORT, with a port from 0 to 65535")
    is_single = "standalone" in options or _is_default(options, "nnodes")
    if "standalone" in options and (options.number("nnodes") or 1) > 1:
        options.refuse(["nnodes"], "1: with --standalone the job is on one host, and waits for the others")
    least, most = (1, 1) if is_single else _least_and_most(options, "nnodes", "2:4")
    per_node, by_devices = options.text("nproc-per-node"), ""
    ranks_per_node = None
    if per_node in ("gpu", "auto", "cpu", "xpu", "npu"):
        by_devices = per_node
    elif per_node or "nproc-per-node" in options:
        ranks_per_node = options.number("nproc-per-node", least=1, most=65536)
    elif _is_default(options, "nproc-per-node"):
        ranks_per_node = 1
    sizes: Any = {"nodes": least, "max_nodes": most, "ranks_per_node": ranks_per_node}
    return _started(row, command, options, **sizes, ranks_by_devices=by_devices)


def _is_default(options: Options, name: str) -> bool:
    """Whether an option without a value is surely not given."""
    return name not in options and options.is_complete


_SLURM_TASKS = {"ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task", "ntasks"}


def _srun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """One task on each host, unless the line or the allocation says how many there are."""
    least, most = node_range(options)
    ranks, per_node = options.number("ntasks", least=1), options.number("ntasks-per-node", least=1, most=65536)
    limits = any(name in environ for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NPROCS")) or bool(
        _SLURM_TASKS & options.by_name.keys() or {"ntasks", "ntasks-per-node"} & options.unresolved.keys()
    )
    if least is not None and least == most and ranks is None and per_node is None and options.is_complete:
        per_node = None if limits else 1
    if least is None and ranks is None and per_node is None:
        least, ranks, per_node = _of_allocation(options, environ)
        most = least
    if "multi-prog" in options:
        options.unresolved["program"] = "the configuration of --multi-prog names the programs"
    exported, passed, inherits = _slurm_exports(options)
    hosts = options.text("nodelist")
    return _started(
        row,
        command,
        options,
        argv=() if "multi-prog" in options else None,
        inherits_environment=inherits,
        exports=(exported, passed),
        nodes=least,
        max_nodes=most,
        ranks=ranks,
        ranks_per_node=per_node,
        hosts=host_list(hosts) if "/" not in hosts else (),
    )


_SIZES = {"nodes", "ntasks", "ntasks-per-node", "nodelist", "nodefile", "relative", "exclude", "het-group", "overlap"}
"""Options of a step that need not have all hosts and tasks of its allocation."""


def _of_allocation(options: Options, environ: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Hosts, tasks and tasks on each host of a step that says nothing of them: those of its allocation, by variables.

    Source: srun(1), "INPUT ENVIRONMENT VARIABLES".
    """
    if not options.is_complete or (_SIZES | _SLURM_TASKS) & {*options.by_name, *options.unresolved}:
        return None, None, None
    nodes = _positive(environ.get("SLURM_JOB_NUM_NODES", ""))
    ranks, each = (_positive(environ.get(name, "")) for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"))
    return (nodes, ranks, each) if nodes and ranks else (None, None, None)


def _slurm_exports(options: Options) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """``--export=ALL,A=b,C``: variables, names that are passed, and whether all others are."""
    entries = [entry for entry in options.text("export").split(",") if entry]
    exported = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    plain = [entry for entry in entries if "=" not in entry]
    passed = tuple(word for word in plain if word.upper() not in ("ALL", "NONE", "NIL"))
    return exported, passed, "ALL" in map(str.upper, plain) or not options.text("export")


def _openmpi(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """``-H a:4,b:4`` and ``-H a,a,b`` name each host; ``--map-by ppr:8:node`` as many ranks on each host."""
    exports = _openmpi_exports(options)
    options.text("host")  # notes what is unresolved
    text = ",".join(word.text for word in options.texts("host") if not word.unresolved)
    hosts = tuple(dict.fromkeys(re.sub(r":[0-9]{1,6}$", "", host) for host in host_list(text)))
    argv, ranks = _first_program(options, options.number("np", least=1))
    per_node = 1 if "pernode" in options else options.number("npernode", least=1, most=65536)
    each = re.fullmatch(r"ppr:([0-9]{1,5}):node(:.*)?", options.text("map-by", "ppr"), re.ASCII)
    return _started(
        row,
        command,
        options,
        argv=argv,
        exports=exports,
        nodes=_count(hosts),
        ranks=ranks,
        ranks_per_node=per_node or (int(each[1]) if each else None),
        hosts=hosts,
    )


def _count(hosts: tuple[str, ...]) -> int | None:
    """None without a host, and where a node set stands for several."""
    return len(hosts) if hosts and not any("[" in host for host in hosts) else None


def _first_program(options: Options, ranks: int | None) -> tuple[Argv, int | None]:
    """The first program's words, and the ranks of all: ``-np 2 a : -np 4 b``."""
    colon = next((i for i, word in enumerate(options.rest) if word.text == ":" and not word.unresolved), None)
    if colon is None:
        return options.rest, ranks
    options.unresolved["programs"] = "several programs, with : between them"
    return options.rest[:colon], None


def _openmpi_exports(options: Options) -> Exports:
    """``-x NAME=value`` and ``-x NAME``; also MCA parameters, as their variables."""
    exported: dict[str, str] = {}
    passed: list[str] = []
    for word in options.texts("x"):
        name, equals, value = word.text.partition("=")
        if word.unresolved and equals:
            options.unresolved[f"{name}="] = word.unresolved
        elif equals:
            exported[name] = value
        else:
            passed.append(name)
    for group in ("mca", "gmca", "omca", "prtemca"):
        for values in options.by_name.get(group, ()):
            if len(values) == 2 and not values[1].unresolved:
                exported[f"OMPI_MCA_{values[0].text}"] = values[1].text
    return exported, tuple(passed)


def is_hydra(argv: Argv, environ: Mapping[str, str]) -> bool:
    """Whether ``mpirun`` is rather Hydra's: an option that Open MPI does not have, or Intel MPI's environment."""
    rows = launcher_rows()
    options = split_options("mpirun", argv, rows["mpirun"])
    if options.unrecognised:
        return bool(rows["mpiexec.hydra"].canonical(options.unrecognised.lstrip("-").partition("=")[0]))
    return "I_MPI_ROOT" in environ and "OPAL_PREFIX" not in environ


def _hydra(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    exports = _hydra_exports(options)
    hosts = tuple(dict.fromkeys(host.partition(":")[0] for host in host_list(options.text("host"))))
    argv, ranks = _first_program(options, options.number("np", least=1))
    return _started(
        row,
        command,
        options,
        argv=argv,
        inherits_environment=not {"genvnone", "envnone", "genvlist", "envlist"} & options.by_name.keys(),
        exports=exports,
        nodes=_count(hosts),
        ranks=ranks,
        ranks_per_node=options.number("ppn", least=1, most=65536),
        hosts=hosts,
    )


def _hydra_exports(options: Options) -> Exports:
    exported: dict[str, str] = {}
    for values in (*options.by_name.get("genv", ()), *options.by_name.get("env", ())):
        if len(values) == 2 and values[1].unresolved:
            options.unresolved[f"{values[0].text}="] = values[1].unresolved
        elif len(values) == 2:
            exported[values[0].text] = values[1].text
    names = ",".join(word.text for word in options.texts("genvlist", "envlist") if not word.unresolved)
    return exported, tuple(name for name in names.split(",") if name)


def _msrun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    ranks = options.number("worker-num", least=1)
    local = options.number("local-worker-num", least=1, most=65536)
    if "worker-num" not in options and options.is_complete:
        ranks = _MSRUN_RANKS
    if "local-worker-num" not in options and options.is_complete:
        local = _MSRUN_RANKS
    nodes = ranks // local if ranks and local and ranks % local == 0 else None
    if ranks and local and nodes is None:
        options.unresolved["nodes"] = filled("--worker_num {0} is no multiple of --local_worker_num {1}", ranks, local)
    return _started(row, command, options, nodes=nodes, max_nodes=nodes, ranks=ranks, ranks_per_node=local)


_OVER_HOSTS = {"config-file", "deepspeed-hostfile", "deepspeed-multinode-launcher", "mpirun-hostfile", "use-deepspeed"}
"""With one of these the address of rank 0 may come from a configuration or a list of hosts."""


def _accelerate(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """What the line does not say comes from a configuration file, so it is unresolved."""
    ranks = options.number("num-processes", least=1)
    nodes = options.number("num-machines", least=1)
    if ranks is None and "num-processes" not in options.unresolved:
        options.unresolved["num-processes"] = "from Accelerate's configuration file or the devices"
    if nodes is None and "num-machines" not in options.unresolved:
        options.unresolved["num-machines"] = "from Accelerate's configuration file"
    per_node = ranks // nodes if ranks and nodes and ranks % nodes == 0 else None
    names = {*options.by_name, *options.unresolved}
    if (
        (nodes or 0) > 1
        and options.is_complete
        and not options.value_of_flag
        and not names & {row.master_addr, *_OVER_HOSTS}
    ):
        options.need(row.master_addr, filled("the address of the host with rank 0: the line is for {0} hosts", nodes))
    return _started(row, command, options, nodes=nodes, max_nodes=nodes, ranks=ranks, ranks_per_node=per_node)


def _deepspeed(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """``--include host1:0,1@host2:0,1`` names hosts and devices; else they are those of the hostfile."""
    nodes = _positive(options.text("num-nodes"))
    if nodes or _positive(options.text("num-gpus")):
        for name in {"include", "exclude"} & options.by_name.keys():
            options.refuse([name], "none beside --num_nodes and --num_gpus")
    parts = [part.partition(":") for part in options.text("include").split("@") if part]
    hosts = tuple(dict.fromkeys(host for host, _, _ in parts))
    if nodes is None and hosts and "localhost" not in hosts:
        nodes = len(hosts)
    if nodes is None and "num-nodes" not in options.unresolved:
        options.unresolved["num-nodes"] = filled("from the hostfile, {0}", options.text("hostfile") or DEFAULT_HOSTFILE)
    devices = {len(named.split(",")) if colon else 0 for _, colon, named in parts}
    slots = (devices.pop() or None) if len(devices) == 1 else None
    per_node = _positive(options.text("num-gpus")) or slots
    return _started(row, command, options, nodes=nodes, max_nodes=nodes, ranks_per_node=per_node, hosts=hosts)


def _positive(text: str) -> int | None:
    """Also -1, the default, is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 and int(text) else None


def _colossalai(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """It starts torchrun on the hosts of a list over SSH."""
    hosts = tuple(dict.fromkeys(host_list(options.text("host"))))
    nodes = options.number("num-nodes", least=1) if options.text("num-nodes") not in ("", "-1") else None
    if nodes is None and not {"hostfile", "host", "num-nodes"} & {*options.by_name, *options.unresolved}:
        nodes = 1
    elif nodes is None and hosts:
        nodes = len(hosts)
    elif nodes is None:
        options.unresolved.setdefault(
            "num-nodes", filled("from the hostfile, {0}", options.text("hostfile") or "not known")
        )
    per_node = options.number("nproc-per-node", least=1, most=65536)
    return _started(row, command, options, nodes=nodes, max_nodes=nodes, ranks_per_node=per_node, hosts=hosts)


def _horovodrun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    named = host_list(options.text("hosts"))
    hosts = tuple(dict.fromkeys(re.sub(r":[0-9]{1,6}$", "", host) for host in named))
    is_elastic = bool({"min-np", "max-np", "host-discovery-script"} & {*options.by_name, *options.unresolved})
    ranks = None if is_elastic else options.number("num-proc", least=1)
    if is_elastic:
        options.unresolved["num-proc"] = "an elastic launch"
    return _started(row, command, options, nodes=len(hosts) or None, ranks=ranks, hosts=hosts)


def _ray(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """A service of one host, which starts no ranks by itself."""
    return _started(row, command, options, argv=())


_READERS: Mapping[str, Callable[[LauncherRow, str, Options, Mapping[str, str]], Started]] = {
    "accelerate": _accelerate,
    "colossalai": _colossalai,
    "deepspeed": _deepspeed,
    "horovodrun": _horovodrun,
    "hydra": _hydra,
    "msrun": _msrun,
    "openmpi": _openmpi,
    "ray": _ray,
    "srun": _srun,
    "torchrun": _torchrun,
}
