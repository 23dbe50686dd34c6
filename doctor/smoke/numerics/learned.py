"""Replicas that have not learned the same: which of them are wrong, by the serial training. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from doctor.facts.smoke import LearnedParameters

CLEAR = 5.0
"""Times the error of the rank that is nearest to the serial training, from which on a replica is the wrong one."""


def differing_replicas(
    events: Iterable[LearnedParameters],
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], float | None]]:
    """The wrong ranks, their data-parallel group, and their largest error, of every group that disagrees.

    All ranks of a group are wrong for what is known where none is clearly nearer to the serial training.
    """
    groups: dict[tuple[int, int], list[LearnedParameters]] = {}
    for event in events:
        groups.setdefault((event.pp, event.tp), []).append(event)
    for group in groups.values():
        if len({(event.params, event.gradient) for event in group}) < 2:
            continue
        everyone = tuple(sorted(event.rank for event in group))
        errors = {event.rank: event.error for event in group if event.error is not None}
        nearest = min(errors.values(), default=0.0)
        wrong = tuple(sorted(rank for rank, error in errors.items() if error > CLEAR * nearest))
        known = len(errors) == len(group) > len(wrong) > 0
        yield wrong if known else everyone, everyone, max(errors.values(), default=None)
