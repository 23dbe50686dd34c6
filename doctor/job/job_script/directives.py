"""The lines of a job script that a batch scheduler reads: ``#SBATCH``, ``#PBS``, ``#BSUB``, ``#DSUB``, ``#$``. Pure.

Sources: Slurm, sbatch(1) (https://slurm.schedmd.com/sbatch.html); PBS Professional, qsub(1B), "select"; IBM Spectrum
LSF, bsub (https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=bsub-options), "job_script"; Huawei Donau Scheduler
user guide, dsub; Grid Engine, qsub(1), "-pe".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from doctor.engine.quantities import DAY, clock_seconds
from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.launch_line.call_parts import node_range, refuse_time
from doctor.job.launch_line.commands import launcher_rows, option_table
from doctor.job.launch_line.options import Options, OptionTable, split_options
from doctor.job.shell.word import literal_words
from doctor.job.variable_names import is_one_slip

_MOST = 256
_LONGEST = 4096


class Directive(msgspec.Struct, frozen=True):
    """One line for a scheduler."""

    scheduler: str
    """``slurm``, ``pbs``, ``lsf``, ``donau``, ``grid-engine``."""
    text: str
    line: int


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What the directives request. None: they do not say it, or not in a form that is read here."""

    scheduler: str = ""
    nodes: int | None = None
    max_nodes: int | None = None
    ranks: int | None = None
    ranks_per_node: int | None = None
    time_limit_s: int | None = None
    gpus_per_node: int | None = None
    slots: int | None = None
    """Ranks that mpirun may start on all hosts."""
    options: dict[str, tuple[str, ...]] = {}
    """Slurm's, by long name."""
    unresolved: dict[str, str] = {}
    problems: tuple[OptionProblem, ...] = ()
    """What the scheduler refuses. A value in braces or angle brackets is a template's."""


_MARKS = {"#SBATCH": "slurm", "#PBS": "pbs", "#BSUB": "lsf", "#DSUB": "donau", "#$": "grid-engine"}
_BEFORE_COMMANDS = {"slurm": "#SBATCH", "pbs": "#PBS"}
"""By scheduler, the mark of lines that count before the first command alone."""
_ANYWHERE = ("lsf",)
"""Whose lines count in the whole script, as in the example of bsub's page."""


