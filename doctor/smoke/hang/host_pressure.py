"""What kept ranks from running, in sentences, and which of them were starved. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.smoke.model import MIN_PERIODS, QuotaUse, SmokePlan
from doctor.smoke.protocol import HostPressure
from doctor.smoke.speed.cpu_quotas import hidden_quota_losses

THROTTLED = 0.05
"""Share of the periods of a CPU quota from which on it is worth a sentence."""
STARVED = 0.5
"""Share of them from which on a rank is starved."""
WAITED = 0.2
"""Share of its running and waiting that a rank waited for a CPU."""
MIN_RAN = 0.5
"""Seconds of running and waiting below which that share proves nothing."""
WAITED_BESIDE_IDLE = 0.8
"""Share of its running and waiting, as of a quota of a fifth of a CPU."""
IDLE = 0.25
"""Share of a host's CPU time without work, while a rank waits for a CPU, from which on no other work is the reason."""
ALIKE = 0.5
"""Of the largest such share among the hosts, the least of one that waits for its CPUs like the others."""
STEAL = 0.05
STALLS = {"cpu": 40.0, "memory": 10.0, "io": 20.0}
"""Percent of the last 10 s."""


def starved_ranks(hosts: Mapping[str, HostPressure]) -> dict[int, str]:
    """The ranks that a CPU quota kept from running most of the time, with a sentence for each."""
    inferred = {
        rank: _inferred_sentence(rank, lost) for rank, lost in inferred_losses(hosts).items() if lost >= STARVED
    }
    return inferred | {
        rank: _quota_sentence(rank, throttled / periods, seconds)
        for pressure in hosts.values()
        for rank, (periods, throttled, seconds, _, _) in pressure.ranks.items()
        if periods >= MIN_PERIODS and throttled >= STARVED * periods
    }


def of_own_ranks(hosts: Mapping[str, HostPressure], plan: SmokePlan) -> dict[str, HostPressure]:
    """What the hosts tell, without ranks that the plan has on another one: no host speaks for another host's ranks."""
    ranks_by_host = plan.ranks_by_host
    of_hosts = {}
    for host, pressure in hosts.items():
        ranks, spins = (
            {rank: rows[rank] for rank in ranks_by_host.get(host, ()) if rank in rows}
            for rows in (pressure.ranks, pressure.spins)
        )
        of_hosts[host] = msgspec.structs.replace(pressure, ranks=ranks, spins=spins)
    return of_hosts


def quota_use(hosts: Mapping[str, HostPressure]) -> dict[int, QuotaUse]:
    """By rank: what its quota took, or what kept it waiting beside idle CPUs."""
    uses, inferred = {}, inferred_losses(hosts)
    for pressure in hosts.values():
        for rank, fields in pressure.ranks.items():
            lost = inferred.get(rank, _lost(fields))
            beside_idle = _waits_beside_idle(pressure, rank)
            uses[rank] = QuotaUse(*fields[:3], lost, _waited(fields), rank in inferred, beside_idle)
    return uses


def inferred_losses(hosts: Mapping[str, HostPressure]) -> dict[int, float]:
    """Of ranks that a quota holds back which their hosts do not show: the share of their time."""
    figures = {rank: fields for pressure in hosts.values() for rank, fields in pressure.ranks.items()}
    spins = {rank: spins for pressure in hosts.values() for rank, spins in pressure.spins.items()}
    waited = {rank: _waited(fields) for rank, fields in figures.items()}
    losses = hidden_quota_losses({rank: spins.get(rank, ()) for rank in figures}, waited)
    return {rank: lost for rank, lost in losses.items() if figures[rank][0] < MIN_PERIODS}


def _lost(fields: tuple[int, int, float, float, float]) -> float:
    """The seconds that a quota took, of these and those that the rank ran; 0.0 where it was used up in few periods."""
    _, used_up, seconds, ran, _ = fields
    return round(seconds / (seconds + ran), 4) if used_up >= MIN_PERIODS and seconds > 0 else 0.0


def _waited(fields: tuple[int, int, float, float, float]) -> float:
    """Share of its time that a rank waited for a CPU; 0.0 where it had too little of it to tell."""
    _, _, _, ran, waited = fields
    return round(waited / (ran + waited), 4) if ran + waited > MIN_RAN else 0.0


def _waits_beside_idle(pressure: HostPressure, rank: int) -> bool:
    """Whether a rank waited for a CPU most of its time although CPUs of its host had nothing to do then."""
    return _waited(pressure.ranks[rank]) >= WAITED_BESIDE_IDLE and pressure.idle.get(rank, 0.0) >= IDLE


