"""Chooses the transport. A transport is imported when it is chosen: that of SSH takes long to load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doctor.transport.local import Local

if TYPE_CHECKING:
    from collections.abc import Sequence

    from doctor.transport import Transport
    from doctor.transport.launcher.launcher import Launcher
    from doctor.transport.options import SshOptions


def open_transport(local: bool, name: str, options: SshOptions, hosts: Sequence[str] = ()) -> Transport:
    """The local transport, or the one of this name; ``hosts``: all that will be visited.

    Over SSH, this very host is read without it, under any name in the list.
    """
    if local:
        return Local()
    if name == "openssh":
        from doctor.transport.openssh.openssh_transport import OpenSsh
        from doctor.transport.with_this_host import WithThisHost

        return WithThisHost(OpenSsh(options), hosts, options.max_output)
    if name == "kubernetes" and options.pods:
        from doctor.transport.kubernetes.kubernetes_transport import Kubernetes

        return Kubernetes(options.pods, tuple(hosts), options.connect_timeout, options.max_output)
    if name in ("slurm", "mpi", "tree"):
        from doctor.transport.launcher.launcher_transport import LauncherTransport

        patience = None if name == "tree" else options.connect_timeout
        return LauncherTransport(_launcher(name, options, hosts), hosts, patience, options.max_output)
    from doctor.transport.ssh.ssh_transport import Ssh
    from doctor.transport.with_this_host import KeepsOthers

    return KeepsOthers(Ssh(options), hosts, options.max_output)


def _launcher(name: str, options: SshOptions, hosts: Sequence[str]) -> Launcher:
    if name == "tree":
        from doctor.transport.launcher.gateway_tree import GatewayTree

        return GatewayTree(options, hosts)
    if name == "mpi":
        from doctor.transport.launcher.mpi import Mpi

        return Mpi()
    from doctor.transport.launcher.slurm_steps import Slurm

    return Slurm()
