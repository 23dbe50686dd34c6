"""What a launch line says, as values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.record import OptionProblem
from doctor.job.job_size import ONE_ON_EACH_HOST, STARTS_TASKS
from doctor.job.shell.word import Loop

_STATIC = ("rdzv-endpoint", "master-addr", "master-port", "main-process-ip", "main-process-port")
_DYNAMIC = ("rdzv-endpoint", "rdzv-id")
"""Options by which the hosts of a job meet: of torchrun's static backend and other launchers, and of c10d and etcd."""
_OTHER_ON_EACH_HOST = re.compile(
    r"\$\(\s*(?:hostname|uuidgen|shuf)\b|\$\{?(?:HOSTNAME|SLURMD_NODENAME)\b|\bRANDOM\b|\$\$", re.ASCII
)


_LIMIT = re.compile(r"-S?([nultfsdv])S? ?([0-9]{1,18}|unlimited|hard)(?!\S)", re.ASCII)
_KEEP_LIMITS = (*ONE_ON_EACH_HOST, "srun")
"""Launchers whose ranks have the limits of the shell that starts them: slurm.conf(5), "PropagateResourceLimits"."""


class NotALaunchLine(ValueError):
    """Words that start no program: what is wrong."""


OF_LOOP = re.compile(r"set (?:by|in) (?:a loop|read) ")
"""In the reason why a value is not known."""
NOT_BASH = "#!/bin/sh"
"""In place of an option that is not given: the first line of a script, for which sh may have no word."""
IN_BACKGROUND = "&"
"""The sign behind a line that else waits for what starts after it."""
OWN_NETWORK, OWN_MEMORY, OWN_DEVICES = "--network", "--shm-size", "--gpus"
"""Options that a container of a job on several hosts needs, and one of several ranks."""


class LaunchCall(msgspec.Struct, frozen=True, kw_only=True):
    """One launcher of a line. None and empty: the option is not given; see `unresolved` for what cannot be read."""

    launcher: str
    """``torchrun``, ``openmpi``, ``hydra``, ``srun``, ``msrun``, ``accelerate``, ``deepspeed``, ``colossalai``,
    ``horovodrun``, ``ray``, ``ssh``."""
    command: str
    """As it stands in the line, such as ``python -m torch.distributed.run``."""
    nodes: int | None = None
    """Hosts; of an elastic launch the least."""
    max_nodes: int | None = None
    """Hosts at most; equal to ``nodes`` unless the launch is elastic."""
    ranks: int | None = None
    """Processes that the launcher starts on all hosts."""
    ranks_per_node: int | None = None
    """Processes that the launcher starts on each host."""
    ranks_by_devices: str = ""
    """The word that makes the number of ranks that of the devices: ``gpu``, ``auto``, ``cpu``."""
    node_rank: int | None = None
    master_addr: str = ""
    master_port: int | None = None
    rdzv_backend: str = ""
    rdzv_endpoint: str = ""
    standalone: bool = False
    """One host, with a port that the launcher chooses."""
    hosts: tuple[str, ...] = ()
    """Named in the line; node sets such as ``n[1-4]`` as they stand."""
    hostfile: str = ""
    environ: dict[str, str] = {}
    """Variables that the launcher gives its processes."""
    passed: tuple[str, ...] = ()
    """Names of the caller's variables that the launcher passes on."""
    options: dict[str, tuple[str, ...]] = {}
    """All options: name without dashes, with ``-`` for ``_``, and their values in order; a flag has none."""
    unresolved: dict[str, str] = {}
    """By option, also ``NAME=`` of a variable: source text that only a shell or a host can resolve."""
    problems: tuple[OptionProblem, ...] = ()

    @property
    def is_numbered_by_line(self) -> bool:
        """False: a backend numbers the hosts, or may do so."""
        return self.rdzv_backend in ("", "static") and not {"rdzv-backend", "options"} & self.unresolved.keys()

    @property
    def fixed_node_rank(self) -> int | None:
        """The node rank that this very line gives to each host on which it runs; None: it says none, or none counts.

        Without the option torchrun takes 0. With a backend that numbers the hosts, as c10d does, the option is ignored.
        """
        if not self.is_numbered_by_line or "node-rank" in self.unresolved:
            return None
        return 0 if self.node_rank is None and self.launcher == "torchrun" and not self.standalone else self.node_rank

    @property
    def folder(self) -> str:
        """In which its programs start, by its own option; empty: its own, or not known."""
        return self.option({"srun": "chdir", "openmpi": "wdir"}.get(self.launcher, ""))

    def option(self, name: str) -> str:
        """The last value of an option; empty where it is not given or is a flag."""
        return next(reversed(self.options.get(name, ())), "")


class LaunchLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that starts a program, through launchers or not."""

    text: str
    """For people: at most 400 characters."""
    launchers: tuple[LaunchCall, ...] = ()
    """Outer to inner."""
    wrappers: tuple[str, ...] = ()
    """Other commands around the program, outer to inner: ``env``, ``numactl``, ``docker run``."""
    container: str = ""
    """Image or name of the container in which the program runs."""
    environ: dict[str, str] = {}
    """Variables that the line itself, or the script before it, sets for the program."""
    removed: frozenset[str] = frozenset()
    """Variables that the line or the script removes."""
    inherits_environment: bool = True
    """False: the program has only ``environ`` (``env -i``, a container, ``srun --export=NONE``)."""
    passed: tuple[str, ...] = ()
    """Where it does not inherit: names that it gets from the caller nevertheless."""
    program: str = ""
    """The script, module or file that every rank runs; empty where the line does not say it."""
    interpreter: str = ""
    """``python3``; empty for a program that is run itself."""
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    """Of the program; an unresolved word as its source text."""
    commands: tuple[tuple[str, str], ...] = ()
    """What is started one by another, as it stands in the line, each with the launcher that starts it, which is empty
    outside of any: outer to inner, as far as no container, other host or shell's text lies between."""
    before: tuple[str, ...] = ()
    """What stands before the outermost launcher, interpreter or program; ``$`` for a word that is not resolved."""
    paths: tuple[str, ...] = ()
    """Launchers that stand there with a folder, and start on each host."""
    unresolved_arguments: frozenset[int] = frozenset()
    """Positions in ``arguments`` whose text is not exact."""
    unresolved: dict[str, str] = {}
    """What of the line cannot be read, by option or ``NAME=`` or ``program``: the source text or the reason."""
    problems: tuple[OptionProblem, ...] = ()
    line: int = 0
    """In the script, from 1; 0: not of a script."""
    conditional: bool = False
    """In a branch, a loop or a function of the script."""
    is_repeated: bool = False
    """In no branch and no function: it runs in each round of the loops around it, if there are any."""
    loops: Mapping[str, Loop] = {}
    """As of `ShellCommand`."""
    operator: str = ""
    """Behind it in the script, and behind the pipeline that it is in: ``&``, or ``;`` where the shell waits for it."""
    is_left: bool = False
    """Behind it nothing waits for what runs in the background, and the script ends."""
    waits: int = 0
    """How many lines with ``wait`` and the like stand before it."""
    written: Mapping[str, str] = {}
    """As of `ShellCommand`."""
    computed_on_hosts: frozenset[str] = frozenset()
    """Source texts that a shell on each host computes for itself, such as ``$(hostname)``; see `unresolved`."""
    start_folder: str = ""
    """Of a script: the folder in which the line surely runs, by ``cd``; ``.``: the caller's; empty: not known."""
    makes_folder: bool = False
    """A ``mkdir`` of the script may make it."""
    makes_files: bool = False
    """Commands of the script before the line may make the files that it names."""
    ulimits: tuple[str, ...] = ()
    """Arguments of ``ulimit`` in the script before the line."""
    is_first: bool = False
    """No command of the script before the line changes what it finds."""
    is_alone: bool = False
    """Nothing else of the script starts anything on another host; False where that is not sure."""
    is_whole_here: bool = False
    """It and the lines beside it start all hosts of the job on one machine, as for a trial of several hosts."""

    @property
    def limits(self) -> list[tuple[str, str]]:
        """What ``ulimit`` of the script sets for the ranks: the letter of the option and the value."""
        is_own = all(call.launcher in _KEEP_LIMITS for call in self.launchers)
        texts = self.ulimits if is_own else ()
        return [(match[1], match[2]) for text in texts if "-H" not in text for match in _LIMIT.finditer(text)]

    @property
    def folder(self) -> str:
        """In which the program starts, by an option of a launcher; empty: in its own."""
        return "".join(call.folder for call in self.launchers[-1:])

    def first_launcher(self, argv: Sequence[str]) -> tuple[LaunchCall | None, int]:
        """The outermost launcher, and the place of its first option among the words of the line; None and 0 where it is
        not among them.
        """
        call = next(iter(self.launchers), None)
        names = [os.path.basename(word) for word in argv]
        return (call, names.index(call.command) + 1) if call is not None and call.command in names else (None, 0)

    @property
    def innermost(self) -> LaunchCall | None:
        """The launcher that gives ranks their numbers."""
        return self.launchers[-1] if self.launchers else None

    @property
    def _is_one_process(self) -> bool:
        """A Python program, or a rank's own."""
        return not self.launchers and ("program" not in self.unresolved or self.program == "-c")

    @property
    def nodes(self) -> int | None:
        """Hosts of the job, by the innermost launcher that says it; of an elastic launch the least.

        A Python program, and a launcher that starts ranks on its own host, say 1.
        """
        for call in reversed(self.launchers):
            if call.nodes is not None:
                return call.nodes
            if _says(call, "nnodes", "nodes", "num-nodes", "num-machines"):
                return None
        return 1 if self._is_one_process else None

    @property
    def unread_options(self) -> dict[str, str]:
        """Options of the launchers whose values cannot be read, with dashes before their names."""
        return {
            f"--{option}": text
            for call in self.launchers
            for option, text in call.unresolved.items()
            if not option.endswith("=") and option != "program"
        }

    @property
    def differing(self) -> dict[str, str]:
        """What all hosts must have alike and each computes another value for: the source text by variable or option."""
        call = self.innermost
        names = () if call is None else _STATIC if call.rdzv_backend in ("", "static") else _DYNAMIC
        sources = {f"--{name}": call.option(name) for name in names} if call else {}
        if call and call.launcher in STARTS_TASKS:  # the others set the variables themselves
            sources = {name: self.unresolved.get(f"{name}=", "") for name in ("MASTER_ADDR", "MASTER_PORT")}
        computed = [text for text in self.computed_on_hosts if _OTHER_ON_EACH_HOST.search(text)]
        return {name: source for name, source in sources.items() if any(text in source for text in computed)}

    @property
    def ranks_per_node(self) -> int | None:
        """Ranks on each host; None where the line does not say it or the hosts' devices decide."""
        call = self.innermost
        if call is None:
            return 1 if self._is_one_process else None
        if call.ranks_per_node is None and call.ranks is not None and self.nodes and call.ranks % self.nodes == 0:
            return call.ranks // self.nodes
        return call.ranks_per_node

    @property
    def world_size(self) -> int | None:
        """Ranks of the job; None where the line does not say it."""
        call = self.innermost
        if call is None:
            return 1 if self._is_one_process else None
        if call.ranks is not None:
            return call.ranks
        if call.max_nodes != call.nodes or self.nodes is None or self.ranks_per_node is None:
            return None
        return self.nodes * self.ranks_per_node


def _says(call: LaunchCall, *options: str) -> bool:
    return any(option in call.unresolved for option in options)


def split_endpoint(text: str) -> tuple[str, int | None]:
    """``host:port``, ``host``, ``[::1]:port``."""
    match = re.fullmatch(r"(?:\[([^\]]*)\]|([^:]*))(?::([0-9]{1,5}))?", text, re.ASCII)
    if not match:
        return text, None
    return match[1] or match[2] or "", int(match[3]) if match[3] and int(match[3]) < 65536 else None
