"""Which rank of a job is odd: the others wait for it. Pure.

A job whose ranks move has no odd rank: what each of them does at one moment does not count. Only where ranks stood
still in a wait for the whole interval, and no bytes passed between them, is the one named that is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile

import msgspec

from doctor.analysis.majority import Split, split
from doctor.engine.addresses import means_own_host
from doctor.engine.grouping import lists_by_key
from doctor.engine.sanitize import count_noun
from doctor.engine.texts import filled, joined
from doctor.watch.attach.blame import Judgement, OddRank, Result, blame, blame_unless_helped, sentence_of, waiters
from doctor.watch.attach.process_groups import group_names
from doctor.watch.attach.rank_activity import AT_KEY, BUILDS, DEFINITE, LONG_LOOK, SERVERS, activity
from doctor.watch.attach.rank_report import HostReport, ProcessReport, labels_joined
from doctor.watch.attach.seen_rank import SeenRank
from doctor.watch.attach.without_wait import all_idle, without_wait
from doctor.watch.rehearsal.judge import judge_running
from doctor.watch.rehearsal.rank_view import live_view

APART = (
    "The processes are not connected with each other: they still start, or are no ranks of one job. Look again later."
)
SUSPENDED = "All ranks are stopped, as by scontrol suspend: scontrol resume JOB or docker unpause NAME continues them."
MOVING_RATE = 2048.0
"""Bytes a second over TCP, above which a rank's collectives move; what stores and heartbeats say is less."""
MOST_MISFITS = 8
MAX_WORLD = 1024  # ranks on one host


class JobFinding(msgspec.Struct, frozen=True):
    """One job."""

    job: str
    ranks: tuple[SeenRank, ...]
    world: int
    """0: not known."""
    result: Result
    text: str
    odd_ranks: tuple[OddRank, ...]
    may_go_on: tuple[SeenRank, ...]
    notes: tuple[str, ...]

    @property
    def may_be_slow(self) -> bool:
        """Undecided, and a longer look tells more: ranks stand still at their devices, as in a long step, or a server
        has not answered yet.
        """
        may_last = (
            view.awaits_device or (view.does.spins and view.does.still) or view.does.holds for view in self.ranks
        )
        return self.result == "undecided" and not self.odd_ranks and any(may_last)

    @property
    def is_complete(self) -> bool:
        return 0 < self.world <= len({entry.report.rank for entry in self.ranks} - {None})


def find_odd(reports: Mapping[str, HostReport], *, partly: bool = False) -> list[JobFinding]:
    """Each job on these hosts, the largest first. ``partly``: only some processes were looked at, as the user asked."""
    jobs: dict[str, list[SeenRank]] = {}
    names = group_names(reports)
    ports = {str(port) for report in reports.values() for rank in report.ranks for port, _, _ in rank.stores}
    for host, report in reports.items():
        for rank in report.ranks:
            name = names.get((host, rank.pid)) or _job_name(rank)
            jobs.setdefault(name, []).append(SeenRank(host, rank, activity(rank, report.seconds, ports)))
    findings = []
    for name, views in jobs.items():
        world = max(view.report.world for view in views)
        absent = _absent_ranks(views, world, reports)
        if partly and len(absent) > sum(len(report.not_found) for report in reports.values()):
            absent = {}
        verdict = _judge(views, world, absent, _moves(views, reports))
        notes = (*_notes(views, world, absent, reports, partly), *_misfits(views, reports))
        findings.append(JobFinding(name, tuple(views), world, *verdict, notes))
    return sorted(findings, key=lambda entry: -len(entry.ranks))


def _misfits(views: Sequence[SeenRank], reports: Mapping[str, HostReport]) -> list[str]:
    """What does not fit in what the ranks got, as the judge of a rehearsal says it."""
    ranks = []
    for view in views:
        report, variables = view.report, {**view.report.job, **view.report.variables}
        ranks.append(live_view(view.host, report.pid, report.rank, variables, reports[view.host].place, report.place))
    return [misfit.text for misfit in judge_running(ranks)[:MOST_MISFITS]]


