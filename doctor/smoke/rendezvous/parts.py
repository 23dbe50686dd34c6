"""Ranks that a launcher has placed: their plan, by what each process reported, and runs of some of the hosts.

Those are cells, and what is left without the sick ones.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.grouping import sets_by_key
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import number_ranges, rank_names
from doctor.engine.texts import filled
from doctor.environment.job_context import JobContext
from doctor.job.variables import MASTER_PORT
from doctor.smoke import plan as planning
from doctor.smoke.model import (
    UNKNOWN_HOST,
    Backend,
    EnvironmentTrial,
    Failure,
    RankPlacement,
    SmokePlan,
    SmokeResult,
    SmokeRun,
)
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.rendezvous.link import Hello, RelayedError
from doctor.smoke.rendezvous.roll_call import host_name, world_size
from doctor.smoke.results.to_facts import fact_outputs


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


def with_host_names(hellos: Sequence[Hello]) -> dict[int, Hello]:
    """By rank; hosts that share a name have distinct ones."""
    names = names_by_rank(hellos)
    return {hello.rank: msgspec.structs.replace(hello, host=names[hello.rank]) for hello in hellos}


def on_hosts(hellos: Mapping[int, Hello], hosts: Collection[str]) -> dict[int, Hello]:
    """By rank of the job: those on these hosts, numbered as in a job that has these hosts alone."""
    chosen = set(hosts)
    ranks = sorted(rank for rank, hello in hellos.items() if hello.host in chosen)
    return {
        rank: msgspec.structs.replace(hellos[rank], rank=number, world=len(ranks)) for number, rank in enumerate(ranks)
    }


def plan_of_part(leader: JobContext, part: Mapping[int, Hello], options: SmokeOptions) -> SmokePlan:
    """The plan of these ranks. Without the job's rank 0 they meet at their own first host. Raises: ValueError."""
    plan = build_launched_plan(leader, list(part.values()), (), options)
    if all(rank == hello.rank for rank, hello in part.items()):
        return plan
    meeting = {} if 0 in part else {"master_addr": "", "master_port": 0}
    return msgspec.structs.replace(plan, job_ranks=tuple(sorted(part)), **meeting)


def numbering_notes(plan: SmokePlan) -> tuple[str, ...]:
    """For the report of a run whose ranks have other numbers than in the job."""
    if not plan.job_ranks:
        return ()
    ranks = number_ranges(plan.job_ranks, ", ")[:300]
    text = "without the hosts that were left out the ranks are numbered anew: they are ranks {0} of the job"
    return (filled(text, ranks),)


def absent_failure(
    part: Mapping[int, Hello], arrived: Collection[int], living: Collection[int], limit: float
) -> Failure:
    """Of ranks that did not come to a run within this many seconds. Those whose processes live are no fault."""
    ended = tuple(sorted(hello.rank for rank, hello in part.items() if rank not in living))
    late = tuple(sorted(hello.rank for rank, hello in part.items() if rank not in arrived))
    if ended:
        waiting = tuple(number for number in range(len(part)) if number not in ended)
        return Failure("never-joined", ended, waiting, stage="rendezvous", text="its process has ended")
    text = filled("{0} did not start again within {1} s", rank_names(late), f"{limit:g}")
    return Failure("budget", (), late, stage="rendezvous", text=text)


def blame_fewer(failure: Failure, plan: SmokePlan) -> Failure:
    """A failure to meet. Silence of half of all ranks, or of several hosts, accuses none of them: the fleet may be cut.

    That of a rank whose host others have come from is its own.
    """
    silent = {rank for rank in failure.culprit_ranks if failure.limit and plan.host_of(rank) == UNKNOWN_HOST}
    most = max((len(ranks) for host, ranks in plan.ranks_by_host.items() if host != UNKNOWN_HOST), default=1)
    if 2 * len(silent) < plan.world and len({rank // most for rank in silent}) <= 1:
        return failure.blaming(failure.culprit_ranks)
    sentence = filled(
        "{0} of {1} have not, so that either side may be cut off: {2}", rank_names(silent), plan.world, failure.text
    )
    return failure.blaming(set(failure.culprit_ranks) - silent, text=sentence)


def blame_kept_out(failure: Failure, plan: SmokePlan, answered: Mapping[str, bool]) -> Failure:
    """A failure to meet, where hosts that had come tried to reach the leader's host once more.

    ``answered``: by such a host, whether it got an answer. Where none did, as of a host whose connection table is full,
    those that have not come are kept out: two say so of the leader's host, and of one either end may be the cause.
    """
    kept_out = sorted(host for host, answer in answered.items() if not answer)
    if not kept_out or len(kept_out) < len(answered):
        return blame_fewer(failure, plan)
    leader, hosts = plan.host_of(0), ", ".join(kept_out[:4])
    sentence = filled("{0} gives {1} no answer to a new connection, though they have come before", leader, hosts)
    if len(kept_out) == 1:
        sentence = filled("{0} gives {1} no answer to a new connection, though it has come before", leader, hosts)
    text = filled("{0}: {1}", sentence, failure.text)
    named = len(kept_out) > 1
    return failure.blaming(plan.ranks_by_host[leader] if named else (), text=text, unreached=named)


def result_without_run(
    plan: SmokePlan, failures: tuple[Failure, ...], seconds: float, notes: Iterable[str], untried: str
) -> SmokeResult:
    """Of ranks that did not begin: for these failures, or as they were interrupted.

    ``untried``: why the job's environment cannot be tried after failures; an interrupt says nothing of the processes.
    """
    why = filled("a run without the job's variables was not tried: the run was interrupted")
    run = SmokeRun(
        plan,
        failures,
        "trouble" if failures else "interrupted",
        seconds=seconds,
        notes=tuple(dict.fromkeys(notes)),
        environment_trial=EnvironmentTrial(passes=False, untried=untried if failures else why),
    )
    now = time.time()
    hosts = dict.fromkeys(place.host for place in plan.places if place.host != UNKNOWN_HOST)
    visit = Visit(sent=now, received=now)
    return SmokeResult(run, {host: HostRecord(visit, fact_outputs(run, host, ())) for host in hosts})
