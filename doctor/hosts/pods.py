"""Pods as hosts: which ones the command line names, and what the way to them needs to know."""

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
    """An environment variable that its commands get, ``NAME=VALUE`` of letters, digits and ``_`` alone."""
    unready: dict[str, str] = {}
    """Why there is nothing to reach in a pod, in words."""
    node_image: str = ""
    """See `PodSelection`."""
