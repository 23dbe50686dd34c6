"""Open MPI's own mpirun as the way to a job's hosts: a carrier on each, started as the site's mpirun starts them.

Where that is ssh, a host's root can write into mpirun's own output, and so speak for another host; not with srun.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled
from doctor.transport import transport_error
from doctor.transport.launcher.launcher import Launcher, LaunchReader, TaskOutput, carrier_command
from doctor.transport.this_host import addresses_of_interfaces, resolve_name

_PIECE = re.compile(rb'<(stdout|stderr) rank="(\d+)">([^<]*)</\1>')
_ESCAPED = re.compile(rb"&(#\d{1,3}|lt|gt|amp);")
_UNESCAPED = {b"lt": b"<", b"gt": b">", b"amp": b"&"}
_HOST = re.compile(rb'\s*<host name="([^"]+)"')
_RANK = re.compile(rb'\s*<process rank="(\d+)"')
_SSH = re.compile(r"^ssh: (?:connect to host|Could not resolve hostname) ([^\s:]+)(?: port \d+)?: (.*)")
_RUNTIME_PREFIXES = (
    *(
        f"OMPI_{name}"
        for name in ("COMM_", "UNIVERSE", "APP", "FIRST", "FILE", "ARGV", "COMMAND", "NUM", "MCA_initial")
    ),
    *(f"OMPI_MCA_{name}" for name in ("orte_", "ess", "pmix")),
    *("PMIX_", "PMI_", "ORTE_", "PRTE_"),
)
"""What mpirun sets for us when we run under one: to the next it would say that it is a rank of the first."""


class Mpi(Launcher):
    """The launcher of Open MPI; DOCTOR_MPIRUN may hold mpirun and more options for it."""

    name = "mpirun"

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._mpirun = shlex.split(environ.get("DOCTOR_MPIRUN", "")) or ["mpirun"]
        inside = "OMPI_COMM_WORLD_RANK" in environ
        super().__init__(
            {name: value for name, value in environ.items() if not (inside and name.startswith(_RUNTIME_PREFIXES))}
        )

    def check(self) -> None:
        if not shutil.which(self._mpirun[0]):
            raise transport_error(
                "error", filled("{0} is not installed on this machine", self._mpirun[0]), "--transport ssh"
            )
        try:
            done = subprocess.run(
                [self._mpirun[0], "--version"], env=self._environ, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            raise transport_error("error", filled("{0} --version does not answer", self._mpirun[0])) from None
        require_supported(done.stdout.decode("utf-8", "replace"), self._mpirun[0])

    def groups(self, hosts: Sequence[str]) -> list[tuple[str, ...]]:
        """See `doctor.transport.launcher.launcher.Launcher.groups`.

        mpirun passes its stdin, when it is for all ranks, to those on other hosts only. So its own host, in a job
        nearly always one of the job's, gets a launch of its own.
        """
        local_hosts = own_hosts(hosts)
        rest = tuple(host for host in hosts if host not in local_hosts)
        return [*((host,) for host in local_hosts), *([rest] if rest else [])]

    def argv(self, hosts: Sequence[str], patience: float) -> list[str]:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        where = ["--host", ",".join(hosts), "-np", str(len(hosts)), "--map-by", "ppr:1:node", "--bind-to", "none"]
        keep = ["--mca", "orte_keep_fqdn_hostnames", "1", "--continuous", "--wdir", "/"]
        keep += ["--stdin", "all" if len(hosts) > 1 else "0"]
        return [*self._mpirun, *root, *where, *keep, "--xml", "--display-map", *carrier_command()]

    def open_reader(self, hosts: Sequence[str]) -> MpiReader:
        return MpiReader(hosts)

    def test_command(self, host: str) -> str:
        return f"`{self._mpirun[0]} --host {strip_control_chars(host)} -np 1 hostname`"


def own_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Those that are the machine that this process runs on, as mpirun decides it: by name, else by address.

    >>> own_hosts(["192.0.2.1", "127.0.0.1"])
    ('127.0.0.1',)
    """
    own_name = os.uname().nodename.lower()
    named = tuple(host for host in hosts if host.lower() in (own_name, own_name.partition(".")[0]))
    if named:
        return named
    own_addresses = addresses_of_interfaces()
    return tuple(host for host in hosts if own_addresses.intersection(resolve_name(host)))


def require_supported(version_output: str, program: str = "mpirun") -> None:
    """Raises: Unreached for an mpirun whose ``--version`` is not supported."""
    match = re.search(r"Open(?: MPI|RTE)\)? *(\d+)\.", version_output)
    if match and int(match[1]) in (3, 4):
        return
    implementation = (
        f"Open MPI {match[1]}"
        if match
        else strip_control_chars(version_output.strip().partition("\n")[0], 60) or "of an unknown kind"
    )
    text = filled("{0} is {1}; expected Open MPI 3 or 4", program, implementation)
    raise transport_error("unsupported", text, "--transport ssh, or slurm in a Slurm job")


class MpiReader(LaunchReader):
    """mpirun wraps a task's output in elements that the task cannot write itself."""

    def __init__(self, hosts: Sequence[str]) -> None:
        super().__init__(1 << 18)
        self.host_by_task = dict(enumerate(hosts))
        self._hosts = {host.lower(): host for host in hosts}
        self._map_host = ""
        self._map_complete = False

    def read_stdout(self, piece: bytes) -> Iterator[TaskOutput]:
        for line in self._stdout_lines.split(piece):
            for match in _PIECE.finditer(line):
                yield TaskOutput(int(match[2]), match[1] == b"stderr", _ESCAPED.sub(_unescape, match[3]))
            if not self._map_complete:
                self._read_map_line(line)

    def _read_map_line(self, line: bytes) -> None:
        """The first map is mpirun's own; its daemons on the hosts print theirs later."""
        if line.strip() == b"</map>":
            self._map_complete = True
        elif match := _HOST.match(line):
            self._map_host = self._hosts.get(match[1].decode("utf-8", "replace").lower(), "")
        elif (match := _RANK.match(line)) and self._map_host:
            self.host_by_task[int(match[1])] = self._map_host

    def read_stderr(self, piece: bytes) -> Iterator[TaskOutput]:
        for line in self._stderr_lines.split(piece):
            self._read_error_line(line[:2000].decode("utf-8", "replace").strip())
        yield from ()

    def _read_error_line(self, line: str) -> None:
        if match := _SSH.match(line):
            host = self._hosts.get(match[1].lower())
            self.last_error = strip_control_chars(line)
            if host:
                self.errors_by_host[host] = transport_error(
                    "dropped", filled("mpirun's ssh could not connect to it: {0}", match[2])
                )
        elif line and not self.last_error and not line.startswith(("-", "[", "*")):
            self.last_error = strip_control_chars(line)


def _unescape(match: re.Match[bytes]) -> bytes:
    name = match[1]
    return _UNESCAPED.get(name) or bytes([min(int(name[1:]), 255)])
