"""The plan for ranks that a launcher has placed: who is where, by what each said of itself. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from doctor.environment.launchers import Adopted
from doctor.smoke import plan as planning
from doctor.smoke.model import STAGES, Backend, Place, Plan
from doctor.smoke.plan import Wish
from doctor.smoke.rendezvous.link import Card, Mail
from doctor.smoke.rendezvous.roll_call import UNKNOWN, host_name, size

_KINDS: dict[Backend, str] = {"hccl": "npu", "nccl": "gpu"}


def plan_for(leader: Adopted, cards: Sequence[Card], mails: Sequence[Mail], wish: Wish) -> Plan:
    """The plan of the ranks that came; of the others it says what is known. Raises: ValueError."""
    known = [*cards, *(mail.card for mail in mails)]
    world = max(size(leader, cards), 1 + max((card.rank for card in known), default=0))
    backend = wish.backend or _backend(known)
    layouts = tuple(planning.parse_layout(text, world) for text in wish.layouts) or planning.layouts(world)
    by_name = leader.address_from == "MASTER_ADDR" and leader.addresses
    free = leader.taken or leader.role == "scheduler"
    return Plan(
        backend=backend,
        places=_places(world, known, backend),
        layouts=layouts,
        stages=tuple(stage for stage in STAGES if wish.native or stage != "native"),
        steps=wish.steps,
        seed=wish.seed,
        max_bytes=wish.max_bytes,
        master_addr=leader.addresses[0] if by_name else "",
        master_port=0 if free else leader.port,
        timeout=wish.timeout,
        budget=wish.budget,
        interface=wish.interface,
    )


def _backend(cards: Sequence[Card]) -> Backend:
    """NPUs or GPUs where every rank has some, else CPUs."""
    for backend, kind in _KINDS.items():
        if cards and all(card.counts.get(kind) for card in cards):
            return backend
    return "gloo"


def _places(world: int, cards: Iterable[Card], backend: Backend) -> tuple[Place, ...]:
    seen: dict[int, Card] = {}
    for card in cards:
        seen.setdefault(card.rank, card)
    names = hosts(seen.values())
    blocks = _blocks(seen, names)
    taken: Counter[str] = Counter()
    places = []
    for rank in range(world):
        host = names[rank] if rank in seen else blocks.get(rank, UNKNOWN)
        device = -1
        if backend != "gloo" and rank in seen:
            alone = seen[rank].counts.get(_KINDS[backend]) == 1
            device = 0 if alone else max(seen[rank].device, seen[rank].local, 0)
        places.append(Place(rank, host, taken[host], device))
        taken[host] += 1
    return tuple(places)


def hosts(cards: Iterable[Card]) -> dict[int, str]:
    """The host of each rank by name; hosts that share a name are told apart."""
    boots: dict[str, list[str]] = defaultdict(list)
    found = {}
    for card in cards:
        known = boots[card.host]
        if card.boot not in known:
            known.append(card.boot)
        number = known.index(card.boot)
        found[card.rank] = host_name(card) + (f"~{number + 1}" if number else "")
    return found


def _blocks(seen: Mapping[int, Card], names: Mapping[int, str]) -> dict[int, str]:
    """The hosts of ranks of which nothing was heard, where ranks fill one host after the other."""
    sizes = {card.local_world for card in seen.values()}
    if len(sizes) != 1 or min(sizes) < 1:
        return {}
    per_host = min(sizes)
    owners: dict[int, set[str]] = defaultdict(set)
    for rank in seen:
        owners[rank // per_host].add(names[rank])
    if any(len(owner) > 1 for owner in owners.values()):
        return {}
    return {
        rank: next(iter(owner))
        for block, owner in owners.items()
        for rank in range(block * per_host, (block + 1) * per_host)
    }
