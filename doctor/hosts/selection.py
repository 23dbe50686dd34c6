"""What the command line names as hosts, and of pods what the way to them needs to know."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class JobOfPods(NamedTuple):
    """A job of Kubernetes."""

    namespace: str
    job: str
    """``NAME`` or ``KIND/NAME``."""


class PodSelection(msgspec.Struct, frozen=True, kw_only=True):
    """The command line's part; empty where an option was not given."""

    selector: str = ""
    """Labels, as for ``kubectl get pods -l``."""
    job: str = ""
    """``NAME``, or ``KIND/NAME`` where two kinds of jobs have this name."""
    namespace: str = ""
    container: str = ""
    kubeconfig: str = ""
    context: str = ""
    node_image: str = ""
    """The hosts are nodes: each gets a privileged pod of this image for as long as the run takes."""
    connect_timeout: float = 0.0
    """Seconds for which an absent API server is tried again; 0: as long as without the option."""

    @property
    def names_pods(self) -> bool:
        """Whether an option says which pods are meant, so that no list of hosts does."""
        return bool(self.selector or self.job)


class PodAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How the hosts of one run are reached through the API server."""

    kubectl: tuple[str, ...] = ("kubectl",)
    """The program, with its options for the cluster."""
    namespace: str = "default"
    containers: dict[str, str] = {}
    """The container of each pod that is the host."""
    addresses: dict[str, str] = {}
    """Of each pod, by which the others reach it."""
    names: dict[str, str] = {}
    """By which the others look it up, where that is not its own: with the headless service that it is part of."""
    nodes: dict[str, str] = {}
    """The node of each pod, whose labels may say on which switch it is."""
    variables: dict[str, str] = {}
    """Environment variables that its commands get, ``NAME=VALUE`` of letters, digits, ``,`` and ``_`` alone."""
    unready: dict[str, str] = {}
    """Why there is nothing to reach in a pod, in words."""
    node_image: str = ""
    """See `PodSelection`."""


class HostSelection(msgspec.Struct, frozen=True):
    """The command line's part; None where an option was not given. An option given empty is an error."""

    hosts: str | None = None
    """``--hosts``; several are joined with commas."""
    hostfile: str | None = None
    rank_table: str | None = None
    exclude: str | None = None
    nodes: str | None = None
    """The argument HOSTS: the same as ``hosts``, and used in its place."""
    pods: PodSelection | None = None
    """The hosts are pods or nodes of Kubernetes; None: they are not."""

    @property
    def names_hosts(self) -> bool:
        """Whether an option names hosts, so that no other source counts."""
        return bool(self.nodes or self.hosts or self.hostfile or self.rank_table or self.pods)
