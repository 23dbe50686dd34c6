"""Who of a launched job has come, who has not, and why: the leader's roll call. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from doctor.engine.sanitize import plain
from doctor.environment.launchers import Adopted
from doctor.smoke.model import Trouble
from doctor.smoke.rendezvous.link import Card, Mail

SETTLED = 1.0
"""Seconds without a newcomer after which what is wrong already is told."""
TOLD = 3.0
"""Seconds for which a process that cannot come may still change its mind."""
UNKNOWN = "unknown"
"""Stands for the host of a rank of which nothing was heard."""


def call(
    leader: Adopted, cards: Sequence[Card], mails: Sequence[Mail], quiet: float, waited: float, patience: float
) -> Trouble | Literal["wait", "complete"]:
    """How things stand ``quiet`` seconds after the last news, ``waited`` since the first."""
    world = size(leader, cards)
    there = Counter(card.rank for card in cards)
    wrong = _wrong(leader, cards, world)
    missing = [rank for rank in range(world) if not there[rank]]
    if not wrong and not missing:
        return "complete"
    if wrong and (quiet > SETTLED or waited > patience):
        return wrong
    told = {mail.card.rank for mail in mails}
    excused = missing and all(rank in told or -1 in told for rank in missing)
    if not (waited > patience or (excused and quiet > TOLD)):
        return "wait"
    return wrong or _missing(leader, missing, mails, patience)


def size(leader: Adopted, cards: Iterable[Card]) -> int:
    """Of the world, by what most ranks were told."""
    votes = Counter(card.world for card in cards if card.world > 0)
    return max(votes, key=lambda number: (votes[number], number)) if votes else max(leader.world, 1)


def _wrong(leader: Adopted, cards: Sequence[Card], world: int) -> Trouble | None:
    """What no waiting mends."""
    for find in (_impossible, _other_version, _other_world, _twice):
        guilty, text = find(cards, world)
        if text:
            return _trouble(guilty, text, "certain")
    return None


def _impossible(cards: Sequence[Card], world: int) -> tuple[list[int], str]:
    """Ranks, or processes that cannot even say which rank they are, with variables that cannot be so."""
    wrong = [card for card in cards if card.problems]
    there = {card.rank for card in cards}
    guilty = [card.rank for card in wrong if card.rank >= 0]
    if len(guilty) < len(wrong):
        guilty += [rank for rank in range(world) if rank not in there]
    texts = [
        f"{rank_names([card.rank]) if card.rank >= 0 else 'a process'} on {host_name(card)}: "
        f"{'; '.join(plain(problem, 200) for problem in card.problems[:4])}"
        for card in wrong
    ]
    return guilty, "; ".join(texts[:4])


def _other_version(cards: Sequence[Card], world: int) -> tuple[list[int], str]:
    versions = Counter(card.version for card in cards)
    if len(versions) < 2:
        return [], ""
    most = max(versions, key=lambda version: versions[version])
    odd = [card for card in cards if card.version != most]
    return [card.rank for card in odd], f"another doctor is installed there than on the other ranks: {_hosts(odd)}"


def _other_world(cards: Sequence[Card], world: int) -> tuple[list[int], str]:
    told: dict[int, list[int]] = defaultdict(list)
    for card in cards:
        told[card.world].append(card.rank)
    if len(told) < 2:
        return [], ""
    tie = len({len(ranks) for ranks in told.values()}) == 1
    guilty = [rank for number, ranks in told.items() for rank in ranks if tie or number != world]
    shown = [
        f"{number} on {rank_names(ranks)}" for number, ranks in sorted(told.items(), key=lambda item: len(item[1]))
    ]
    return guilty, f"the world's size is {', and '.join(shown)}"


def _twice(cards: Sequence[Card], world: int) -> tuple[list[int], str]:
    said: dict[int, list[Card]] = defaultdict(list)
    for card in cards:
        said[card.rank].append(card)
    double = {rank: twins for rank, twins in said.items() if len(twins) > 1}
    texts = [
        f"rank {rank} is there {len(twins)} times: "
        + " and ".join(
            f"process {card.pid} on {host_name(card)}" for card in sorted(twins, key=lambda card: card.pid)[:3]
        )
        for rank, twins in sorted(double.items())
    ]
    absent = [rank for rank in range(world) if rank not in said]
    if texts and absent:
        texts.append(f"nobody is {rank_names(absent)}")
    return sorted(double), "; ".join(texts)


def _missing(leader: Adopted, missing: list[int], mails: Sequence[Mail], patience: float) -> Trouble:
    why: dict[str, list[int]] = defaultdict(list)
    for rank, text in sorted({mail.card.rank: plain(mail.text, 300) for mail in mails}.items()):
        if rank in missing or rank < 0:
            why[text].append(rank)
    told = {rank for ranks in why.values() for rank in ranks}
    silent = [rank for rank in missing if rank not in told and -1 not in told]
    if silent:
        why[_silence(leader, patience)] = silent
    texts = [text if len(why) == 1 else f"{_names(ranks)}: {text}" for text, ranks in why.items()]
    return _trouble(missing, "; ".join(texts[:8]), "timeout" if silent else "evidence", patience if silent else 0.0)


def _silence(leader: Adopted, patience: float) -> str:
    reasons = f"not started, led elsewhere by {leader.address_from}, or kept away by a firewall"
    return f"nothing came within {patience:g} s: {reasons}; the stderr of that process says more, if there is one"


def _names(ranks: Sequence[int]) -> str:
    return "a process without a rank" if ranks[0] < 0 else rank_names(ranks)


def _trouble(
    guilty: Iterable[int], text: str, certainty: Literal["certain", "evidence", "timeout"], limit: float = 0.0
) -> Trouble:
    ranks = tuple(sorted({rank for rank in guilty if rank >= 0}))
    return Trouble("never-joined", ranks, certainty=certainty, stage="rendezvous", text=text, limit=limit)


def host_name(card: Card) -> str:
    return plain(card.host, 80) or UNKNOWN


def _hosts(cards: Iterable[Card]) -> str:
    return ", ".join(sorted({host_name(card) for card in cards}))


def rank_names(ranks: Sequence[int]) -> str:
    """
    >>> rank_names([3]), rank_names([0, 1, 2, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in spans)
    return f"rank{'s' * (len(set(ranks)) > 1)} {shown}"
