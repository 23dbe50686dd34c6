"""The options that name hosts. Apart from `doctor.environment.inventory`, which a command loads only to follow them."""

from __future__ import annotations

import msgspec

from doctor.hosts.pods import PodSelection


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
