"""Slurm's own srun as the way to the hosts of a job: one step that overlaps all others, with a carrier on each."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from doctor.engine.bounded_run import run_bounded
from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.hosts.nodeset import SLURM_COMPONENTS, InventoryError, expand_nodeset
from doctor.transport import TransportError, transport_error
from doctor.transport.launcher.launcher import Launcher, LaunchReader, TaskOutput, carrier_command

_FIRST_WITH_OVERLAP = (20, 11)
"""The first with --overlap; before it steps shared their resources unasked."""
_LABEL = re.compile(rb" *(\d+): ?(.*)", re.DOTALL)
_LAUNCHING = re.compile(r"launching (?:StepId=)?(\S*).*\bon host (\S+), \d+ tasks?: (\d+)")
_STARTED = re.compile(r"\bNode (\S+), \d+ tasks? started")
_FAILED = re.compile(r"error: Task launch for \S+ failed on node (\S+): (.*)")
_ERROR = re.compile(r"(?:error|fatal): (.*)")
_USABLE_STATES = (
    *("idle", "allocated", "mixed", "completing", "planned", "draining", "drained", "reserved", "maint"),
    "unknown",
)
"""Node states in which a job that has the node may start steps on it."""
_STEP_VARIABLES = frozenset(
    re.findall(
        r"\S+",
        """
    NTASKS NPROCS NNODES NODELIST TASKS_PER_NODE NTASKS_PER_NODE NTASKS_PER_CORE NTASKS_PER_SOCKET NTASKS_PER_GPU
    NTASKS_PER_TRES CPUS_PER_TASK CPUS_PER_GPU MEM_PER_CPU MEM_PER_NODE MEM_PER_GPU MEM_BIND CPU_BIND CPU_BIND_TYPE
    CPU_BIND_LIST CPU_BIND_VERBOSE MEM_BIND_TYPE MEM_BIND_LIST DISTRIBUTION DIST_PLANESIZE DIST_LLLP HOSTFILE
    EXCLUSIVE EXACT OVERLAP WHOLE THREADS_PER_CORE HINT CORE_SPEC THREAD_SPEC STDINMODE STDOUTMODE STDERRMODE LABELIO
    UNBUFFEREDIO KILL_BAD_EXIT WAIT MULTI_PROG OVERCOMMIT THREADS IMMEDIATE EXPORT_ENV EPILOG PROLOG TASK_EPILOG
    TASK_PROLOG REMOTE_CWD WORKING_DIR OPEN_MODE NETWORK MPI_TYPE GPUS GPUS_PER_NODE GPUS_PER_TASK GPUS_PER_SOCKET
    GPU_BIND GPU_FREQ GRES TRES_PER_TASK TRES_BIND STEP_GRES DEBUG PROFILE ACCTG_FREQ INTERACTIVE USE_MIN_NODES
    NO_KILL DISABLE_STATUS CONSTRAINT CLUSTER_CONSTRAINT EXCLUDES TIMELIMIT JOB_NAME BCAST SEND_LIBS
    PTY PTY_PORT PTY_WIN_COL PTY_WIN_ROW RESV_PORTS SPREAD_JOB REQ_SWITCH SIGNAL MAX_NODES MIN_NODES
""",
    )
)
"""Of the job that we may run in, under SLURM_ and SRUN_: they would shape our step like that job's."""


