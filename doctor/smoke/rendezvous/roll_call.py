"""Who of a launched job has come, who has not, and why: the leader's roll call. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from doctor.analysis.majority import split
from doctor.analysis.rank_numbers import RankNumbers, rank_numbers
from doctor.engine.sanitize import rank_names, strip_control_chars
from doctor.engine.texts import filled, joined
from doctor.environment.job_context import JobContext
from doctor.smoke.model import UNKNOWN_HOST, Failure
from doctor.smoke.rendezvous.link import Hello, RelayedError

SETTLE_SECONDS = 1.0
"""Seconds without a new process after which a known error is reported."""
RECONSIDER_SECONDS = 3.0
"""Seconds for which a process that cannot come may still change its mind."""


def status(
    leader: JobContext,
    hellos: Sequence[Hello],
    relayed_errors: Sequence[RelayedError],
    quiet: float,
    waited: float,
    patience: float,
) -> Failure | Literal["wait", "complete"]:
    """How things stand ``quiet`` seconds after the last news, ``waited`` since the first."""
    world = world_size(leader, hellos)
    wrong = _definite_failure(leader, hellos, world)
    absent_ranks = _numbers(hellos).absent(world)
    if not wrong and not absent_ranks:
        return "complete"
    if wrong and (quiet > SETTLE_SECONDS or waited > patience):
        return wrong
    reporting_ranks = {relayed_error.hello.rank for relayed_error in relayed_errors}
    excused = absent_ranks and all(rank in reporting_ranks or -1 in reporting_ranks for rank in absent_ranks)
    if not (waited > patience or (excused and quiet > RECONSIDER_SECONDS)):
        return "wait"
    return wrong or _absent_failure(leader, absent_ranks, relayed_errors, patience)


def world_size(leader: JobContext, hellos: Iterable[Hello]) -> int:
    """The size of the world, by the environment of most ranks."""
    votes = Counter(hello.world for hello in hellos if hello.world > 0)
    return max(votes, key=lambda number: (votes[number], number)) if votes else leader.world_size or 1


def _definite_failure(leader: JobContext, hellos: Sequence[Hello], world: int) -> Failure | None:
    """Errors that waiting does not resolve."""
    for find in (_invalid_environment, _different_versions, _different_world_sizes, _duplicate_ranks):
        culprits, text = find(hellos, world)
        if text:
            return _failure(culprits, text, "certain")
    return None


def _invalid_environment(hellos: Sequence[Hello], world: int) -> tuple[list[int], str]:
    """Ranks, or processes that cannot even say which rank they are, with variables that cannot be so."""
    wrong = [hello for hello in hellos if hello.problems]
    culprits = [hello.rank for hello in wrong if hello.rank >= 0]
    if len(culprits) < len(wrong):
        culprits += _numbers(hellos).absent(world)
    texts = []
    for hello in wrong:
        who = rank_names([hello.rank]) if hello.rank >= 0 else "a process"
        problems = joined("; ", (strip_control_chars(problem, 200) for problem in hello.problems[:4]))
        texts.append(filled("{0} on {1}: {2}", who, host_name(hello), problems))
    return culprits, joined("; ", texts[:4])


def _different_versions(hellos: Sequence[Hello], world: int) -> tuple[list[int], str]:
    parts = split(hellos, lambda hello: hello.version)
    if parts is None:
        return [], ""
    template = "a different version of doctor than on the other ranks: {0}"
    if parts.tie:
        template = "different versions of doctor, none of them on most ranks: {0}"
    return [hello.rank for hello in parts.differing], filled(
        template, ", ".join(sorted({host_name(hello) for hello in parts.differing}))
    )


def _different_world_sizes(hellos: Sequence[Hello], world: int) -> tuple[list[int], str]:
    ranks_by_world: dict[int, list[int]] = defaultdict(list)
    for hello in hellos:
        ranks_by_world[hello.world].append(hello.rank)
    if len(ranks_by_world) < 2:
        return [], ""
    tie = len({len(ranks) for ranks in ranks_by_world.values()}) == 1
    culprits = [rank for number, ranks in ranks_by_world.items() for rank in ranks if tie or number != world]
    parts = [
        filled("{0} of a world of {1}", rank_names(ranks), number)
        for number, ranks in sorted(ranks_by_world.items(), key=lambda item: len(item[1]))
    ]
    return culprits, filled("the world size differs: {0}", joined("; ", parts))


def _duplicate_ranks(hellos: Sequence[Hello], world: int) -> tuple[list[int], str]:
    numbers = _numbers(hellos)
    texts = []
    for rank, duplicates in numbers.repeated.items():
        first = sorted(duplicates, key=lambda hello: hello.pid)[:3]
        named = joined(" and ", (filled("process {0} on {1}", hello.pid, host_name(hello)) for hello in first))
        texts.append(filled("rank {0} exists {1} times: {2}", rank, len(duplicates), named))
    absent = numbers.absent(world)
    if texts and absent:
        texts.append(filled("no process is {0}", rank_names(absent)))
    return [*numbers.repeated], joined("; ", texts)


def _absent_failure(
    leader: JobContext, absent_ranks: list[int], relayed_errors: Sequence[RelayedError], patience: float
) -> Failure:
    why: dict[str, list[int]] = defaultdict(list)
    for rank, text in sorted(
        {
            relayed_error.hello.rank: strip_control_chars(relayed_error.text, 300) for relayed_error in relayed_errors
        }.items()
    ):
        if rank in absent_ranks or rank < 0:
            why[text].append(rank)
    explained_ranks = {rank for ranks in why.values() for rank in ranks}
    silent = [rank for rank in absent_ranks if rank not in explained_ranks and -1 not in explained_ranks]
    if silent:
        reasons = filled(
            "not started, directed elsewhere by {0}, or blocked by a firewall", leader.leader_address_source
        )
        silence = filled(
            "no connection within {0} s: {1}; see the stderr of that process, if it runs", f"{patience:g}", reasons
        )
        why[silence] = silent
    names_by_text = {
        text: rank_names(ranks) if ranks[0] >= 0 else "a process without a rank" for text, ranks in why.items()
    }
    texts = [
        text if len(names_by_text) == 1 else filled("{0}: {1}", names, text) for text, names in names_by_text.items()
    ]
    return _failure(
        absent_ranks, joined("; ", texts[:8]), "timeout" if silent else "evidence", patience if silent else 0.0
    )


def _numbers(hellos: Iterable[Hello]) -> RankNumbers[Hello]:
    return rank_numbers(hellos, lambda hello: hello.rank)


def _failure(
    culprits: Iterable[int], text: str, certainty: Literal["certain", "evidence", "timeout"], limit: float = 0.0
) -> Failure:
    ranks = tuple(sorted({rank for rank in culprits if rank >= 0}))
    return Failure("never-joined", ranks, certainty=certainty, stage="rendezvous", text=text, limit=limit)


def host_name(hello: Hello) -> str:
    """The host's name as it is printed, at most 80 characters."""
    return strip_control_chars(hello.host, 80) or UNKNOWN_HOST