def _job_name(rank: ProcessReport) -> str:
    if rank.rank is None:
        return "processes without a rank"
    names = {"SLURM_JOB_ID": "Slurm job {0}", "MASTER_PORT": "master port {0}", "MS_SCHED_PORT": "scheduler port {0}"}
    parts = [filled(text, rank.job[name]) for name, text in names.items() if name in rank.job]
    return joined(", ", [*parts, count_noun(rank.world, "rank") if rank.world else "an unknown number of ranks"])


def _judge(views: list[SeenRank], world: int, absent: Mapping[int, str], moves: bool) -> Judgement:
    # A job that ends well loses its ranks one after the other.
    definite = [view for view in views if view.does.kind in DEFINITE and not (moves and view.does.kind == "left")]
    # A rank that rests at the same place as those that wait, waits as well, even if its call could not be read.
    places = {view.does.place for view in views if view.waits} - {()}
    beside = [view for view in views if view.does.kind == "wait" and view.does.still and view.does.place in places]
    waiting = [view for view in views if view.waits or view in beside]
    if any(view.is_in_library for view in waiting):  # without stacks of Python: whose interpreter waits, is in none
        waiting = [view for view in waiting if view.is_in_library is not False]
    if any(view.does.kind in ("collective", "wait") for view in waiting):
        waiting += [view for view in views if view.awaits_device]
    rest = [view for view in views if view not in waiting]
    holders = [] if definite or absent else [view for view in views if view.does.holds and view.report.rank is None]
    if holders:
        return _hold_up(holders)
    if not definite and (moves or not (waiting or absent)):
        if world != 1 and not any(view.report.is_connected for view in views):
            return Judgement("undecided", APART)
        return without_wait(views, moves)
    if absent:
        # Whoever ends within the interval has lost the one that had gone before.
        departed = tuple(OddRank(rank, host, 0, "has no process", "left") for rank, host in absent.items())
        named = joined(", ", (filled("rank {0}", rank) for rank in absent))
        return Judgement(
            "odd", filled("{0} of {1} has no process any more; {2}.", named, world, waiters(waiting)), departed
        )
    all_left = definite and not waiting and all(view.does.kind == "left" for view in definite)
    if all_left and len(views) in (len(definite), *range(world)):
        return _over(definite, world - len(views))
    if len(views) == len(definite) > 1 and all(view.does.kind in ("stopped", "frozen") for view in views):
        return Judgement("undecided", SUSPENDED)
    if definite:
        return blame(definite, waiting)
    return _beside(rest, waiting) if rest else _all_wait(waiting)


def _beside(rest: list[SeenRank], waiting: list[SeenRank]) -> Judgement:
    """Those that do not wait, where others do."""
    servers = {(view.host, view.report.pid) for view in rest if view.report.requests}
    free = [view for view in rest if not view.report.requests]  # who was asked nothing, and has asked a server
    waiting = [*waiting, *(view for view in free if any((view.host, pid) in servers for pid in view.report.awaits))]
    rest = [view for view in rest if view not in waiting]
    fellows = _fellows(waiting, rest)
    if fellows:
        return blame_unless_helped(fellows, waiting)
    if all(view.does.kind == "idle" for view in waiting):
        return without_wait([*waiting, *rest], False)
    if len(waiting) < len(rest):
        return Judgement("undecided", "The ranks do different things; fewer than half of them wait.")
    judged = blame_unless_helped(rest, waiting)
    runs = any(view.does.spins for view in waiting) and not all(
        view.does.unmoved or (view.does.still and view.does.kind == "loader") for view in rest
    )  # a wait for the loader's next batch wakes up every few seconds
    if judged.result != "odd" or not runs:
        return judged
    if all(view.does.is_silent for view in (*waiting, *rest)):
        text = "{0} No message passed meanwhile: it computes without end, or has long work of its own."
        return Judgement("undecided", filled(text, judged.text), judged.odd_ranks)
    return Judgement("undecided", filled("{0} It runs now and then: look again.", judged.text), (), tuple(rest))


