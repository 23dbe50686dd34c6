"""Ranks of one host that may run on fewer CPUs than they are, while the host has more for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from doctor.facts.smoke.first_stages import CpuBinding


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
