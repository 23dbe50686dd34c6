"""Who is named for a wait, and who is not: what it does, or what is done for it, may come to an end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from doctor.engine.texts import filled, joined
from doctor.watch.attach.rank_activity import LONGEST_WAIT
from doctor.watch.attach.rank_report import Kind, labels_joined
from doctor.watch.attach.seen_rank import SeenRank

Result = Literal["odd", "moves", "undecided", "nothing"]


class OddRank(msgspec.Struct, frozen=True):
    """A rank that the others wait for."""

    rank: int | None
    host: str
    pid: int
    """0: it has no process."""
    text: str
    kind: Kind


class Judgement(NamedTuple):
    """What a job's ranks come to."""

    result: Result
    text: str
    """One sentence."""
    odd_ranks: tuple[OddRank, ...] = ()
    may_go_on: tuple[SeenRank, ...] = ()
    """Others wait for these, whose work may come to an end."""


def blame(views: Sequence[SeenRank], waiting: Sequence[SeenRank]) -> Judgement:
    """The finding that these are odd."""
    odd_ranks = (
        OddRank(view.report.rank, view.host, view.report.pid, view.does.text, view.does.kind) for view in views
    )
    return Judgement("odd", sentence_of(views, waiting), tuple(odd_ranks))


def blame_unless_helped(views: Sequence[SeenRank], waiting: Sequence[SeenRank]) -> Judgement:
    """These are odd, unless what they do, or is done for them, may come to an end."""
    links, far_ends = {link for view in (*views, *waiting) for link in view.report.links}, {}
    for view in views:
        own_end, _, end = view.report.far_end[0].partition(">") if view.report.far_end else ("", "", "")
        if view.far_end and f"{end}>{own_end}" not in links:  # else it waits for a rank that is looked at
            far_ends[view.report.pid] = end
    computing = [it for it in views if it.does.kind == "compute" and not (it.does.spins or it.report.finds_the_same)]
    at_rest = [view for view in views if view not in computing and not (computing and view.report.finds_the_same)]
    lasts = any(view.report.off_cpu >= LONGEST_WAIT for view in waiting)
    passes = [view.does.works or view.does.transfers or view.polls for view in views]
    seconds = [0.0 if may_pass else view.goes_on_in for view, may_pass in zip(views, passes, strict=True)]
    locked_by = {(view.host, view.report.pid) for view in waiting}
    more = next(iter(far_ends.values()), "")
    if all(view.asks_for_lock_of(locked_by) for view in views):
        return _blame_with_keepers(views, waiting)
    if all(view.does.transfers for view in views):
        text = "{0} It reads or writes meanwhile: look again."
    elif all(view.does.works or view.does.transfers for view in views):
        text = "{0} It, or what it waits for, works meanwhile, as in an evaluation: look again."
    elif all(view.awaits_request for view in views):
        text = "{0} It waits for a request, which may come yet: look again."
    elif not lasts and all(passes):
        text = "{0} It looks again and again for something that may come yet: look again."
    elif not lasts and max(seconds) <= LONGEST_WAIT:
        text = "{0} What sleeps there goes on by itself, in {1} s at most: look again."
        more = f"{max(seconds):.0f}"
    elif waiting and all(view.goes_on for view in (*views, *waiting)):
        text = "{0} All of them run now and then, and messages pass: look again, for longer (--interval)."
    elif all(view.does.works or view.does.transfers or view.report.pid in far_ends for view in views):
        text = "{0} It waits for {1}, on another host, where something may work for it: look there."
    elif not at_rest and not lasts:
        text = "{0} It computes without end, or has long work of its own: look again."
    else:
        return blame(at_rest or views, waiting)
    likely = blame(views, waiting).odd_ranks if waiting and all(view.polls_in_vain for view in views) else ()
    return Judgement("undecided", filled(text, sentence_of(views, waiting), more), likely, tuple(views))


def _blame_with_keepers(views: Sequence[SeenRank], waiting: Sequence[SeenRank]) -> Judgement:
    """Neither who waits for a lock nor who keeps it goes on, where that one waits for the others in turn."""
    judged, kept = blame(views, waiting), []
    text, who = "keeps locked what {0} asked for, and {1}", labels_joined([view.report.label for view in views])
    for keeper in waiting:
        if any(view.asks_for_lock_of({(keeper.host, keeper.report.pid)}) for view in views):
            does, report = filled(text, who, keeper.does.text), keeper.report
            kept.append(OddRank(report.rank, keeper.host, report.pid, does, views[0].does.kind))
    return judged._replace(odd_ranks=(*judged.odd_ranks, *kept))


def sentence_of(odd_ranks: Sequence[SeenRank], waiting: Sequence[SeenRank]) -> str:
    """What these do, and who waits."""
    first, text = odd_ranks[:4], "{0} (pid {1} on {2}) {3}"
    who = joined("; ", (filled(text, it.report.label, it.report.pid, it.host, it.does.text) for it in first))
    more = filled("; {0} more", len(odd_ranks) - 4) if len(odd_ranks) > 4 else ""
    if not waiting and any(view.report.requests for view in odd_ranks):
        return filled("{0}{1}.", who, more)
    return filled("{0}{1}; {2}.", who, more, waiters(waiting))


def waiters(waiting: Sequence[SeenRank]) -> str:
    """Who waits, such as ``ranks 0-1 wait``."""
    if not waiting:
        return "no rank waits for it yet"
    labels = labels_joined([view.report.label for view in waiting])
    return filled("{0} waits" if len(waiting) == 1 else "{0} wait", labels)
