"""Ranks with too little of the CPUs: a quota holds them back, or several share one while others are free. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import median_high, median_low
from types import MappingProxyType

import msgspec

from doctor.facts.smoke.first_stages import CpuBinding
from doctor.smoke.model import CpuSpin, QuotaUse

HELD_BACK = 0.5
"""Share of the periods of its quota from which on a rank is held back: in most of its time it runs, and then waits."""
LOST = 0.3
"""Share of the time in which it could have run from which on a quota holds a rank back: a rank that mostly waits for
others uses up few periods, and loses them to all."""
MOST_OF_PEERS = 0.5
"""Of that share, what the median rank may have at most: where all are held back, no rank is slow."""
SIGNS = ("share", "lost", "waited")
PERIOD = 0.1
"""Seconds of a quota's period, unless it is set: that of the kernel, of systemd, container engines and kubelets."""
MIN_SPINS, MIN_ENDS = 2, 12
SAME_MOMENT, SAME_SHARE, CHANCE = 0.02, 0.8, 1e-4
"""Of the period, the seconds within which this share of its loops went on, half of the times or more: other programs
delay some. So many moments may lie there by chance in one set of 10,000: of 12 it takes 10, of 33 it takes 19."""
UNFAIR = 0.6
"""Of what the median rank ran, in its loops or, where its quota was used up too, in all, what a rank has at most that a
quota of its own holds back. Of equal quotas, that of a rank which waits for CPUs is used up less often."""


def hidden_quota_losses(
    spins_by_rank: Mapping[int, Sequence[CpuSpin]], waited: Mapping[int, float] = MappingProxyType({})
) -> dict[int, float]:
    """Ranks that a quota holds back which no host shows, by when their loops were stopped: share of their time.

    Other programs stop a rank at moments of no such order, and its peers as often. ``spins_by_rank``: of all ranks;
    none of one that hardly waited for a CPU. ``waited``: share of its time that each waited for one, which stands for
    loops where there are none: of a rank that ended early, or that is not known to have waited less than the others.

    >>> held = [CpuSpin(0.02, 0.6, tuple(start + 0.1 * turn for turn in range(6))) for start in (7.03, 9.43)]
    >>> hidden_quota_losses({0: held, 1: []})
    {0: 0.9667}
    >>> hidden_quota_losses({0: held, 1: held})
    {}
    >>> hidden_quota_losses({0: held, 1: []}, {1: 0.96})
    {}
    """
    ran = {rank: 1 - (_loss(spins) if spins else waited.get(rank, 0.0)) for rank, spins in spins_by_rank.items()}
    most = UNFAIR * median_high(ran.values()) if ran else 0.0
    held = [rank for rank, spins in spins_by_rank.items() if ran[rank] <= most and _stopped_by_a_period(spins)]
    return {rank: round(1 - ran[rank], 4) for rank in held}


def _loss(spins: Sequence[CpuSpin]) -> float:
    """Share of its loops in which a rank did not run."""
    ran, seconds = (sum(max(0.0, getattr(spin, name)) for spin in spins) for name in ("ran", "seconds"))
    return 1 - min(1.0, ran / seconds) if seconds else 0.0


def _stopped_by_a_period(spins: Sequence[CpuSpin]) -> bool:
    """Whether loops that were seconds apart went on at the same moment of 100 ms."""
    loops = [[end % PERIOD for end in spin.ends] for spin in spins if spin.ends]
    moments = [moment for loop in loops for moment in loop]
    if len(loops) < MIN_SPINS or len(moments) < MIN_ENDS:
        return False
    start = max(moments, key=lambda moment: _soon_after(moment, moments))
    agreeing = sum(2 * _soon_after(start, loop) >= len(loop) for loop in loops)
    return agreeing >= SAME_SHARE * len(loops) and _chance(_soon_after(start, moments), len(moments)) <= CHANCE


def _soon_after(start: float, moments: Sequence[float]) -> int:
    """How many of these moments lie within `SAME_MOMENT` after one of them."""
    return sum((moment - start) % PERIOD <= SAME_MOMENT for moment in moments)