def _first_command(lines: Sequence[str]) -> int:
    """Its place; the number of lines where there is none."""
    places = (at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return next(places, len(lines))


def read_directives(lines: Sequence[str]) -> list[Directive]:
    """The directives of a script, at most 256, without those that their scheduler does not read."""
    listed: list[Directive] = []
    first = _first_command(lines)
    for at, line in enumerate(lines):
        text = line.strip()
        mark = next((mark for mark in _MARKS if re.match(re.escape(mark) + r"\s+\S", text)), "")
        if mark and len(listed) < _MOST and (at < first or _MARKS[mark] in _ANYWHERE):
            listed.append(Directive(_MARKS[mark], printable(text[len(mark) :].strip(), _LONGEST), at + 1))
    return listed


def late_directives(lines: Sequence[str], scheduler: str) -> tuple[OptionProblem, ...]:
    """Those that the scheduler takes for comments: behind the first command, and such as ``# sbatch`` before it.

    Behind it none where a line may begin a text.
    """
    mark = _BEFORE_COMMANDS.get(scheduler, "")
    if not scheduler and any(re.search(r"SLURM_|^\s*srun\s", line) for line in lines):  # none may be one of Slurm's
        mark = _BEFORE_COMMANDS["slurm"]
    if not mark:
        return ()
    first = _first_command(lines)
    written = re.compile(rf"(?!(?-i:{mark}))#\s{{0,9}}{mark[1:]}(\s+-.*)", re.IGNORECASE)
    others = [f"{mark}{match[1].rstrip()}" for match in map(written.match, lines[:first]) if match]
    late = [line.strip() for line in lines[first:] if re.match(re.escape(mark) + r"\s+-", line)]
    why = "which stands behind the first command: there it is a comment"
    pairs = [*((line, filled("with {0} in capitals and no blank in it", mark)) for line in others)]
    pairs += [(line, why) for line in late if not any("<<" in line for line in lines)]
    command = mark[1:].lower()
    return tuple(OptionProblem(command, mark, printable(line, 80), reason, "wanted") for line, reason in pairs[:8])


def resources(directives: Iterable[Directive]) -> Resources:
    """What the directives of the first scheduler request."""
    listed = list(directives)
    if not listed:
        return Resources()
    scheduler = listed[0].scheduler
    texts = [directive.text for directive in listed if directive.scheduler == scheduler]
    if scheduler == "slurm":  # sbatch refuses each of an option's values (tried with 22.05), and goes by the last
        at = next((place for place, text in enumerate(texts) if text in ("hetjob", "packjob")), len(texts))
        texts = texts[:at]  # sbatch(1), "Heterogeneous jobs": a script runs in the first part, and steps do by default
        read, of_first = _slurm(texts), _slurm(texts[::-1]).problems
        return msgspec.structs.replace(read, problems=tuple(dict.fromkeys((*read.problems, *of_first))))
    return {"pbs": _pbs, "lsf": _lsf, "donau": _donau, "grid-engine": _grid_engine}[scheduler](texts)


def _problems(options: Options) -> tuple[OptionProblem, ...]:
    """Without what a template may fill in; a name that is wrong is so with any value."""
    signs = {True: r"[{}<>]", False: r"[{}<>@%$]"}
    return tuple(row for row in options.problems if not re.search(signs[row.expected.startswith("-")], row.value))


def _options(texts: Iterable[str], table: OptionTable, command: str = "") -> Options:
    """Of all lines; each is read by itself, as its scheduler does."""
    options = Options(command)
    for text in texts:
        try:
            part = split_options(command, literal_words(shlex.split(text, comments=True)), table)
        except ValueError:
            options.unresolved["options"] = filled("{0}: a quote without its end", text)
            continue
        for name, values in part.by_name.items():
            options.by_name.setdefault(name, []).extend(values)
        options.problems += part.problems
        options.unresolved |= part.unresolved
        options.rest += () if re.search("[{}<>@%$]", text) else part.rest[:1]
    return options


def _slurm(texts: list[str]) -> Resources:
    row, steps = launcher_rows()["srun"], option_table("of-steps").flags
    options = _options(texts, msgspec.structs.replace(row, apart=" ".join((row.apart, steps, "jobid"))), "sbatch")
    options.refuse_unlisted(row)
    _refuse_of_slurm(options, steps)
    least, most = node_range(options)
    ranks, each = options.number("ntasks", least=1), options.number("ntasks-per-node", least=1, most=65536)
    options.number("cpus-per-task", least=1)
    return Resources(
        scheduler="slurm",
        nodes=least,
        max_nodes=most,
        ranks=ranks,
        ranks_per_node=each,
        problems=_problems(options),
        time_limit_s=slurm_seconds(options.text("time")) or None,  # 0: without a limit
        gpus_per_node=_slurm_gpus(options, each or (1 if least and least == most == ranks else 0)),
        options=options.as_texts(),
        unresolved=options.unresolved,
    )


def _refuse_of_slurm(options: Options, steps: str) -> None:
    """Notes what sbatch refuses, as ``sbatch --test-only`` of 22.05 shows. ``steps``: options that srun alone has."""
    refuse_time(options)
    for word in options.rest:  # "Invalid directive found in batch script"
        expected = "no word apart: blanks in a value stand in quotes"
        options.problems.append(OptionProblem("sbatch", "#SBATCH", printable(word.text, 80), expected))
    for name in options.by_name.keys() & {*steps.split()}:
        options.refuse([name], "that option at srun alone")
    if options.text("exclusive") not in ("", "user", "mcs", "topo"):
        options.refuse(["exclusive"], "no value, or user, mcs or topo")
    for name in ("gres", "gpus-per-node"):
        for entry in options.text(name).split(","):
            wrong = rf"gpus?[0-9=]|gpus:|gpu:{_PART}:{_PART}:|gpu:{_PART}="
            if re.match(wrong, entry, re.ASCII):
                options.refuse([name], "gpu:8, or gpu:TYPE:8")
    for name in ("output", "error", "chdir"):
        if variable := re.search(r"\$\{?[A-Za-z_]\w{0,60}", options.text(name)):
            reason = filled("in place of {0}, which sbatch does not replace", variable[0])
            options.problems.append(OptionProblem("sbatch", PATH, f"--{name}=/path/of/logs", reason, "wanted"))
    for name in ("mem", "mem-per-cpu", "mem-per-gpu"):
        text = options.text(name)
        if name in options and not re.fullmatch(r"[0-9]{1,12}(?:[KMGTkmgt][Bb]?)?", text, re.ASCII):
            options.refuse([name], "a whole number of MiB, or with K, M, G or T behind it")
        elif text.isdecimal() and 0 < int(text) < _LEAST_MEMORY:
            reason = "in place of MiB, which a number alone stands for"
            options.problems.append(OptionProblem("sbatch", UNIT, f"--{name}={text}G", reason, "wanted"))


_PART = "[^:,=]{1,80}"
UNIT, PATH, _LEAST_MEMORY = "a unit of memory", "a path without variables", 1024
"""MiB with which no rank of torch starts."""


def _slurm_gpus(options: Options, tasks: int) -> int | None:
    """``--gpus-per-node=a100:8``, ``--gres=gpu:8``, or those of so many tasks; None where none says how many."""
    text = options.text("gpus-per-node") or next(
        (name[3:].lstrip(":") for name in options.text("gres").split(",") if re.match(r"gpu(:|$)", name)), ""
    )
    match = re.fullmatch(r"(?:[^:,]{1,80}:)?([0-9]{1,4})(?:\(.*\))?", text or options.text("gpus-per-task"), re.ASCII)
    return (int(match[1]) * (1 if text else tasks) or None) if match else None


def refused_steps(text: str) -> tuple[OptionProblem, ...]:
    """What srun refuses of the steps in ``$(srun ...)``, whose output a script reads."""
    steps = re.findall(r"^[^#\n]{0,400}?\$\(\s{0,9}srun\s([^()`|;&<>\n]{1,400})", text, re.MULTILINE)
    row = launcher_rows()["srun"]
    parts = [_options([step], row, "srun") for step in steps[:_MOST]]
    for part in parts:
        part.refuse_unlisted(row)
    return tuple(dict.fromkeys(problem for part in parts for problem in _problems(part)))


def slurm_seconds(text: str) -> int | None:
    """``90`` minutes, ``1:30:00``, ``2-12``, ``2-12:30``: seconds; None for what is none of them, and for no limit.

    >>> slurm_seconds("90"), slurm_seconds("1:30:00"), slurm_seconds("2-12"), slurm_seconds("30:30")
    (5400, 5400, 216000, 1830)
    """
    match = re.fullmatch(r"(?:([0-9]{1,5})-)?([0-9]+(:[0-9]+){0,2})", text, re.ASCII)
    if not match:
        return None
    finest = 2 if match[1] else 1  # colons before the seconds: a number alone is minutes, or hours behind days
    seconds = clock_seconds(match[2] + ":0" * (finest - match[2].count(":")))
    return None if seconds is None else int(match[1] or 0) * DAY + seconds


def _pbs(texts: list[str]) -> Resources:
    options = _options(texts, option_table("pbs"), "qsub")
    limits = ",".join(word.text for word in options.texts("l"))
    nodes = per_node = gpus = None
    match = re.search(r"(?:^|,)(?:select|nodes)=([^,]{1,2000})", limits)
    if match:
        chunks = match[1].split("+")
        if wrong := next((chunk for chunk in chunks if re.fullmatch(r"[A-Za-z]\w{0,40}(?::.*)?", chunk)), ""):
            options.problems += _refused_chunk(limits, wrong)
        counts = [re.match(r"([0-9]{1,6})(?::|$)", chunk) for chunk in chunks]
        nodes = sum(int(count[1]) if count else 1 for count in counts)
        per_chunk = {_resource(chunk, "mpiprocs", "ppn") for chunk in chunks}
        per_node = per_chunk.pop() if len(per_chunk) == 1 else None
        gpus_per_chunk = {_resource(chunk, "ngpus", "gpus") for chunk in chunks}
        gpus = gpus_per_chunk.pop() if len(gpus_per_chunk) == 1 else None
    named = dict(re.findall(r"(?:^|[,:+])([a-z_]{2,40})=([^,:+]{0,200})", limits, re.ASCII))
    for name in sorted(named.keys() - _OF_PBS):
        if meant := _MEANT_OF_PBS.get(name) or next(
            (other for other in sorted(_OF_PBS) if is_one_slip(name, other)), ""
        ):
            options.problems.append(OptionProblem("qsub", "-l", printable(f"{name}={named[name]}", 80), meant))
    wall = re.search(r"(?:^|,)walltime=([^,]{1,20})", limits)
    if wall and not re.fullmatch(r"(?:[0-9]+:){0,3}[0-9]+(?:\.[0-9]+)?", wall[1], re.ASCII):
        options.problems.append(OptionProblem("qsub", "-l", printable(f"walltime={wall[1]}", 80), "walltime=04:00:00"))
    return Resources(
        scheduler="pbs",
        nodes=nodes,
        max_nodes=nodes,
        ranks_per_node=per_node,
        time_limit_s=clock_seconds(wall[1]) if wall else None,
        gpus_per_node=gpus,
        unresolved=options.unresolved,
        problems=_problems(options),
    )


_OF_PBS = frozenset(
    ("ncpus", "ngpus", "ngpu", "gpus", "gpu", "mpiprocs", "ompthreads", "walltime", "select", "nodes", "place")
)
"""Those of GPUs are names that a site gives (PBS Professional, Administrator's Guide, "Custom Resources")."""
_MEANT_OF_PBS = {"wallclock": "walltime", "wall_time": "walltime", "cpus": "ncpus", "num_gpus": "ngpus"}


def _refused_chunk(limits: str, chunk: str) -> list[OptionProblem]:
    """Of ``select=two``; a chunk of Torque's ``nodes=`` may be the name of a host."""
    if f"select={chunk}" not in limits:
        return []
    return [OptionProblem("qsub", "select", printable(chunk, 80), "a number of hosts, such as select=2:ncpus=8")]


def _resource(chunk: str, *names: str) -> int | None:
    matches = (re.search(rf":{name}=([0-9]{{1,5}})(?::|$)", chunk, re.ASCII) for name in names)
    return next((int(match[1]) for match in matches if match), None)


_OF_GPU = ("num", "mode", "mps", "j_exclusive", "gmodel", "gmem", "gtile", "gvendor", "nvlink", "glink", "aff", "block")


def _lsf(texts: list[str]) -> Resources:
    options = _options(texts, option_table("lsf"), "bsub")
    ranks, nodes = options.number("n", least=1), options.number("nnodes", least=1)
    requirement = " ".join(word.text for word in options.texts("R"))
    match = re.search(r"ptile=([0-9]{1,5})", requirement)
    per_node = int(match[1]) if match else None
    if ranks and per_node and ranks % per_node == 0:
        nodes = ranks // per_node
    wall = re.fullmatch(r"(?:([0-9]{1,6}):)?([0-9]{1,7})(?:/.*)?", options.text("W"), re.ASCII)
    if options.text("W") and not wall:
        options.refuse(["W"], "minutes, or hours:minutes")
    for key in re.findall(r"(?:^|:)([a-z_]{2,20})=", options.text("gpu"), re.ASCII):
        if near := [other for other in _OF_GPU if key not in _OF_GPU and is_one_slip(key, other)]:
            options.problems.append(OptionProblem("bsub", "-gpu", f"{key}=", f"{near[0]}="))
    return Resources(
        scheduler="lsf",
        nodes=nodes,
        max_nodes=nodes,
        ranks=ranks,
        ranks_per_node=per_node,
        time_limit_s=(int(wall[1] or 0) * 60 + int(wall[2])) * 60 if wall else None,
        problems=_problems(options),
        unresolved=options.unresolved,
    )


def _donau(texts: list[str]) -> Resources:
    options = _options(texts, option_table("donau"))
    nodes = options.number("N", least=1) or options.number("nn", least=1)
    return Resources(
        scheduler="donau",
        nodes=nodes,
        max_nodes=nodes,
        ranks_per_node=options.number("rpn", "pn", least=1, most=65536),
        time_limit_s=options.number("T", least=1, most=2**30),
        unresolved=options.unresolved,
    )


def _grid_engine(texts: list[str]) -> Resources:
    options = _options(texts, option_table("grid-engine"))
    limits = ",".join(word.text for word in options.texts("l"))
    wall = re.search(r"(?:^|,)h_rt=([0-9:]{1,20})", limits)
    return Resources(
        scheduler="grid-engine", time_limit_s=clock_seconds(wall[1]) if wall else None, unresolved=options.unresolved
    )


def variables_of(requested: Resources) -> Mapping[str, str]:
    """What the scheduler sets as it follows from the directives. Source: sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"."""
    if requested.scheduler != "slurm":
        return {}
    # The script itself runs as the first task on the first host.
    environ = dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0")
    if requested.nodes is not None and requested.nodes == requested.max_nodes:
        environ["SLURM_NNODES"] = environ["SLURM_JOB_NUM_NODES"] = str(requested.nodes)
    if requested.ranks_per_node is not None:
        environ["SLURM_NTASKS_PER_NODE"] = str(requested.ranks_per_node)
    ranks = requested.ranks
    if ranks is None and requested.nodes == requested.max_nodes and "ntasks" not in requested.unresolved:
        ranks = (requested.nodes or 0) * (requested.ranks_per_node or 0) or None
    if ranks is not None:
        environ["SLURM_NTASKS"] = environ["SLURM_NPROCS"] = str(ranks)
    if requested.gpus_per_node and "gpus-per-task" not in requested.options:
        environ["SLURM_GPUS_ON_NODE"] = str(requested.gpus_per_node)
    values = {option: requested.options.get(option, ("",))[-1] for option in _SET_AS_GIVEN}
    return environ | {name: values[option] for option, name in _SET_AS_GIVEN.items() if values[option]}


_SET_AS_GIVEN = {
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "distribution": "SLURM_DISTRIBUTION",
}