def sentences_by_host(hosts: Mapping[str, HostPressure], host_count: int = 0) -> dict[str, tuple[str, ...]]:
    """What is worth saying of each host. That all are short of CPUs alike is one sentence: it is evidence against none.

    ``host_count``: the hosts of the run, with those that did not answer.

    >>> busy = HostPressure(stalls={"cpu": 88.0})
    >>> sentences_by_host({"w1": busy, "w2": busy})["w1"]
    ('All 2 hosts are short of CPUs alike: tasks waited for one for 88% of the time or more.',)
    """
    inferred = inferred_losses(hosts)
    shares = [_cpu_shortage(pressure) for pressure in hosts.values()]
    if len(shares) < 2 or min(shares) < ALIKE * max(shares) or not max(shares):
        return {host: pressure_sentences(host, pressure, inferred) for host, pressure in hosts.items()}
    every = filled("All {0} hosts", len(shares))
    if len(shares) < host_count:
        every = filled("The {0} of {1} hosts that answered", len(shares), host_count)
    text = "{0} are short of CPUs alike: tasks waited for one for {1} of the time or more."
    alike = filled(text, every, f"{min(shares):.0%}")
    return {
        host: (alike, *pressure_sentences(host, pressure, inferred, alike=True)) for host, pressure in hosts.items()
    }


def _cpu_shortage(pressure: HostPressure) -> float:
    """Share of the time in which a rank, or else any task, waited for a CPU; 0.0 where that is little, or beside idle
    ones.
    """
    if any(_waits_beside_idle(pressure, rank) for rank in pressure.ranks):
        return 0.0
    waited = max((_waited(fields) for fields in pressure.ranks.values()), default=0.0)
    stalled = pressure.stalls.get("cpu", 0.0)
    return waited if waited > WAITED else stalled / 100 if stalled >= STALLS["cpu"] else 0.0


def pressure_sentences(
    host: str, pressure: HostPressure, inferred: Mapping[int, float] = MappingProxyType({}), *, alike: bool = False
) -> tuple[str, ...]:
    """What is worth saying of one host. ``inferred``: what `inferred_losses` gives for all hosts.

    ``alike``: all hosts wait for their CPUs, which is said elsewhere.
    """
    texts = [_inferred_sentence(rank, lost) for rank, lost in inferred.items() if rank in pressure.ranks]
    for rank, fields in sorted(pressure.ranks.items()):
        periods, throttled, seconds = fields[:3]
        if periods >= MIN_PERIODS and throttled >= THROTTLED * periods:
            texts.append(_quota_sentence(rank, throttled / periods, seconds))
        elif (share := _waited(fields)) > WAITED and not alike:
            texts.append(filled("Rank {0} waited for a CPU for {1} of its time.", rank, f"{share:.0%}"))
    texts += idle_cpu_sentences(host, pressure)
    texts += full_tables({host: pressure}).values()
    if pressure.steal >= STEAL:
        texts.append(filled("{0}: the hypervisor took {1} of its CPU time (steal).", host, f"{pressure.steal:.0%}"))
    for name, least in STALLS.items():
        is_said = name == "cpu" and (alike or any(_waited(fields) > WAITED for fields in pressure.ranks.values()))
        if (share := pressure.stalls.get(name, 0.0)) >= least and not is_said:
            texts.append(
                filled("{0}: tasks waited for {1} in {2}% of the last 10 s (PSI).", host, name, f"{share:.0f}")
            )
    return tuple(texts)


def idle_cpu_sentences(host: str, pressure: HostPressure) -> list[str]:
    """Why ranks waited for a CPU although the host had some; empty where none did."""
    waited = [rank for rank in pressure.ranks if _waits_beside_idle(pressure, rank)]
    idle = f"{min((pressure.idle[rank] for rank in waited), default=0.0):.0%}"
    text = (
        "{0}: {1} waited for a CPU most of the time, although CPUs had nothing to do for {2} of it: they may use few "
        "CPUs, or a CPU quota that the host does not show holds them back"
    )
    text = filled(text, host, rank_names(waited), idle)
    return [text] * bool(waited)


def full_tables(hosts: Mapping[str, HostPressure]) -> dict[str, str]:
    """Hosts whose table of neighbours had no room for one in this run, with a sentence for each."""
    text = (
        "{0}: the kernel's table of neighbours (ARP), of {1} entries for all containers of the machine, had no room "
        "for another one {2} times in this run: net.ipv4.neigh.default.gc_thresh3 is too small."
    )
    tables = {host: pressure.neighbours for host, pressure in hosts.items()}
    return {host: filled(text, host, *table) for host, table in tables.items() if table[1]}


def _inferred_sentence(rank: int, lost: float) -> str:
    text = (
        "Rank {0} was stopped for {1} of a loop without a call, each time to the end of the same 100 ms: a CPU quota "
        "that its host does not show holds it back."
    )
    return filled(text, rank, f"{lost:.0%}")


def _quota_sentence(rank: int, share: float, seconds: float) -> str:
    text = "Rank {0} was held back by the CPU quota of its control group for {1} s, in {2} of its periods."
    return filled(text, rank, f"{seconds:.1f}", f"{share:.0%}")