class Slurm(Launcher):
    """The launcher of Slurm; DOCTOR_SRUN may hold srun and more options for it."""

    name = "srun"
    default_timeout = 15.0

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._srun = shlex.split(environ.get("DOCTOR_SRUN", "")) or ["srun"]
        super().__init__({name: value for name, value in environ.items() if not _is_step_variable(name)})
        self._overlap = True
        self._components = components_by_host(environ)

    def check(self) -> None:
        if not shutil.which(self._srun[0]):
            raise transport_error(
                "error", filled("{0} is not installed on this machine", self._srun[0]), "--transport ssh"
            )
        self._overlap = parse_version(_query([self._srun[0], "--version"], self._environ)) >= _FIRST_WITH_OVERLAP

    def groups(self, hosts: Sequence[str]) -> list[tuple[str, ...]]:
        """See `doctor.transport.launcher.launcher.Launcher.groups`: one step takes all hosts of a component."""
        by_component = lists_by_key((self._components.get(host), host) for host in hosts)
        return [tuple(group) for group in by_component.values()]

    def argv(self, hosts: Sequence[str], patience: float) -> list[str]:
        count = str(len(hosts))
        shape = ["--nodes", count, "--ntasks", count, "--ntasks-per-node=1", "--nodelist", ",".join(hosts)]
        rest = ["--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--input=all", "--label", "--verbose", "--mem=0"]
        more = ["--cpu-bind=none", "--export=ALL", "--chdir=/", f"--immediate={max(1, math.ceil(patience))}"]
        overlap = ["--overlap"] if self._overlap else []
        component = self._components.get(hosts[0])
        overlap += [] if component is None else [f"--het-group={component}"]
        return [*self._srun, *overlap, *shape, *rest, *more, *carrier_command()]

    def open_reader(self, hosts: Sequence[str]) -> SlurmReader:
        return SlurmReader()

    def affects_all_hosts(self, error_text: str) -> bool:
        """See `Launcher.alike`: a message of srun about some of the nodes names them."""
        return bool(error_text) and "node" not in error_text.lower()

    def test_command(self, host: str) -> str:
        return f"`scontrol show node {strip_control_chars(host)}`"

    def cancel(self, reader: LaunchReader) -> None:
        """See `Launcher.cancel`: tasks outlive an srun that was killed while it launched."""
        if reader.launch_id:
            _query(["scancel", "--quiet", reader.launch_id], self._environ)

    def states(self, hosts: Sequence[str]) -> dict[str, TransportError]:
        argv = ["sinfo", "--noheader", "--Node", "--nodes", ",".join(hosts), "--format", "%N %T"]
        return read_states(_query(argv, self._environ))


def node_addresses(hosts: Sequence[str]) -> dict[str, str]:
    """The addresses (NodeAddr) of the nodes whose names do not resolve; empty outside of Slurm.

    A site may name its nodes by their places in a rack, and no name server knows these names.
    """
    if all(map(_resolves, (hosts[0], hosts[-1]))):
        return {}
    addresses = read_addresses(_query(["scontrol", "show", "node", "--oneliner", ",".join(hosts)], os.environ))
    return {host: addresses[host] for host in hosts if host in addresses and not _resolves(host)}


def _resolves(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False


def read_addresses(scontrol_output: str) -> dict[str, str]:
    """NodeAddr by NodeName, of ``scontrol show node --oneliner``, where it is another name or an address.

    >>> read_addresses("NodeName=r1c1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=n1 State=IDLE")
    {'r1c1': '10.0.0.1'}
    """
    addresses: dict[str, str] = {}
    for line in scontrol_output.splitlines():
        fields = dict(word.partition("=")[::2] for word in line.split())
        name, address = fields.get("NodeName", ""), fields.get("NodeAddr", "")
        if name and address != name and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]*", address):
            addresses[name] = address
    return addresses


def components_by_host(environ: Mapping[str, str]) -> dict[str, int]:
    """The component of each host of a heterogeneous job; empty where the job is none, or its nodes make no sense.

    srun starts a step in the first component where nothing else is asked for.

    >>> names = {"SLURM_JOB_NODELIST_HET_GROUP_0": "a", "SLURM_JOB_NODELIST_HET_GROUP_1": "b[1-2]"}
    >>> components_by_host({"SLURM_HET_SIZE": "2", **names})
    {'a': 0, 'b1': 1, 'b2': 1}
    """
    size, lists = next(
        ((environ[name], lists) for name, lists in SLURM_COMPONENTS.items() if name in environ), ("", "")
    )
    if not re.fullmatch(r"[0-9]{1,3}", size, re.ASCII):
        return {}
    components: dict[str, int] = {}
    for number in range(int(size)):
        name = f"{lists}{number}"
        try:
            hosts = expand_nodeset(environ.get(name, ""), name)
        except InventoryError:
            return {}
        for host in hosts:
            components.setdefault(host, number)
    return components


