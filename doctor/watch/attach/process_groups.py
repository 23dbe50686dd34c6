"""Processes without a rank that work together, over all hosts: by each one's group, and both ends of links. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled, joined
from doctor.watch.attach.inspector.connected import joined_groups
from doctor.watch.attach.rank_report import HostReport, ProcessReport

Place = tuple[str, int]
"""Host and pid."""


def group_names(reports: Mapping[str, HostReport]) -> dict[Place, str]:
    """What a job of processes that name no rank is called, for each of them."""
    bare = {
        (host, rank.pid): rank
        for host, report in reports.items()
        for rank in report.ranks
        if rank.rank is None and (rank.group or rank.links or rank.requests)
    }
    leaders: dict[Place, Place] = {}
    edges = [
        (leaders.setdefault((host, rank.group), (host, pid)), (host, pid))
        for (host, pid), rank in bare.items()
        if rank.group
    ]
    ends = {link: place for place, rank in bare.items() for link in rank.links}
    for link, place in ends.items():
        near, _, far = link.partition(">")
        if (other := ends.get(f"{far}>{near}")) is not None:
            edges.append((place, other))
    members: dict[Place, list[Place]] = joined_groups(bare, edges)  # type: ignore[no-untyped-call]
    return {place: _name(places, bare[places[0]]) for places in members.values() for place in places}


def _name(places: list[Place], rank: ProcessReport) -> str:
    ordered = sorted(places)
    listed = [filled("pid {0} on {1}", pid, host) for host, pid in ordered[:3]] + ["..."] * (len(ordered) > 3)
    count = count_noun(len(ordered), "connected process", "connected processes")
    return filled("{0} of {1} ({2})", count, rank.user, joined(", ", listed))


def first_rank(ranks: Mapping[Place, ProcessReport]) -> Place | None:
    """Rank 0 of processes that work together: the one that serves the store of torch which all the others have.

    torch starts the server of `tcp://` and `env://` in rank 0 (`_create_c10d_store`, torch/distributed/rendezvous.py),
    unless a launcher's agent serves it, which names the ranks. A driver that only serves a store has no other
    connection with them. The store is not asked which ranks it has: a question is work for the living job's server.
    """
    ends = {link: place for place, rank in ranks.items() for link in rank.links}
    holders = set()
    for (host, pid), rank in ranks.items():
        for port, clients, peers in rank.stores:
            members, beside = {(host, client) for client in clients}, {(host, peer) for peer in peers}
            for link in rank.links:
                near, _, far = link.partition(">")
                (members if near.endswith(f":{port}") else beside).add(ends.get(f"{far}>{near}", ("", 0)))
            if members >= set(ranks) and not beside.isdisjoint(ranks) and len(ranks) > 1:
                holders.add((host, pid))
    return holders.pop() if len(holders) == 1 else None