def _hold_up(holders: Sequence[SeenRank]) -> Judgement:
    """Those that were asked something and do nothing for it: who sent the request waits, as does who waits for that."""
    lasting = [view for view in holders if view.does.holds >= LONG_LOOK]
    judged = blame_unless_helped(lasting or holders, ())
    if lasting:
        return judged
    return Judgement("undecided", filled("{0} It may answer yet: look again.", judged.text))


def _fellows(waiting: Sequence[SeenRank], rest: Sequence[SeenRank]) -> list[SeenRank]:
    """Of processes that name no rank, whose roles differ: those that do the same work as the ones that wait in a
    collective and are not with them, or that rest in a task whose result one waits for, or alone can answer one of
    another role that waits for a message, while others of their own role wait for their next one.
    """
    roles = {view.does.role for view in waiting if view.does.kind == "collective" and view.report.rank is None} - {""}
    asked_roles = {view.asks for view in waiting} - {""}
    idle = [view for view in waiting if view.does.kind == "idle"]
    ready = {view.does.role for view in idle} - {""}
    asked_by = {(view.host, view.report.awaits[0]): view.does.role for view in idle if len(view.report.awaits) == 1}

    def is_fellow(view: SeenRank) -> bool:
        role = view.does.role
        if role in roles and (view.does.unmoved or view.does.kind == "compute"):
            return True
        if role in asked_roles and view.does.unmoved and not view.awaits_another_call:
            return True
        return view.does.rests and role in ready and asked_by.get((view.host, view.report.pid), role) != role

    fellows = [view for view in rest if view.does.kind != "collective" and is_fellow(view)]
    return fellows or [view for view in rest if view.does.role in roles and view.polls]


def _over(ended: Sequence[SeenRank], unseen: int) -> Judgement:
    """Of ranks that ended during the look, and for which none waits. ``unseen``: ranks that were not looked at."""
    if unseen <= 0:
        return Judgement("undecided", "All its processes ended during the look: how they ended is in their own output.")
    named = labels_joined([view.report.label for view in ended])
    text = filled("{0} ended during the look; no rank seen here waits for it,", named)
    who = "the rank not seen" if unseen == 1 else filled("one of the {0} ranks not seen", unseen)
    return Judgement("undecided", filled("{0} and {1} may have ended before.", text, who))


def _split_by_place(waiting: Sequence[SeenRank]) -> Split[SeenRank] | None:
    is_unnamed = any(view.where is True for view in waiting)  # then the calls of the others tell nothing
    parts = split(waiting, lambda view: (is_unnamed and view.does.spins) or view.where)
    if not parts or parts.majority or not all(view.outer_frames for view in waiting):
        return parts
    # Two parts of one step, and a rank that is not in this step.
    levels = zip(*(view.outer_frames for view in waiting), strict=False)
    depth = sum(1 for _ in takewhile(lambda frames: len(set(frames)) == 1, levels))  # that all have in common
    return split(waiting, lambda view: view.outer_frames[depth : depth + 1]) or parts


def _all_wait(waiting: list[SeenRank]) -> Judgement:
    """Every rank waits: the odd one waits at another place. Without stacks, only the kind of the wait tells."""
    idle = [view for view in waiting if view.does.kind == "idle"]
    waiting = [view for view in waiting if view not in idle]
    if not waiting:
        return all_idle(idle)
    roles = {*SERVERS, *(view.does.role for view in waiting if view.does.kind == "collective")} - {""}
    free = [view for view in idle if view.does.role in roles and not view.asks]
    if free and any(view.does.kind == "collective" for view in waiting):
        if len(free) == 1 and not any(view.report.links for view in (*waiting, *idle)):
            return (blame_unless_helped if free[0].awaits_request else blame)(free, waiting)
        return Judgement("undecided", sentence_of(free, waiting))
    parts = _split_by_place(waiting)
    paired = [view for view in waiting if view.does.is_between_two]
    at_key = [view for view in paired if view.does.text.startswith(AT_KEY)]
    if parts and paired and not (parts.majority and all(view in at_key for view in parts.agreeing)):
        text = "All ranks wait, some in send or recv or for a key: which is odd, their number does not tell. {0}"
        others = [view for view in waiting if view not in paired]
        return Judgement("undecided", filled(text, sentence_of(paired, others)))
    in_one_call = len({view.does.text for view in waiting}) == 1 and bool(waiting[0].does.place)
    if parts and parts.majority and not in_one_call:  # a key that most wait for, the others were to set
        return blame_unless_helped(parts.differing, parts.agreeing)
    if parts:
        text = "All ranks wait, and at different places; none has a majority."
        if in_one_call:
            text = "All ranks wait in one call of the program, some in another part of it than most."
        return Judgement("undecided", text)
    if not waiting[0].does.place:
        return Judgement("undecided", "All ranks wait; without their stacks, nothing shows which of them is odd.")
    text = "All ranks wait in the same place: look at network, devices (doctor net) and processes that never joined."
    if waiting[0].does.text.startswith(BUILDS):
        text = (
            "All ranks wait for a build of extensions, and none of them builds. Where nothing else does, its lock was "
            "left: find ~/.cache/torch_extensions -name lock -delete"
        )
    return Judgement("undecided", text)


