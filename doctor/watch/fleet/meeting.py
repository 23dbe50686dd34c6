"""Where the hosts of a watched job meet, from the environment of one of its ranks."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from doctor.engine.addresses import means_own_host
from doctor.environment.job_context import JobContext, detect
from doctor.smoke.rendezvous.launched import with_leader_address
from doctor.smoke.rendezvous.link import job_token, launch_secret
from doctor.transport.peer_handshake import is_own_address

MOST_ENVIRON_BYTES = 1 << 20


class Meeting(NamedTuple):
    """One training's meeting of hosts."""

    context: JobContext
    """Of one rank of this host."""
    key: bytes
    """The same on all hosts, and another one for every start of the ranks."""


def rank_environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read(MOST_ENVIRON_BYTES)
    except OSError:
        return {}
    pairs = (item.partition("=") for item in os.fsdecode(data).split("\0"))
    return {name: value for name, equals, value in pairs if name and equals}


def find_meeting(
    environ: Mapping[str, str], rank: int, world: int, address: str, generation: int, user: int
) -> Meeting | None:
    """Where the hosts meet; None where the ranks' meeting place is this host's loopback, or is not known.

    ``environ``: of the rank; ``address``: ``HOST:PORT`` at which the program itself lets its ranks meet, or empty;
    ``generation``: how many trainings of this start the host has seen before.

    >>> place = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    >>> find_meeting(place, 3, 4, "", 0, 0).context.leader_addresses
    ('10.0.0.1',)
    """
    context = _context(environ, rank, world, address)
    environ = _without_restarts(environ)
    if not context.leader_addresses or any(map(means_own_host, context.leader_addresses)):
        return None
    token = job_token(context, user, launch_secret(environ))
    return Meeting(context, hashlib.sha256(b"doctor watch\0%d\0%s" % (generation, token)).digest())


def meets_on_loopback(environ: Mapping[str, str], rank: int, world: int, address: str) -> bool:
    """Whether all ranks must be on this host: not where nothing says where they meet. Arguments as of `find_meeting`.

    >>> meets_on_loopback({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}, 0, 2, "")
    True
    """
    context = _context(environ, rank, world, address)
    if context.leader_address_source == "MASTER_ADDR" and not address and not environ.get("MASTER_ADDR"):
        return False
    return any(map(means_own_host, context.leader_addresses))


def _without_restarts(environ: Mapping[str, str]) -> dict[str, str]:
    """An agent of torchrun counts the restarts that it began itself: the hosts of one start may have other numbers."""
    return {name: value for name, value in environ.items() if name != "TORCHELASTIC_RESTART_COUNT"}


def _context(environ: Mapping[str, str], rank: int, world: int, address: str) -> JobContext:
    """What a rank's environment says of its job, and the address that its program gives itself."""
    name, _, port = address.rpartition(":")
    leader_variables = {"MASTER_ADDR": name.strip("[]"), "MASTER_PORT": port} if name and port.isdecimal() else {}
    environ = _without_restarts(environ)
    context = detect({**environ, **leader_variables}, as_rank=True)
    if context.rank != rank or context.world_size != world:
        # The program numbers its ranks by itself.
        numbers = {"RANK": str(rank), "WORLD_SIZE": str(world), **leader_variables}
        kept = {name: value for name, value in environ.items() if name.startswith(("MASTER_", "LOCAL_"))}
        context = detect({**kept, **numbers}, as_rank=True)
    return with_leader_address(context, environ)


def leads(context: JobContext, ranks: Iterable[int]) -> bool:
    """Whether the hosts meet at this one: it has rank 0, or the address at which the others look for it."""
    return 0 in ranks or any(map(_is_own_name, context.leader_addresses))


def _is_own_name(name: str) -> bool:
    try:
        places = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    return any(is_own_address(str(place[4][0])) for place in places)


def starts_elsewhere(context: JobContext, world: int) -> bool | None:
    """Whether the launch has ranks on other hosts; None where its variables do not say it."""
    return None if context.local_world_size is None else context.local_world_size < world


def block_of(context: JobContext, world: int, ranks: Collection[int] = ()) -> range:
    """The ranks of this host, where ranks fill one host after the other; empty where that is not known.

    ``ranks``: those that were seen on it. Hosts may have different numbers of ranks where each rank knows its number on
    its host.
    """
    size, node, rank = context.local_world_size, context.node_rank, context.rank
    if not size:
        return range(0)
    starts = [rank - context.local_rank] if rank is not None and context.local_rank is not None else []
    if world % size == 0 and (node is not None or rank is not None):
        starts.append((rank or 0) // size * size if node is None else node * size)
    blocks = (range(start, start + size) for start in starts if 0 <= start <= world - size)
    return next((block for block in blocks if all(rank in block for rank in ranks)), range(0))


def block_around(ranks: Collection[int], size: int, world: int, elsewhere: Collection[int]) -> range:
    """The ranks of another host that has ``size`` of them, these included, in one row; empty where it may be several.

    Where each host may have as many, these rows follow one another.

    >>> block_around({2}, 2, 4, ()), block_around({1}, 2, 3, {0}), block_around({1}, 2, 5, {3})
    (range(2, 4), range(1, 3), range(0, 0))
    """
    if not ranks or not 0 < size <= world:
        return range(0)
    if world % size == 0 and len({rank // size for rank in ranks}) == 1:
        first = min(ranks) // size * size
        return range(first, first + size)
    starts = range(max(0, max(ranks) - size + 1), min(*ranks, world - size) + 1)
    blocks = [range(start, start + size) for start in starts]
    possible = [block for block in blocks if not any(rank in block for rank in elsewhere)]
    return possible[0] if len(possible) == 1 else range(0)
