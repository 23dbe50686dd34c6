"""Real hosts to reach: this process itself goes into their network, so that what it measures is our own client."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from doctor.transport.openssh.openssh_transport import OpenSsh
from doctor.transport.options import SshOptions
from doctor.transport.ssh.ssh_transport import Ssh
from tests.hosts.fleet import Fleet

CLONE_NEWNET = 0x40000000
FAULTS = ("refuse", "drop", "silent", "wrong-key", "deny", "hang", "flood", "cut")
GOOD = 8


def enter_network(path: str) -> None:
    """Moves this thread, and all threads and processes that it starts from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(path) as network:
        if libc.setns(network.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {path}")


@pytest.fixture(scope="session")
def faulty_fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    """Eight good hosts, and one with each fault."""
    faults = {f"tp{GOOD + 1 + number:04d}": {"fault": fault} for number, fault in enumerate(FAULTS)}
    return make_fleet(GOOD + len(FAULTS), faults, name="tp", subnet="10.78.0.0/16", host_keys="each")


class Ground:
    """The hosts, and ways to reach them as a user would configure them."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet, self.folder = fleet, folder
        self.good = fleet.hosts[:GOOD]
        self.faulty = dict(zip(FAULTS, fleet.hosts[GOOD:], strict=True))
        self.key = fleet.directory / "id_ed25519"
        self._opened: list[Ssh | OpenSsh] = []

    def config(self, lines: str = "", **values: str) -> Path:
        """An ssh configuration: ``lines``, then the hosts' addresses, then the settings that all share."""
        shared = {
            "User": "root",
            "IdentityFile": str(self.key),
            "IdentityAgent": "none",
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.fleet.known_hosts),
            "GlobalKnownHostsFile": "/dev/null",
            **values,
        }
        addresses = "".join(f"Host {name}\n HostName {self.fleet.addresses[name]}\n" for name in self.fleet.hosts)
        path = self.folder / "ssh_config"
        path.write_text(f"{lines}\n{addresses}Host *\n" + "".join(f" {key} {value}\n" for key, value in shared.items()))
        return path

    def ssh(self, lines: str = "", config: dict[str, str] | None = None, **options: object) -> Ssh:
        parameters = {"config": str(self.config(lines, **(config or {}))), "connect_timeout": 10.0, **options}
        self._opened.append(Ssh(SshOptions(**parameters)))  # type: ignore[arg-type]
        return self._opened[-1]  # type: ignore[return-value]

    def openssh(self, lines: str = "", config: dict[str, str] | None = None, **options: object) -> OpenSsh:
        parameters = {"config": str(self.config(lines, **(config or {}))), "connect_timeout": 10.0, **options}
        self._opened.append(OpenSsh(SshOptions(**parameters)))  # type: ignore[arg-type]
        return self._opened[-1]  # type: ignore[return-value]

    def known_key(self, host: str) -> str:
        """The type and base64 that the fleet's known_hosts has for a host."""
        lines = self.fleet.known_hosts.read_text().splitlines()
        return next(line.split(None, 1)[1] for line in lines if line.startswith(f"{host},"))

    def has_ended(self, host: str, pid: str) -> bool:
        """Waits until a process on a host has ended."""
        script = f"for i in $(seq 100); do kill -0 {int(pid)} 2>/dev/null || exit 0; sleep .05; done; exit 1"
        return self.fleet.enter(host, script, check=False).returncode == 0

    def sessions(self, host: str) -> int:
        """How many connections a host's sshd serves, once those that are ending have ended."""
        script = "for i in $(seq 100); do n=$(pgrep -c sshd); [ $n = 1 ] && break; sleep .05; done; echo $n"
        return int(self.fleet.enter(host, script).stdout) - 1

    def close(self) -> None:
        for transport in self._opened:
            transport.close()


@pytest.fixture
def ground(faulty_fleet: Fleet, tmp_path: Path) -> Iterator[Ground]:
    home = f"/proc/{os.getpid()}/ns/net"
    with open(home) as stream:
        enter_network(f"/run/netns/{faulty_fleet.hub}")
        observed_ground = Ground(faulty_fleet, tmp_path)
        try:
            yield observed_ground
        finally:
            observed_ground.close()
            enter_network(f"/proc/self/fd/{stream.fileno()}")
