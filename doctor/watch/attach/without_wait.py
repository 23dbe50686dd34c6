"""What is said of a job's processes where none of them waits in a collective for another. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.texts import filled
from doctor.watch.attach.blame import Judgement, OddRank, blame, blame_unless_helped, sentence_of
from doctor.watch.attach.rank_activity import INPUT, RAY, RESTS
from doctor.watch.attach.rank_report import labels_joined
from doctor.watch.attach.seen_rank import SeenRank

BUSY = (
    "The ranks use their CPUs, and nothing shows whether they compute or wait for each other so, as in MPI or for a "
    "device. Expected py-spy, or root (--sudo) for samples; look again."
)


def without_wait(views: Sequence[SeenRank], moves: bool) -> Judgement:
    """What is said where no rank waits for another."""
    if all(view.does.kind == "unknown" and "read" in view.does.text for view in views):
        return Judgement("undecided", "The ranks cannot be read: expected root (--sudo), or the user of the job.")
    if moves:
        return _beside_moving(views)
    if any(view.does.kind == "compute" or view.awaits_device for view in views):
        return _beside_computing(views)
    return _at_rest(views)


def _beside_computing(views: Sequence[SeenRank]) -> Judgement:
    """What is said where some compute, or wait for their devices."""
    # Beside one that turns at one place, whoever waits for anything all the time may hold it up.
    rests = RESTS | {"wait"} if any(view.does.turns for view in views) else RESTS
    at_rest = [view for view in views if view.does.kind in rests and view.does.unmoved]
    computing = [view for view in views if view.does.kind == "compute"]
    if at_rest:
        text = "{0} Others compute, and may wait so for it, as in MPI or for a device."
        return Judgement("undecided", filled(text, sentence_of(at_rest, [])))
    if at_devices := [view for view in views if view.awaits_device]:
        text = (
            "{0}: no move while waiting for the device, for what it computes or for another rank. "
            "So does a job whose steps take longer (--interval)."
        )
        return Judgement("undecided", filled(text, labels_joined([view.report.label for view in at_devices])))
    askers = [view for view in views if view.asks]
    asked_roles = {view.asks for view in askers}
    if busy := [view for view in computing if view.does.role in asked_roles and not view.does.works]:
        return blame_unless_helped(busy, askers)
    if not all(view.does.is_surely_computing for view in computing):
        return Judgement("undecided", BUSY)
    clients = [view for view in views if view.report.awaits or view.report.answering]
    if clients := [view for view in clients if view.does.kind == "wait" and view.does.unmoved]:
        text = "{0} Others compute, and may do so for it: look again."
        return Judgement("undecided", filled(text, sentence_of(clients, [])))
    return Judgement("moves", "Ranks compute, and none of them waits for another.")


def _at_rest(views: Sequence[SeenRank]) -> Judgement:
    """What is said where no rank computes either."""
    text = (
        "The ranks make no progress, and none of them is in a collective. "
        "So does a job whose steps take longer (--interval)."
    )
    pollers = [view for view in views if view.polls_in_vain]
    quiet = [view for view in views if view.does.kind == "idle" or view.does.text.startswith(INPUT)]
    others = [view for view in views if view not in pollers and view not in quiet]
    # An event that a task of Ray waits for comes from another call, or from a thread of its own; none of these runs.
    askers = [view for view in views if view.asks == RAY and not view.report.links]
    tasks = [view for view in others if view.does.rests and view.does.role == RAY]
    waiting = pollers or (askers if tasks == others else [])
    if ends := [] if waiting else _ends_of_chains(others):
        others, waiting = ends, [view for view in views if view not in ends]
    if others and waiting:
        return blame_unless_helped(others, waiting)._replace(result="undecided")
    likely: tuple[OddRank, ...] = ()
    if 0 < 2 * len(others) < len(views):
        text = filled("{0} The others wait for input, as servers without work do: look again.", sentence_of(others, []))
        likely = blame(others, []).odd_ranks if all(view.is_held_up for view in others) else ()
    return Judgement("undecided", text, likely)


def _ends_of_chains(views: Sequence[SeenRank]) -> list[SeenRank]:
    """Ranks for which others wait at a connection or a pipe, and that wait for none of these themselves."""
    awaited = {(view.host, pid) for view in views for pid in view.report.awaits}
    ranks = {(view.host, view.report.pid) for view in views if view.report.rank is not None}
    at_end = [view for view in views if not ranks & {(view.host, pid) for pid in view.report.awaits}]
    return [it for it in at_end if (it.host, it.report.pid) in awaited & ranks and not it.awaits_request]


def _beside_moving(views: Sequence[SeenRank]) -> Judgement:
    """What is said of a job that moves: servers beside each other do not wait for each other."""
    roles = {view.does.role for view in views if view.report.rank is None and not view.does.unmoved} - {""}
    apart = [view for view in views if view.does.role in roles and view.does.kind in RESTS and view.does.rests]
    if not apart:
        return Judgement("moves", "The ranks move: none of them is odd.")
    text = "{0} Others that do the same work move, and may not need it: look again."
    return Judgement("undecided", filled(text, sentence_of(apart, [])))


def all_idle(views: Sequence[SeenRank]) -> Judgement:
    """What is said of processes that wait for messages or for results of each other."""
    askers = [view for view in views if view.asks]
    if not askers:
        return Judgement("undecided", "All processes wait for work, and none of them for another that holds it up.")
    inner = [view for view in askers if view.does.role == view.asks] or askers  # tasks that wait
    sentence = sentence_of(inner, [view for view in askers if view not in inner])
    called = [view for view in views if view.report.task and not view.asks]  # an event loop works for that
    if called and (limit := max(view.report.ends_in for view in called)) >= 0:
        text = "{0} What sleeps there goes on by itself, in {1} s at most: look again."
        return Judgement("undecided", filled(text, sentence, f"{limit:.0f}"))
    text = filled(
        "{0} Each waits for another or, as in Ray, a free CPU (ray status), unless another host answers.", sentence
    )
    if called:
        first = called[0].report
        text = filled(
            "{0} Pid {1} is in {2} meanwhile, and waits for an event, without a limit.", sentence, first.pid, first.task
        )
    may_be_answered = inner is askers or any(view.report.links for view in views)
    return Judgement("undecided", text, () if may_be_answered else blame(inner, askers).odd_ranks)