def _is_step_variable(name: str) -> bool:
    head, _, rest = name.partition("_")
    return name.startswith(("SLURM_STEP_", "SLURM_JOB_CPUS")) or (head in ("SLURM", "SRUN") and rest in _STEP_VARIABLES)


MAX_QUERY_BYTES = 16 << 20
"""Bytes of an answer of Slurm; a line for each node."""


def _query(argv: list[str], environ: Mapping[str, str]) -> str:
    """What a short question is answered; nothing where it is not."""
    try:
        done = run_bounded(argv, 10.0, MAX_QUERY_BYTES, environ)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def parse_version(version_output: str) -> tuple[int, ...]:
    """Of Slurm, by ``srun --version``; where it does not say, a recent one.

    >>> parse_version("slurm 22.05.8"), parse_version("slurm-wlm 19.05.5"), parse_version("")
    ((22, 5), (19, 5), (99,))
    """
    match = re.search(r"\b(\d{1,4})\.(\d{1,4})", version_output)
    return (int(match[1]), int(match[2])) if match else (99,)


def read_states(sinfo_output: str) -> dict[str, TransportError]:
    r"""The nodes that no step can use, by ``sinfo -h -N -o '%N %T'``; of a node in several partitions, once.

    >>> {host: stop.text for host, stop in read_states("a idle\nb down*\nc mixed\n").items()}
    {'b': 'Slurm reports it as down, not responding'}
    """
    unusable_nodes: dict[str, TransportError] = {}
    for line in sinfo_output.splitlines():
        host, _, state = line.strip().partition(" ")
        word, silent = state.strip().rstrip("*~#!%$@^-+").lower(), "*" in state
        if state and (silent or word not in _USABLE_STATES):
            text = filled("Slurm reports it as {0}{1}", word, ", not responding" if silent else "")
            unusable_nodes[host] = transport_error(
                "dropped" if silent else "refused", text, f"scontrol show node {host}"
            )
    return unusable_nodes


class SlurmReader(LaunchReader):
    """srun itself labels each line with its task's number: no task can pretend to be another."""

    def read_stdout(self, piece: bytes) -> Iterator[TaskOutput]:
        for line in self._stdout_lines.split(piece):
            if match := _LABEL.fullmatch(line):
                yield TaskOutput(int(match[1]), False, match[2])

    def read_stderr(self, piece: bytes) -> Iterator[TaskOutput]:
        for line in self._stderr_lines.split(piece):
            if match := _LABEL.fullmatch(line):
                yield TaskOutput(int(match[1]), True, match[2] + b"\n")
            elif line.startswith(b"srun: "):
                self._read_srun_line(line[:2000].decode("utf-8", "replace"))

    def _read_srun_line(self, line: str) -> None:
        if match := _LAUNCHING.search(line):
            self.host_by_task[int(match[3])] = match[2]
            self.launch_id = match[1] if re.fullmatch(r"\d+\.\d+", match[1]) else ""
        elif match := _STARTED.search(line):
            self.started_hosts.add(match[1])
        elif match := _FAILED.search(line):
            text = filled("Slurm could not start a task on it: {0}", match[2])
            self.errors_by_host[match[1]] = transport_error(
                "dropped", text, f"scontrol show node {strip_control_chars(match[1])}"
            )
        elif (match := _ERROR.search(line)) and not self.errors_by_host:
            self.last_error = strip_control_chars(match[1])
