"""Open MPI's own mpirun as the way to a job's hosts: a carrier on each, started however the site's mpirun starts them.

Where that is ssh, a host's root can write into mpirun's own output, and so speak for another host; srun lets nobody.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from doctor.engine.sanitize import plain
from doctor.transport import Unreached
from doctor.transport.launcher.launcher import Ears, Heard, Lines, carrier
from doctor.transport.messages import unreached

_PIECE = re.compile(rb'<(stdout|stderr) rank="(\d+)">(.*?)</\1>', re.DOTALL)
_ESCAPED = re.compile(rb"&(#\d{1,3}|lt|gt|amp);")
_PLAIN = {b"lt": b"<", b"gt": b">", b"amp": b"&"}
_HOST = re.compile(rb'\s*<host name="([^"]+)"')
_RANK = re.compile(rb'\s*<process rank="(\d+)"')
_SSH = re.compile(r"^ssh: (?:connect to host|Could not resolve hostname) ([^\s:]+)(?: port \d+)?: (.*)")
_RUNTIME = (
    *(
        f"OMPI_{name}"
        for name in ("COMM_", "UNIVERSE", "APP", "FIRST", "FILE", "ARGV", "COMMAND", "NUM", "MCA_initial")
    ),
    *(f"OMPI_MCA_{name}" for name in ("orte_", "ess", "pmix")),
    *("PMIX_", "PMI_", "ORTE_", "PRTE_"),
)
"""What mpirun sets for us when we run under one: to the next it would say that it is a rank of the first."""


class Mpi:
    """`doctor.transport.launcher.launcher.Launcher`; DOCTOR_MPIRUN may hold mpirun and more options for it."""

    name = "mpirun"
    patience = 20.0

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._mpirun = shlex.split(environ.get("DOCTOR_MPIRUN", "")) or ["mpirun"]
        inside = "OMPI_COMM_WORLD_RANK" in environ
        self._environ = {name: value for name, value in environ.items() if not (inside and name.startswith(_RUNTIME))}

    def check(self) -> None:
        """See `doctor.transport.launcher.launcher.Launcher.check`."""
        if not shutil.which(self._mpirun[0]):
            raise unreached("error", f"there is no {self._mpirun[0]} program here", "--transport ssh")
        try:
            done = subprocess.run(
                [self._mpirun[0], "--version"], env=self._environ, capture_output=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            raise unreached("error", f"{self._mpirun[0]} --version does not answer") from None
        refuse(done.stdout.decode("utf-8", "replace"), self._mpirun[0])

    def argv(self, hosts: Sequence[str], patience: float) -> list[str]:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        where = ["--host", ",".join(hosts), "-np", str(len(hosts)), "--map-by", "ppr:1:node", "--bind-to", "none"]
        keep = ["--mca", "orte_keep_fqdn_hostnames", "1", "--continuous", "--wdir", "/"]
        return [*self._mpirun, *root, *where, *keep, "--stdin", "all", "--xml", "--display-map", *carrier()]

    def environ(self) -> Mapping[str, str]:
        return {**self._environ, "LC_ALL": "C"}

    def ears(self, hosts: Sequence[str]) -> MpiEars:
        return MpiEars(hosts)

    def alike(self, words: str) -> bool:
        """See `doctor.transport.launcher.launcher.Launcher.alike`: mpirun does not say whose error it is."""
        return False

    def cancel(self, ears: Ears) -> None:
        """See `doctor.transport.launcher.launcher.Launcher.cancel`: its daemons on the hosts see to that."""

    def states(self, hosts: Sequence[str]) -> dict[str, Unreached]:
        return {}


def refuse(said: str, program: str = "mpirun") -> None:
    """Raises: Unreached for an mpirun that cannot carry us, by what ``--version`` says."""
    found = re.search(r"Open(?: MPI|RTE)\)? *(\d+)\.", said)
    if found and int(found[1]) in (3, 4):
        return
    what = f"Open MPI {found[1]}" if found else plain(said.strip().partition("\n")[0], 60) or "of an unknown kind"
    text = f"{program} is {what}; to carry the checks it has to be Open MPI 3 or 4"
    raise unreached("unsupported", text, "--transport ssh, or slurm in a Slurm job")


class MpiEars:
    """mpirun wraps what a task says in elements that the task cannot write itself."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.places = dict(enumerate(hosts))
        self.started: set[str] = set()
        self.troubles: dict[str, Unreached] = {}
        self.launch = self.words = ""
        self._hosts = {host.lower(): host for host in hosts}
        self._out, self._err = Lines(1 << 18), Lines()
        self._host = ""
        self._mapped = False

    def out(self, piece: bytes) -> Iterator[Heard]:
        for line in self._out.cut(piece):
            for found in _PIECE.finditer(line):
                yield Heard(int(found[2]), found[1] == b"stderr", _ESCAPED.sub(_letter, found[3]))
            if not self._mapped:
                self._map(line)

    def _map(self, line: bytes) -> None:
        """The first map is mpirun's own; its daemons on the hosts print theirs later."""
        if line.strip() == b"</map>":
            self._mapped = True
        elif found := _HOST.match(line):
            self._host = self._hosts.get(found[1].decode("utf-8", "replace").lower(), "")
        elif (found := _RANK.match(line)) and self._host:
            self.places[int(found[1])] = self._host

    def err(self, piece: bytes) -> Iterator[Heard]:
        for line in self._err.cut(piece):
            self._note(line[:2000].decode("utf-8", "replace").strip())
        yield from ()

    def _note(self, line: str) -> None:
        if found := _SSH.match(line):
            host = self._hosts.get(found[1].lower())
            self.words = plain(line)
            if host:
                self.troubles[host] = unreached("dropped", f"mpirun's ssh did not reach it: {found[2]}")
        elif line and not self.words and not line.startswith(("-", "[", "*")):
            self.words = plain(line)


def _letter(found: re.Match[bytes]) -> bytes:
    name = found[1]
    return _PLAIN.get(name) or bytes([min(int(name[1:]), 255)])
