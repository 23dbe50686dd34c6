"""Test hosts that have IPv6 addresses, alone or beside those of IPv4."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = "fd77::"


class Ipv6Hosts:
    """The hosts of a fleet with IPv6 addresses, by which the controller reaches them; whatever else is the fleet's.

    ``alone``: they have no IPv4 address but loopback's. Otherwise their names lead to both addresses, IPv6 first.
    """

    def __init__(self, fleet: Any, directory: Path, *, alone: bool = True) -> None:
        self.fleet, self.alone = fleet, alone
        self.addresses = {host: f"{FOLDER}{number}" for number, host in enumerate(fleet.hosts, 2)}
        self.ssh_config = directory / "ssh_config"
        (key,) = {line.split(maxsplit=1)[1] for line in fleet.known_hosts.read_text().splitlines() if line}
        pairs = [name for pair in self.addresses.items() for name in pair]
        path = directory / "known_hosts"
        path.write_text("".join(f"{name} {key}\n" for name in pairs))
        hosts = "".join(f"Host {name}\n HostName {address}\n" for name, address in self.addresses.items())
        prefix = fleet.hosts[0].rstrip("0123456789")
        shared = fleet.ssh_config.read_text().replace(f"{fleet.known_hosts}", f"{path}")
        self.ssh_config.write_text(hosts + shared.replace(f"Host {prefix}*", f"Host {prefix}* {FOLDER}*"))
        self._configure(*fleet.hosts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fleet, name)

    def _configure(self, *hosts: str) -> None:
        setup = "sysctl -qw net.ipv6.conf.{0}.disable_ipv6=0 net.ipv6.conf.all.disable_ipv6=0 && "
        setup += "ip -6 addr replace {1}/64 dev {0} nodad"
        self.fleet.run(["sh", "-c", setup.format("br0", f"{FOLDER}1")], check=True)
        of_ipv4 = "" if self.alone else "".join(f"{self.fleet.addresses[host]} {host}\n" for host in self.fleet.hosts)
        names = "".join(f"{address} {host}\n" for host, address in self.addresses.items()) + of_ipv4
        flush = " && ip -4 addr flush dev eth0" if self.alone else ""
        for host in hosts:
            self.fleet.enter(host, setup.format("eth0", self.addresses[host]) + flush)
            self.fleet.enter(
                host, ["sh", "-c", "cat >/etc/hosts"], input=f"127.0.0.1 localhost\n::1 localhost\n{names}"
            )

    @contextlib.contextmanager
    def broken(self, host: str, nft: str) -> Iterator[None]:
        """A host with these rules, for the time of a ``with``; then it is made anew."""
        try:
            self.fleet.enter(host, ["nft", "-f", "-"], input=nft)
            yield
        finally:
            self.renew(host)

    def renew(self, *hosts: str) -> None:
        """New hosts in place of these, with the same addresses."""
        self.fleet.renew(*hosts)
        self._configure(*hosts)