def _moves(views: Sequence[SeenRank], reports: Mapping[str, HostReport]) -> bool:
    """Whether bytes pass between the ranks, or fewer than two, or than a third of them, stand still."""
    carried = 0
    for view in views:
        tcp, seconds = view.report.tcp, max(reports[view.host].seconds, 0.1)
        grew = [later - earlier for earlier, later in pairwise(tcp) if min(earlier, later) >= 0]
        carried += bool(grew) and min(grew) > MOVING_RATE * seconds / max(len(grew), 1)
    still = sum(view.does.still or view.polls_in_vain for view in views)
    return carried * 2 >= len(views) or still * 3 < len(views)


def _absent_ranks(views: Sequence[SeenRank], world: int, reports: Mapping[str, HostReport]) -> dict[int, str]:
    """Ranks without a process, by number, and the host that had them; only where it is certain that they were there."""
    absent: dict[int, str] = {}
    by_host = lists_by_key((view.host, view.report) for view in views)
    for host, ranks in by_host.items():
        numbers = {rank.rank for rank in ranks if rank.rank is not None}
        if len(numbers) < len(ranks) or (world and max(numbers) >= world):
            continue  # processes that do not tell their ranks apart
        for rank in ranks:
            local, size = rank.variables.get("LOCAL_RANK", ""), rank.variables.get("LOCAL_WORLD_SIZE", "")
            if rank.rank is not None and local.isdecimal() and size.isdecimal() and int(size) <= MAX_WORLD:
                first = rank.rank - int(local)
                absent.update({number: host for number in range(first, first + int(size)) if number not in numbers})
        here = reports[host].local or all(means_own_host(rank.job.get("MASTER_ADDR", "")) for rank in ranks)
        # Ranks in containers of their own are not seen from one of them.
        if len(by_host) == 1 and len(numbers) * 2 >= world and here and world <= MAX_WORLD:
            absent.update({number: host for number in range(world) if number not in numbers})
    return dict(sorted(absent.items()))


def _notes(
    views: Sequence[SeenRank], world: int, absent: Mapping[int, str], reports: Mapping[str, HostReport], partly: bool
) -> tuple[str, ...]:
    notes = []
    present = {view.report.rank for view in views if view.report.rank is not None}
    if world and len(present) + len(absent) < world and present:
        counted = filled("{0} of {1} ranks were seen", len(present), world)
        if len(present) == 1:
            counted = filled("1 of {0} ranks was seen", world)
        of_others = "{0}; the others run on hosts that were not asked"
        notes.append(filled("{0}; the others were not examined (--pid)" if partly else of_others, counted))
    bare = [view for view in views if not view.report.frames]
    if bare and not any(reports[view.host].py_spy for view in bare):
        notes.append("no stacks: py-spy was not found beside the job's interpreter or on the PATH (pip install py-spy)")
    elif bare:
        notes.append(
            filled("no stack of {0}: {1}", labels_joined([view.report.label for view in bare]), bare[0].report.problem)
        )
    return tuple(notes)
