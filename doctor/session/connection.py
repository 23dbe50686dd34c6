"""How the hosts of an inventory are reached over SSH: the options, and what the list of hosts adds to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from doctor.environment.inventory import Inventory
    from doctor.transport.options import SshOptions

_SLURM_SOURCES = ("SLURM_", "Slurm job")


def ssh_to(inventory: Inventory, ssh: SshOptions, transport: str) -> SshOptions:
    """With the logins that the list names, and Slurm's addresses of nodes whose names are no host names."""
    if inventory.pods:
        return msgspec.structs.replace(ssh, pods=inventory.pods)
    if inventory.local or transport not in ("ssh", "openssh"):
        return ssh
    addresses = ssh.addresses
    if any(source in inventory.source for source in _SLURM_SOURCES):
        from doctor.transport.launcher.slurm_steps import node_addresses

        addresses = node_addresses(inventory.hosts)
    return msgspec.structs.replace(ssh, addresses=addresses, logins=inventory.logins)
