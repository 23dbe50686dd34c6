"""What the user may set for every host at once; all else comes from the user's own ssh configuration."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from doctor.hosts.nodeset import HostLogin
    from doctor.hosts.selection import PodAccess

CONNECT_TIMEOUT = 10.0
"""Seconds to connect when neither the options nor the ssh configuration say otherwise."""
MAX_OUTPUT = 8 << 20
"""Output limit of one command, in bytes: stdout and stderr together."""
_RESERVED_FILES = 64
"""Files that the program has open beside its connections, with room to spare."""
_MAX_WORKERS = 256


class SshOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach hosts over SSH."""

    config: str = ""
    """An ssh configuration file to use instead of the user's and the system's, like ``ssh -F``."""
    user: str = ""
    port: int = 0
    identity: tuple[str, ...] = ()
    """Private key files, tried before those of the ssh configuration."""
    settings: tuple[str, ...] = ()
    """``Keyword=value`` lines that go before the ssh configuration, like ``ssh -o``."""
    connect_timeout: float | None = None
    """Seconds from the first packet to the end of the login; for each hop when there are jump hosts."""
    accept_new: bool = False
    """Accept hosts without a known key, and remember the key. A changed key is never accepted."""
    password: str = ""
    """Of the user on the hosts; never sent to a jump host."""
    max_output: int = MAX_OUTPUT
    addresses: dict[str, str] = {}
    """Addresses of hosts whose names do not resolve, where the ssh configuration has none for them."""
    logins: dict[str, HostLogin] = {}
    """User and port of hosts whose list names them; they go before ``user`` and ``port``."""
    pods: PodAccess | None = None
    """The way to hosts that are pods of Kubernetes, which need no SSH."""
    gateways: str = ""
    """ClusterShell's topology.conf, for transport tree; empty: that which clush would read."""
    agent: bool = True
    """Ask the ssh-agent for keys."""

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "password")
        return f"SshOptions({', '.join(fields)}, password={'…' if self.password else ''!r})"


def workers(hosts: int, files_per_host: int = 4) -> int:
    """How many hosts may be reached at the same time with the files that this process may open.

    Hosts that wait cost nothing, so the width is generous: 256 unless ``RLIMIT_NOFILE`` allows fewer.
    """
    return max(1, min(hosts, _MAX_WORKERS, (_open_files() - _RESERVED_FILES) // files_per_host))


def kept_connections() -> int:
    """How many idle connections may be kept open between rounds: half of the files there are."""
    return max(8, (_open_files() - _RESERVED_FILES) // 2)


def _open_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft
