"""Runs of some hosts of a launched job: its cells, and what is left without the sick ones."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from doctor.engine.fact import Visit
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import number_ranges, rank_names
from doctor.engine.texts import filled
from doctor.environment.job_context import JobContext
from doctor.smoke.model import UNKNOWN_HOST, EnvironmentTrial, Failure, SmokePlan, SmokeResult, SmokeRun
from doctor.smoke.plan import SmokeOptions
from doctor.smoke.rendezvous.link import Hello
from doctor.smoke.rendezvous.placement import build_launched_plan, names_by_rank
from doctor.smoke.results.to_facts import fact_outputs


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
