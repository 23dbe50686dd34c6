"""How the hosts of an inventory are reached: the transport, and what the list of hosts adds to the options of SSH."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from doctor.environment.inventory import Inventory
from doctor.transport import Transport
from doctor.transport.open import open_transport
from doctor.transport.options import SshOptions

_SLURM_SOURCES = ("SLURM_", "Slurm job")


@contextmanager
def connected(inventory: Inventory, transport: str, ssh: SshOptions) -> Iterator[Transport]:
    """The transport to all hosts of the inventory, until the end of the ``with``."""
    opened = open_transport(inventory.local, transport, ssh_to(inventory, ssh, transport), inventory.hosts)
    try:
        yield opened
    finally:
        opened.close()


def ssh_to(inventory: Inventory, ssh: SshOptions, transport: str) -> SshOptions:
    """With the logins that the list names, and Slurm's addresses of nodes whose names are no host names."""
    if inventory.pods:
        return msgspec.structs.replace(ssh, pods=inventory.pods)
    if inventory.local or transport not in ("ssh", "openssh", "tree"):
        return ssh
    addresses = ssh.addresses
    if transport != "tree" and any(source in inventory.source for source in _SLURM_SOURCES):
        from doctor.transport.launcher.slurm_steps import node_addresses

        addresses = node_addresses(inventory.hosts)
    return msgspec.structs.replace(ssh, addresses=addresses, logins=inventory.logins)
