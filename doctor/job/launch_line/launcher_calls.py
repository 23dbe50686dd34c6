"""What the options of a launcher say of hosts, ranks and variables. Sources: commands.toml. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.job_size import ONE_ON_EACH_HOST, STARTS_TASKS
from doctor.job.launch_line.call_parts import (
    Argv,
    Exports,
    Started,
    host_list,
    is_default,
    known_or_open,
    least_and_most,
    node_range,
    positive,
    refuse_rendezvous,
    refuse_time,
    set_before,
    started,
)
from doctor.job.launch_line.commands import LauncherRow, launcher_rows
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import Options, split_options
from doctor.job.launch_line.wrappers import variables_of
from doctor.job.shell.word import Word
from doctor.job.variable_names import documented_variables

DEFAULT_HOSTFILE = "/job/hostfile"
"""Of DeepSpeed."""
_MSRUN_RANKS = 8
"""Of msrun where the line does not say it, in all and on each host."""
_OF_EACH_TASK = re.compile(
    r"SLURM_(?:NODEID|PROCID|LOCALID)|SLURMD_NODENAME|HOSTNAME|FLUX_TASK_\w+|(?:OMPI_COMM_WORLD|PMI|PMIX)_\w*RANK",
    re.ASCII,
)
"""Variables that differ from task to task: what the caller of srun or mpirun has of them is not what a task has."""
_GPUS_OF_STEP = re.compile("gpus|gres$|tres-per")
_OF_STEP = frozenset(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"))
"""Of a step that requests GPUs, not of its job: srun(1), "OUTPUT ENVIRONMENT VARIABLES"; 22.05 leaves the second."""


def read_call(row: LauncherRow, command: str, argv: Argv, environ: Mapping[str, str]) -> Started:
    """The call of a launcher. ``argv``: the words after its name; ``environ``: at this place."""
    options = split_options(command, argv, row)
    if row.name in STARTS_TASKS:
        options.refuse_swallowed(argv[: len(argv) - len(options.rest)])
    if not options.is_complete:  # what is not read may be the launcher to which they belong
        options.forgive({name for other in launcher_rows().values() if other is not row for name in other.word_counts})
    return _READERS[row.name](row, command, options, environ)


def environ_of_tasks(environ: Mapping[str, str], launchers: Sequence[LaunchCall]) -> dict[str, str]:
    """The variables that a program of these launchers has of its caller's.

    >>> environ_of_tasks({"SLURM_NODEID": "0", "A": "1"}, [LaunchCall(launcher="srun", command="srun")])
    {'A': '1'}
    """
    starts_tasks = any(call.launcher in STARTS_TASKS for call in launchers)
    steps = (name for call in launchers if call.launcher == "srun" for name in (*call.options, *call.unresolved))
    others = _OF_STEP if any(map(_GPUS_OF_STEP.match, steps)) else frozenset[str]()
    return {
        name: text
        for name, text in environ.items()
        if name not in others and not (starts_tasks and _OF_EACH_TASK.fullmatch(name))
    }


def _refuse_of_torchrun(options: Options) -> None:
    """Values that its rendezvous or its logs do not take."""
    options.text("rdzv-endpoint")  # notes what is unresolved
    endpoint = options.word("rdzv-endpoint")
    port = re.fullmatch(r"[^,]*:([^:\],]*)", endpoint.text) if endpoint else None
    if port and endpoint and endpoint.unresolved and not re.fullmatch("[0-9]{0,9}", port[1], re.ASCII):
        port = None  # the source text: its end is a part of an expansion
    if port and not (port[1].isascii() and port[1].isdecimal() and len(port[1]) < 6 and int(port[1]) < 65536):
        options.refuse(["rdzv-endpoint"], "HOST:PORT, with a port from 0 to 65535")
    if endpoint and options.text("rdzv-backend") in ("c10d", "static") and endpoint.text.startswith("tcp://"):
        options.refuse(["rdzv-endpoint"], printable(endpoint.text[6:], 120))
    is_static = options.text("rdzv-backend") in ("", "static") and "rdzv-backend" not in options.unresolved
    if (
        endpoint
        and not endpoint.unresolved
        and endpoint.text
        and ":" not in endpoint.text
        and is_static
        and "standalone" not in options
    ):
        options.refuse(["rdzv-endpoint"], "HOST:PORT, as the static backend has no port of its own")
    refuse_rendezvous(options)
    if not re.fullmatch(r"| *[0-9]+ *(?:, *[0-9]+ *)*", options.text("local-ranks-filter"), re.ASCII):
        options.refuse(["local-ranks-filter"], "numbers of local ranks, with commas between")
    for name in ("redirects", "tee"):  # torch/distributed/elastic/multiprocessing/api.py, `Std.from_str`
        if not re.fullmatch(r"|[0-3]|(?:[0-9]:[0-3],)*[0-9]:[0-3]", options.text(name)):
            options.refuse([name], "0, 1, 2 or 3, or such a number for each local rank, as 0:1,1:3")


def _take_variable(options: Options, name: str, word: Word, *, is_flag: bool) -> None:
    """An option that a variable gives. Of a flag it is a number, 0: not given (argparse_util.py, `check_env`)."""
    if not is_flag:
        options.by_name[name] = [(word,)]
    elif word.unresolved:
        options.unresolved[name] = word.unresolved
    elif not re.fullmatch(r"\s*[-+]?[0-9]{1,9}\s*", word.text, re.ASCII):
        options.by_name[name] = [(word,)]
        options.refuse([name], "1 or 0, as its variable gives it")
        del options.by_name[name]
    elif int(word.text):
        options.by_name[name] = [()]


def _torchrun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """What is not in the line comes from variables: ``PET_NNODES`` and so on."""
    for name, count in sorted(row.word_counts.items()):
        value = environ.get("PET_" + name.upper().replace("-", "_"), "")
        if value and name != "help" and name not in options:
            _take_variable(options, name, known_or_open(value), is_flag=not count)
    _refuse_of_torchrun(options)
    is_single = "standalone" in options or is_default(options, "nnodes")
    if "standalone" in options and (options.number("nnodes") or 1) > 1:
        options.refuse(
            ["nnodes"], "1, as --standalone is for one host; for several, put --rdzv-endpoint <host>:29500 in its place"
        )
    least, most = (1, 1) if is_single else least_and_most(options, "nnodes", "2:4")
    if options.text("rdzv-backend") == "static" or is_default(options, "rdzv-backend"):
        least = most  # for which it waits: torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py
    per_node, by_devices = options.text("nproc-per-node"), ""
    ranks_per_node = None
    if per_node in ("gpu", "auto", "cpu", "xpu", "npu"):
        by_devices = per_node
    elif per_node or "nproc-per-node" in options:
        ranks_per_node = options.number("nproc-per-node", least=1, most=65536)
    elif is_default(options, "nproc-per-node"):
        ranks_per_node = 1
    sizes: Any = {"nodes": least, "max_nodes": most, "ranks_per_node": ranks_per_node}
    return started(row, command, options, **sizes, ranks_by_devices=by_devices)


_SLURM_TASKS = {"ntasks-per-gpu", "ntasks-per-socket", "ntasks-per-core", "gpus-per-task", "ntasks"}


def _srun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """One task on each host, unless the line or the allocation says how many there are."""
    refuse_time(options)
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
    exported, passed, inherits = _slurm_exports(options.text("export") or environ.get("SLURM_EXPORT_ENV", ""))
    if lost := [] if inherits else set_before(environ, (*exported, *passed)):
        reason = filled("with {0}, which is set before the line and does not reach the tasks", lost[0])
        options.problems.append(OptionProblem(command, "--export", "ALL", reason, "wanted"))
    if (excluded := options.text("exclude")).partition("=")[0] in environ.keys() | documented_variables():
        options.refuse(["exclude"], filled("names of hosts; `--export=ALL,{0}` is for a variable", excluded))
    hosts = options.text("nodelist")
    return started(
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


def _flux(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """One task on each host, or one in all, where no option counts them."""
    nodes, ranks = options.number("nodes", least=1), options.number("ntasks", least=1)
    per_node = options.number("tasks-per-node", least=1, most=65536)
    if per_node and "ntasks" in options:
        options.refuse(["ntasks"], "none beside --tasks-per-node")
    is_counted = {"tasks-per-node", "ntasks", "tasks-per-core", "cores", "gpus-per-node"} & options.by_name.keys()
    if options.is_complete and not is_counted and "nodes" not in options.unresolved:
        ranks = nodes or 1
    ranks = nodes * per_node if nodes and per_node else ranks
    exported = dict(word.text.split("=", 1) for word in options.texts("env") if re.match(r"\w+=", word.text))
    sizes: Any = {"nodes": nodes, "max_nodes": nodes, "ranks": ranks, "ranks_per_node": per_node}
    return started(row, command, options, exports=(exported, ()), **sizes)


_SIZES = {"nodes", "ntasks", "ntasks-per-node", "nodelist", "nodefile", "relative", "exclude", "het-group", "overlap"}
"""Options of a step that need not have all hosts and tasks of its allocation."""


def _of_allocation(options: Options, environ: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Hosts, tasks and tasks on each host of a step that says nothing of them: those of its allocation, by variables.

    Of more hosts than tasks srun takes as many as tasks (measured). Source: srun(1), "INPUT ENVIRONMENT VARIABLES".
    """
    if not options.is_complete or (_SIZES | _SLURM_TASKS) & {*options.by_name, *options.unresolved}:
        return None, None, None
    nodes = positive(environ.get("SLURM_JOB_NUM_NODES", ""))
    ranks, each = (positive(environ.get(name, "")) for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"))
    return (min(nodes, ranks), ranks, each) if nodes and ranks else (None, None, None)


def _slurm_exports(text: str) -> tuple[dict[str, str], tuple[str, ...], bool]:
    """``ALL,A=b,C``: variables, names that are passed, and whether all others are."""
    entries = [entry for entry in text.split(",") if entry]
    exported = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    names = [entry for entry in entries if "=" not in entry]
    passed = tuple(word for word in names if word.upper() not in ("ALL", "NONE", "NIL"))
    return exported, passed, "ALL" in map(str.upper, names) or not text


def _openmpi(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """``-H a:4,b:4`` and ``-H a,a,b`` name each host; ``--map-by ppr:8:node`` as many ranks on each host."""
    exports = _openmpi_exports(options)
    options.text("host")  # notes what is unresolved
    text = ",".join(word.text for word in options.texts("host") if not word.unresolved)
    hosts = tuple(dict.fromkeys(re.sub(r":[0-9]{1,6}$", "", host) for host in host_list(text)))
    argv, others, ranks = _first_program(row, options, options.number("np") or None)  # 0: as many as there are slots
    lost = set_before(environ, (*exports[0], *exports[1]))
    is_passed = any(word.text in ONE_ON_EACH_HOST for word in argv[:1])
    by_ssh = len(hosts) > 1 and not any(name in environ for name in ("SLURM_JOB_ID", "SLURM_JOB_NUM_NODES"))
    if lost and by_ssh and (lost[0] != "MASTER_ADDR" or not is_passed) and options.is_complete:
        reason = "which is set before the line and does not reach the ranks of other hosts"
        options.problems.append(OptionProblem(command, "-x", lost[0], reason, "wanted"))
    per_node = 1 if "pernode" in options else options.number("npernode", least=1, most=65536)
    each = re.fullmatch(r"ppr:([0-9]{1,5}):node(:.*)?", options.text("map-by", "ppr"), re.ASCII)
    return started(
        row,
        command,
        options,
        argv=argv,
        others=others,
        exports=exports,
        nodes=_count(hosts),
        ranks=ranks,
        ranks_per_node=per_node or (int(each[1]) if each else None),
        hosts=hosts,
    )


def _count(hosts: tuple[str, ...]) -> int | None:
    """None without a host, and where a node set stands for several."""
    return len(hosts) if hosts and not any("[" in host for host in hosts) else None


def programs_of(options: Options, row: LauncherRow) -> list[Options]:
    """The options of each program, with its words: ``-np 2 a : -np 4 b`` are two. The first has ``options``."""
    colons = [at for at, word in enumerate(options.rest) if word.text == ":" and not word.unresolved]
    argv, programs = options.rest, [options]
    for start, end in zip(colons, [*colons[1:], len(argv)], strict=False):
        programs.append(split_options(options.command, argv[start + 1 : end], row))
    options.rest = argv[: colons[0]] if colons else argv
    return programs


def _first_program(row: LauncherRow, options: Options, ranks: int | None) -> tuple[Argv, tuple[Argv, ...], int | None]:
    """The first program's words, those of the others, and the ranks of all: ``-np 2 a : -np 4 b``."""
    first, *others = programs_of(options, row)
    if not others:
        return first.rest, (), ranks
    counts = [ranks, *(other.number("np") or None for other in others)]
    for other in others:
        options.problems += [problem for problem in other.problems if problem not in options.problems]
    if None in counts:
        options.unresolved["programs"] = "several programs, with : between them"
    return first.rest, tuple(other.rest for other in others), sum(filter(None, counts)) if None not in counts else None


def _openmpi_exports(options: Options) -> Exports:
    """``-x NAME=value`` and ``-x NAME``, also in ``mca_base_env_list``; and MCA parameters, as their variables."""
    pairs = [pair for group in ("mca", "gmca", "omca", "prtemca") for pair in options.by_name.get(group, ())]
    listed = [pair[1] for pair in pairs if pair[0].text == "mca_base_env_list" and len(pair) > 1]
    names = [word if word.unresolved else Word(text) for word in listed for text in word.text.split(";") if text]
    exported, unresolved, passed = variables_of(options, ("x",), names)
    options.unresolved |= unresolved
    exported |= {
        f"OMPI_MCA_{pair[0].text}": pair[1].text for pair in pairs if len(pair) == 2 and not pair[1].unresolved
    }
    return exported, passed


def is_hydra(argv: Argv, environ: Mapping[str, str]) -> bool:
    """Whether ``mpirun`` is rather Hydra's: an option that Open MPI does not have, or Intel MPI's environment."""
    rows = launcher_rows()
    options = split_options("mpirun", argv, rows["mpirun"])
    if options.unrecognised:
        return bool(rows["mpiexec.hydra"].canonical(options.unrecognised.lstrip("-").partition("=")[0]))
    return "I_MPI_ROOT" in environ and "OPAL_PREFIX" not in environ


def _hydra(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    exports = _hydra_exports(options)
    if options.unrecognised == "-x":
        options.problems.append(OptionProblem(command, "-x", "NAME=VALUE", "-genv NAME VALUE"))
    hosts = tuple(dict.fromkeys(host.partition(":")[0] for host in host_list(options.text("host"))))
    argv, others, ranks = _first_program(row, options, options.number("np", least=1))
    return started(
        row,
        command,
        options,
        argv=argv,
        others=others,
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
    ranks = _MSRUN_RANKS if "worker-num" not in options and options.is_complete else ranks
    local = _MSRUN_RANKS if "local-worker-num" not in options and options.is_complete else local
    nodes = ranks // local if ranks and local and ranks % local == 0 else None
    if ranks and local and nodes is None:
        options.unresolved["nodes"] = filled("--worker_num {0} is no multiple of --local_worker_num {1}", ranks, local)
    return started(row, command, options, nodes=nodes, max_nodes=nodes, ranks=ranks, ranks_per_node=local)


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
    devices = [device for device in options.text("gpu-ids").split(",") if device.strip().isdecimal()]
    if per_node and devices and len(devices) < per_node:
        options.refuse(["gpu-ids"], filled("{0} devices, one for each process of a machine", per_node))
    names = {*options.by_name, *options.unresolved}
    is_sure = options.is_complete and not options.value_of_flag
    if (nodes or 0) > 1 and is_sure and not names & {row.master_addr, *_OVER_HOSTS}:
        options.need(row.master_addr, filled("the address of the host with rank 0: the line is for {0} hosts", nodes))
    return started(row, command, options, nodes=nodes, max_nodes=nodes, ranks=ranks, ranks_per_node=per_node)


def _deepspeed(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """``--include host1:0,1@host2:0,1`` names hosts and devices; else they are those of the hostfile."""
    nodes = positive(options.text("num-nodes"))
    if nodes or positive(options.text("num-gpus")):
        for name in {"include", "exclude"} & options.by_name.keys():
            options.refuse([name], "none beside --num_nodes and --num_gpus")
    elif options.text("include") and options.text("exclude"):
        options.refuse(["exclude"], "none beside --include")  # deepspeed/launcher/runner.py, parse_resource_filter
    parts = [part.partition(":") for part in options.text("include").split("@") if part]
    hosts = tuple(dict.fromkeys(host for host, _, _ in parts))
    nodes = len(hosts) if nodes is None and hosts and "localhost" not in hosts else nodes
    if nodes is None and "num-nodes" not in options.unresolved:
        named = options.text("hostfile") or options.unresolved.get("hostfile", "")
        options.unresolved["num-nodes"] = filled("from the hostfile, {0}", named or DEFAULT_HOSTFILE)
    devices = {len(named.split(",")) if colon else 0 for _, colon, named in parts}
    slots = (devices.pop() or None) if len(devices) == 1 else None
    per_node = positive(options.text("num-gpus")) or slots
    return started(row, command, options, nodes=nodes, max_nodes=nodes, ranks_per_node=per_node, hosts=hosts)


def _colossalai(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """It starts torchrun on the hosts of a list over SSH."""
    hosts = tuple(dict.fromkeys(host_list(options.text("host"))))
    nodes = options.number("num-nodes", least=1) if options.text("num-nodes") not in ("", "-1") else None
    if nodes is None and not {"hostfile", "host", "num-nodes"} & {*options.by_name, *options.unresolved}:
        nodes = 1
    elif nodes is None and hosts:
        nodes = len(hosts)
    elif nodes is None:
        hostfile = options.text("hostfile") or "not known"
        options.unresolved.setdefault("num-nodes", filled("from the hostfile, {0}", hostfile))
    per_node = options.number("nproc-per-node", least=1, most=65536)
    return started(row, command, options, nodes=nodes, max_nodes=nodes, ranks_per_node=per_node, hosts=hosts)


def _horovodrun(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    hosts = tuple(dict.fromkeys(re.sub(r":[0-9]{1,6}$", "", host) for host in host_list(options.text("hosts"))))
    is_elastic = bool({"min-np", "max-np", "host-discovery-script"} & {*options.by_name, *options.unresolved})
    ranks = None if is_elastic else options.number("num-proc", least=1)
    if is_elastic:
        options.unresolved["num-proc"] = "an elastic launch"
    return started(row, command, options, nodes=len(hosts) or None, ranks=ranks, hosts=hosts)


def _composer(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """What is not in the line comes from LOCAL_WORLD_SIZE, WORLD_SIZE and so on, and else is that of one host."""
    each, ranks = options.number("nproc", least=1, most=65536), options.number("world-size", least=1)
    nodes = ranks // each if ranks and each and ranks % each == 0 else None
    if ranks and each and ranks < each:
        options.refuse(["world-size"], filled("at least {0}, as --nproc says", each))
    return started(row, command, options, nodes=nodes, max_nodes=nodes, ranks=ranks, ranks_per_node=each)


def _paddle(row: LauncherRow, command: str, options: Options, environ: Mapping[str, str]) -> Started:
    """One process for each device of the list, or of the host."""
    single = is_default(options, "nnodes") and not environ.get("PADDLE_NNODES") and "ips" not in options
    least, most = (1, 1) if single else least_and_most(options, "nnodes", "2:4")
    each, devices = options.number("nproc-per-node", least=1, most=65536), options.text("devices")
    if each is None and re.fullmatch(r"[0-9]+(?:,[0-9]+)*", devices, re.ASCII):
        each = devices.count(",") + 1
    by_devices = "auto" if each is None and is_default(options, "nproc-per-node") else ""
    sizes: Any = {"nodes": least, "max_nodes": most, "ranks_per_node": each, "ranks_by_devices": by_devices}
    return started(row, command, options, **sizes)


_READERS: Mapping[str, Callable[[LauncherRow, str, Options, Mapping[str, str]], Started]] = {
    "accelerate": _accelerate,
    "colossalai": _colossalai,
    "composer": _composer,
    "deepspeed": _deepspeed,
    "flux": _flux,
    "horovodrun": _horovodrun,
    "hydra": _hydra,
    "msrun": _msrun,
    "openmpi": _openmpi,
    "paddle": _paddle,
    "ray": lambda row, command, options, environ: started(row, command, options, argv=()),  # a service of one host
    "srun": _srun,
    "torchrun": _torchrun,
}
