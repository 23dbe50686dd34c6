"""The plan for ranks that a launcher has placed: rank to host and device, as each process reported. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from doctor.engine.grouping import sets_by_key
from doctor.environment.job_context import JobContext
from doctor.job.variables import MASTER_PORT
from doctor.smoke import plan as planning
from doctor.smoke.model import UNKNOWN_HOST, Backend, RankPlacement, SmokePlan
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.rendezvous.link import Hello, RelayedError
from doctor.smoke.rendezvous.roll_call import host_name, world_size


def build_launched_plan(
    leader: JobContext, hellos: Sequence[Hello], relayed_errors: Sequence[RelayedError], options: SmokeOptions
) -> SmokePlan:
    """The plan of the ranks that connected, and what is known of the others. Raises: ValueError."""
    all_hellos = [*hellos, *(relayed_error.hello for relayed_error in relayed_errors)]
    world = max(world_size(leader, hellos), 1 + max((hello.rank for hello in all_hellos), default=0))
    backend = options.backend or planning.common_backend([hello.counts for hello in all_hellos])
    placements = _placements(world, all_hellos, backend)
    rule = planning.group_rule(backend, (hello.npu_model for hello in all_hellos))
    by_name = leader.leader_address_source == "MASTER_ADDR" and leader.leader_addresses
    free = leader.leader_port_in_use or leader.is_scheduler_process
    free = free or (options.keep is not None and MASTER_PORT not in options.keep)
    # Each process of the launch has its own interpreter and variables.
    settings = {"python": "", "variables": {}, "master_port": 0 if free else leader.leader_port}
    settings["master_addr"] = leader.leader_addresses[0] if by_name else ""
    return planning.settled_plan(backend, placements, rule, options, **settings)


def _placements(world: int, hellos: Iterable[Hello], backend: Backend) -> tuple[RankPlacement, ...]:
    by_rank: dict[int, Hello] = {}
    for hello in hellos:
        by_rank.setdefault(hello.rank, hello)
    names = names_by_rank(by_rank.values())
    blocks = _hosts_by_block(by_rank, names)
    taken: Counter[str] = Counter()
    placements = []
    for rank in range(world):
        host = names[rank] if rank in by_rank else blocks.get(rank, UNKNOWN_HOST)
        device = -1
        if backend != "gloo" and rank in by_rank:
            alone = by_rank[rank].counts.get(planning.KINDS[backend]) == 1
            device = 0 if alone else max(by_rank[rank].device, by_rank[rank].local, 0)
        placements.append(RankPlacement(rank, host, taken[host], device, device))
        taken[host] += 1
    return tuple(placements)


def names_by_rank(hellos: Iterable[Hello]) -> dict[int, str]:
    """The host of each rank by name; hosts that share a name get distinct ones."""
    boots: dict[str, list[str]] = defaultdict(list)
    names = {}
    for hello in hellos:
        host_boots = boots[hello.host]
        if hello.boot not in host_boots:
            host_boots.append(hello.boot)
        number = host_boots.index(hello.boot)
        names[hello.rank] = host_name(hello) + (f"~{number + 1}" if number else "")
    return names


def _hosts_by_block(by_rank: Mapping[int, Hello], names: Mapping[int, str]) -> dict[int, str]:
    """The hosts of ranks that never reported, where ranks fill one host after the other."""
    sizes = {hello.local_world for hello in by_rank.values()}
    if len(sizes) != 1 or min(sizes) < 1:
        return {}
    per_host = min(sizes)
    owners = sets_by_key((rank // per_host, names[rank]) for rank in by_rank)
    if any(len(owner) > 1 for owner in owners.values()):
        return {}
    return {
        rank: next(iter(owner))
        for block, owner in owners.items()
        for rank in range(block * per_host, (block + 1) * per_host)
    }