def _chance(together: int, count: int) -> float:
    """How likely so many of ``count`` moments lie within `SAME_MOMENT` after any of them, where nothing orders them.

    >>> _chance(10, 12) < CHANCE < _chance(9, 12), _chance(19, 33) < CHANCE < _chance(18, 33)
    (True, True)
    """
    near = SAME_MOMENT / PERIOD
    ways = (
        comb(count, number) * near**number * (1 - near) ** (count - number) for number in range(together, count + 1)
    )
    return count * sum(ways)


def held_back_ranks(quotas: Mapping[int, QuotaUse]) -> dict[int, float]:
    """The ranks whose quota was used up far more often than that of the median rank, whose share it gives.

    Each sign is compared with the same sign of the others, whether theirs is a quota's or not. Never more than half of
    the ranks.

    >>> used_up, free = QuotaUse(40, 38, 3.0), QuotaUse()
    >>> held_back_ranks({0: free, 1: used_up, 2: free})
    {1: 0.0}
    >>> held_back_ranks({0: used_up, 1: used_up})
    {}
    >>> held_back_ranks({0: QuotaUse(139, 38, 0.6, 0.21, 0.52), 1: QuotaUse(137, 95, 2.1, 0.47, 0.6)})
    {}
    >>> held_back_ranks({0: QuotaUse(waited=0.85, beside_idle=True), 1: QuotaUse(waited=0.75)})
    {}
    """
    if len(quotas) < 2:
        return {}
    usual, lost, waited = (median_low(getattr(each, sign) for each in quotas.values()) for sign in SIGNS)
    held = {}
    for rank, quota in quotas.items():
        is_short = quota.share >= HELD_BACK and usual <= MOST_OF_PEERS * quota.share
        is_short |= quota.lost >= LOST and lost <= MOST_OF_PEERS * quota.lost
        if is_short and (not usual or not quota.waited or 1 - quota.waited <= UNFAIR * (1 - waited)):
            held[rank] = usual
        elif quota.beside_idle and waited <= MOST_OF_PEERS * quota.waited:
            held[rank] = waited
    return held if 2 * len(held) <= len(quotas) else {}


class SharedCpus(msgspec.Struct, frozen=True):
    """Ranks that take turns on CPUs."""

    ranks: tuple[int, ...]
    cpus: frozenset[int]
    """On which all of them may run, and nowhere else."""
    permitted: int
    """CPUs that the control groups of the host's ranks let them use."""


def shared_cpus(by_rank: Mapping[int, CpuBinding]) -> list[SharedCpus]:
    """The ranks of one host that share CPUs by their binding alone, the widest set of CPUs first.

    A host whose control groups permit fewer CPUs than it has ranks is not judged: no binding helps there. A set counts
    that is one rank's, and is narrower than the number of ranks within it; sets of launchers are equal, disjoint or
    one inside the other.

    >>> core, host = frozenset({0}), frozenset(range(64))
    >>> [found] = shared_cpus({0: CpuBinding(core, host), 1: CpuBinding(core, host), 2: CpuBinding(host, host)})
    >>> found.ranks, sorted(found.cpus), found.permitted
    ((0, 1), [0], 64)
    """
    permitted = frozenset[int]().union(*(binding.permitted for binding in by_rank.values()))
    if len(permitted) < len(by_rank):
        return []
    crowded: list[SharedCpus] = []
    narrow = {binding.cpus for binding in by_rank.values() if len(binding.cpus) < len(by_rank)}
    for cpus in sorted(narrow, key=lambda numbers: (-len(numbers), min(numbers))):
        ranks = tuple(rank for rank, binding in sorted(by_rank.items()) if binding.cpus <= cpus)
        if len(ranks) > len(cpus) and not any(cpus < other.cpus for other in crowded):
            crowded.append(SharedCpus(ranks, cpus, len(permitted)))
    return crowded
