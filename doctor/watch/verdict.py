"""From what the ranks of one training did to the failure that stopped it, and to the ranks that slow it down. Pure.

The rules are the smoke run's (`doctor.smoke.hang`). What differs in a program of the user: how long its phases take is
not known. A limit of time alone names no rank that still works (`doctor.watch.effort`) before the limit of the process
group itself is over, no rank in its first step, and no rank that no other waits for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from doctor.analysis.collectives.deaths import Death, EndCause, follows
from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.smoke.hang.detector import Detector, joined_snapshots
from doctor.smoke.hang.stalls import locked_out
from doctor.smoke.model import Failure, Snapshot
from doctor.smoke.programs.recorder_page import P2P_GROUP_BASE
from doctor.smoke.programs.secondary_errors import gave_up_waiting, is_secondary
from doctor.watch.circular_wait import FOR_RANK, CircularWait
from doctor.watch.pace import Entry
from doctor.watch.rendezvous_wait import RendezvousWait
from doctor.watch.suspicion import CallRepeats, Suspicion

UNKNOWN_END = "ended without its exit handlers: killed, or os._exit"
"""How a rank ended where its exit status could not be read."""
STAGE = "soak"
"""The stage that the rules get for a watched program: one in which ranks need not count the same steps."""
STARTING = 5.0
"""Times the patience, for a rank's first step."""
LONG_WORK = 30.0
"""Times the patience, for a rank that still works, where the limit of its process group is not known."""
RESTING, LEAST_REST = 0.5, 3.0
"""Of the patience, and seconds, for which a rank must have been at rest to be named before its group's own limit."""
QUIET_KINDS = frozenset({"", "asks again and again", "sleeps"})
"""What ranks do that all are outside of collectives, where that may be a hang: as `Effort.kind`."""
LAST_SECONDS, LAST_FACTOR, LAST_WORK = 5.0, 2.0, 2.0
"""The shortest wait that is reported at the end: seconds; times the longest phase; times the patience, if it works."""
QUIET = 0.5
"""Seconds without a sign, after which a rank that has started collectives may be waiting for one of them."""
PAUSED_SECONDS = 10.0
"""Seconds that a debugger or a profiler may stop a rank."""
GRACE = 1.0
"""Seconds for the cause of a rank's end to arrive."""

_ON_DEVICE = re.compile(r"(?:nc|hc|rc|xc|mc)cl|cncl")
"""Backends whose collectives run on a stream of the device."""
RankPage = dict[str, Any]
"""What an agent read of a rank's page, by field."""
TERMINATED = "signal 15"
"""How launchers end the ranks that are left."""
KILLED = "signal 9"
OWN_ENDS = frozenset({KILLED, "signal 4", "signal 7", "signal 8", "signal 11"})
"""Ends that neither a broken connection nor a launcher's first signal brings about."""
OF_THE_PROCESS = frozenset({"dead", "stopped", "frozen"})
"""Failures that the kernel shows, even where the hook shows something else."""


def _cause_of_end(dead: str, error: str) -> EndCause:
    """How much the end of a rank speaks for a cause of its own."""
    if gave_up_waiting(error):
        return EndCause.WAITED
    if is_secondary(error) or dead == TERMINATED:
        return EndCause.INFLICTED
    return EndCause.GENUINE if error or dead in OWN_ENDS else EndCause.UNKNOWN


class TrainingWatch:
    """All ranks of one training: those that meet at one address, from one start to the next."""

    def __init__(self, world: int, patience: float, hosts: Sequence[str] = ()) -> None:
        """``patience``: least seconds without progress that count as a hang."""
        self.world, self.patience = world, patience
        stopped = min(PAUSED_SECONDS, patience)
        self.detector = Detector(world, patience, network_floor=2 * patience, grace=GRACE, hosts=hosts, stopped=stopped)
        self.snapshots: dict[int, Snapshot] = {}
        self.backend = ""
        self.library: Literal["torch", "mindspore"] = "torch"
        self.on_device = self.runs_ahead = False
        """A call ends before its collective does; who waits for a device, or for a result, uses a CPU."""
        self.rendezvous = RendezvousWait(world)
        self.steps: dict[int, int] = {}
        self.store_port = ""  # of the job's store; empty: not known
        self._groups: dict[tuple[str, tuple[int, ...]], int] = {}
        self._numbers: dict[int, dict[int, int]] = {}
        """By rank: from its own number of a group to ours."""
        self._deaths: dict[int, Death] = {}
        self._unread: set[int] = set()
        """Ranks whose newest calls were not judged yet: ranks are looked at more often than judged."""
        self._alive_at: dict[int, float] = {}
        """When each rank was last seen alive."""
        self._suspicion = Suspicion()
        self.timeouts: dict[int, float] = {}
        """By our number of a group: seconds after which its backend gives up."""
        self.efforts: dict[int, tuple[float, str]] = {}
        """By rank: seconds since its processes got on, and by what they do; only where that is known."""
        self.overdue: Failure | None = None
        """Ranks that still work and that others have been waiting for: no failure, as long as their groups wait."""
        self.likely: Failure | None = None
        """What is reported if the job is ended from outside now."""
        self.repeats = CallRepeats()
        self._longest_phase = 0.0
        """Seconds between two signs of a rank, the most so far."""
        self._enqueued: set[int] = set()
        """Ranks that ended with collectives under way that were started in C++."""
        self._unwatched: set[int] = set()
        """Ranks whose hook has removed itself: their calls, and whether they end well, are not seen."""

    def take_event(self, rank: int, event: Mapping[str, Any], now: float) -> None:
        """An event of a rank. What is malformed is left out."""
        self.rendezvous.take_event(rank, event, now)
        if event.get("ev") == "joined":
            self.backend = str(event.get("backend", ""))
            self.library = "mindspore" if event.get("library") == "mindspore" else "torch"
            self.on_device = bool(_ON_DEVICE.search(self.backend))
            self.runs_ahead = self.on_device or self.library == "mindspore"
        elif event.get("ev") == "group":
            self._learn_group(rank, event)
        elif event.get("ev") == "hook" and event.get("gone"):
            self._unwatched.add(rank)

    def _learn_group(self, rank: int, event: Mapping[str, Any]) -> None:
        ranks, local_number, name = event.get("ranks"), event.get("gid"), str(event.get("name", ""))[:200]
        if not isinstance(local_number, int) or not isinstance(ranks, list):
            return
        members = tuple(r for r in ranks if isinstance(r, int) and 0 <= r < self.world)
        if len(members) != len(ranks):
            return
        number = self._groups.get((name, members))
        if number is None:
            number = self._groups[name, members] = len(self._groups) + (
                0 not in self._groups.values() and local_number != 0
            )
            desc = str(event.get("desc", ""))[:80]
            rank_list = ",".join(map(str, members[:16])) + (",..." if len(members) > 16 else "")
            label = "world" if local_number == 0 and len(members) == self.world else f"{desc or name} {rank_list}"
            self.detector.learn_group(number, label, members)
        self._numbers.setdefault(rank, {})[local_number] = number
        timeout = event.get("timeout")
        if isinstance(timeout, (int, float)) and 0 < timeout < math.inf:
            self.timeouts[number] = float(timeout)

    def _renumber(self, rank: int, fields: RankPage) -> None:
        """Gives the groups of the rank's calls the numbers that they have here."""
        numbers = self._numbers.get(rank, {})

        def renumber(group: int) -> int:
            return group if group >= P2P_GROUP_BASE else numbers.get(group, -1)

        fields["calls"] = [
            (renumber(call[0]), *call[1:7], STAGE if call[7] == "training" else call[7])
            for call in fields.get("calls", ())
            if call[0] >= P2P_GROUP_BASE or call[0] in numbers  # else the group's event could not be read
        ]
        fields["entered"] = {renumber(int(group)): seq for group, seq in fields.get("entered", {}).items()}
        if fields.get("state") == "collective":
            fields["group"] = renumber(fields["group"])
        if fields.get("stage") == "training":
            fields["stage"] = STAGE

    def take_snapshot(self, rank: int, fields: RankPage, now: float) -> None:
        """What an agent read of a rank's page. Raises: msgspec.ValidationError for what no agent sends."""
        self._renumber(rank, fields)
        enqueued = fields["state"] == "enqueued"
        fields.update(rank=rank, state="compute" if enqueued else fields["state"])
        enqueued |= self.runs_ahead and fields["state"] == "compute" and not fields.get("dead")
        if fields["state"] == "done" and fields.get("dead") in (UNKNOWN_END, "signal 9", "signal 15"):
            fields["dead"] = "exit status 0"  # it had nothing more to do with the others
        if rank in self._unwatched and fields.get("dead") == UNKNOWN_END:
            fields["dead"] = "exit status 0"
        died_at = fields.pop("died_at", now)
        self._take_effort(rank, fields.pop("rest", -1.0), fields.pop("effort", ""))
        if fields.get("dead"):
            found_at = self._deaths[rank].found_at if rank in self._deaths else died_at
            self._deaths[rank] = Death(
                self._alive_at.get(rank, 0.0), found_at, _cause_of_end(fields["dead"], fields.get("error", ""))
            )
        else:
            self._alive_at[rank] = now
        snapshot = msgspec.convert(fields, Snapshot)
        self._enqueued.discard(rank)
        if enqueued:
            snapshot = self._waiting(snapshot)
            if snapshot.dead and snapshot.state != "collective":
                self._enqueued.add(rank)
        self.repeats.add(snapshot.rank, snapshot.calls)
        snapshot = self._joined_to_last(snapshot)
        if snapshot.dead:
            snapshot = msgspec.structs.replace(snapshot, secondary=self._follows(snapshot))
        self.snapshots[rank] = snapshot
        self.steps[rank] = snapshot.step

    def _joined_to_last(self, snapshot: Snapshot) -> Snapshot:
        before = self.snapshots.get(snapshot.rank)
        if before is not None and before.stamp != snapshot.stamp:
            self._longest_phase = max(self._longest_phase, before.age)
        is_unread = snapshot.rank in self._unread
        self._unread.add(snapshot.rank)
        return joined_snapshots(before, snapshot, is_unread)

    def _take_effort(self, rank: int, rest: float, kind: str) -> None:
        if rest >= 0:
            self.efforts[rank] = rest, kind
        else:
            self.efforts.pop(rank, None)

    def of_all_ranks(self, rank: int, entries: Iterable[Entry]) -> list[Entry]:
        """Those of a rank's calls that were made in groups of all ranks, with our numbers of the groups."""
        numbers, groups = self._numbers.get(rank, {}), self.detector.groups
        known_calls = [entry._replace(group=numbers[entry.group]) for entry in entries if entry.group in numbers]
        return [entry for entry in known_calls if len(groups[entry.group][1]) == self.world]

    def _order_deaths(self) -> None:
        """Which ends follow from another's. With several hosts, the news of the first end may arrive last."""
        for rank in self._deaths:
            snap = self.snapshots[rank]
            if self._follows(snap) != snap.secondary:
                calls = snap.calls if rank in self._unread else ()
                self.snapshots[rank] = msgspec.structs.replace(snap, secondary=not snap.secondary, calls=calls)

    def _follows(self, snap: Snapshot) -> bool:
        """Whether the end of this rank follows from another's. Memory does not run out as another waits or breaks."""
        others = (
            death
            for rank, death in self._deaths.items()
            if rank != snap.rank and not (snap.oom and is_secondary(self.snapshots[rank].error))
        )
        # Of its control group, the kernel may have killed another process.
        by_others = snap.dead in (TERMINATED, UNKNOWN_END) or (snap.dead == KILLED and not snap.oom)
        return is_secondary(snap.error) or (by_others and follows(self._deaths[snap.rank], others))

    def _place_ended(self) -> None:
        """Of ranks that ended within a collective whose call came with their end: where they were, now it is known."""
        for rank in tuple(self._enqueued):
            snapshot = self._waiting(self.snapshots[rank])
            if snapshot.state == "collective":
                self.snapshots[rank] = msgspec.structs.replace(snapshot, calls=())
                self._enqueued.discard(rank)

    def _waiting(self, snapshot: Snapshot) -> Snapshot:
        """A rank that has started collectives in C++ waits for the first that others have not entered, if it rests."""
        resting = snapshot.age > QUIET and (self.runs_ahead or snapshot.cpu < 0.5 * snapshot.age)
        call = self.detector.open_call(snapshot.rank) if resting or snapshot.dead else None
        if call is None:
            return snapshot
        place = {name: getattr(call, name) for name in ("group", "seq", "op", "dtype", "numel", "root")}
        return msgspec.structs.replace(snapshot, state="collective", **place)

    def judge(
        self, now: float, late: float, stack: Callable[[int], str | None], unseen: Collection[int] = ()
    ) -> Failure | None:
        """What stopped the training, if anything did.

        ``stack``: the Python stacks of a rank, asked for when needed; empty where it cannot tell, None where it did not
        answer in time; it raises `StackPending` while the answer may still come. ``unseen``: ranks without any
        information, as no watch runs on their hosts.
        """
        if late_ranks := self.rendezvous.late():
            return self._never_joined(late_ranks, now, unseen)
        self._order_deaths()
        failure = self.detector.feed(self.snapshots, now, late) if self.snapshots else None
        self._unread.clear()
        self._place_ended()
        failure = self._plausible(failure, stack) if failure is not None else None
        self.overdue = (self.detector.overdue(self.patience) or self._all_ask()) if failure is None else None
        if self.overdue is not None and self._past_limit(self.overdue):
            failure, self.overdue = self.overdue, None
        self.likely = self._circle().judged(self._likely_hang()) if failure is None else None
        if (failure := self._circle().judged(failure)) is None:
            return None
        return msgspec.structs.replace(failure, stage="training") if failure.stage == STAGE else failure

    def _plausible(self, failure: Failure, stack: Callable[[int], str | None]) -> Failure | None:
        """The failure, as far as it is one in a program of the user; None where it is none yet."""
        if failure.kind not in OF_THE_PROCESS and self._unwatched.intersection(failure.culprit_ranks):
            return None
        if failure.kind in ("stopped", "frozen"):
            is_suspended = len(failure.culprit_ranks) == self.world > 1  # as by scontrol suspend
            return None if is_suspended and failure.seconds <= self.limit_of(failure) else failure
        if failure.certainty != "timeout":
            return failure
        all_apart = failure.kind != "network" and not failure.waiting_ranks
        if all_apart and not locked_out([self.snapshots[rank] for rank in failure.culprit_ranks]):
            return None
        if self.before_first_step(failure.culprit_ranks) and failure.seconds < STARTING * self.patience:
            return None
        if failure.kind != "network":
            resting = tuple(rank for rank in failure.culprit_ranks if self._rests(rank))
            if not resting:
                return None  # past its group's own limit it is overdue
            failure = msgspec.structs.replace(failure, culprit_ranks=resting)
        blamed = failure.culprit_ranks[:4]
        signs = tuple((rank, self.snapshots[rank].stamp if rank in self.snapshots else -1) for rank in blamed)
        if self._suspicion.signs != signs:
            self._suspicion = Suspicion(signs)
        return failure if self._suspicion.confirm(stack) else None

    def before_first_step(self, ranks: Iterable[int]) -> list[int]:
        """Those that have made no step yet, nor repeated a collective as a program without an optimizer does."""
        return [rank for rank in ranks if self.steps.get(rank, 0) == 0 and not self.repeats.goes_round(rank)]

    def _likely_hang(self) -> Failure | None:
        """Ranks that others have waited for far longer than is usual in this job.

        Likely, not certain. A rank that still works must have been waited for even longer.
        """
        usual = max(LAST_SECONDS, LAST_FACTOR * self._longest_phase)
        failure = self.detector.overdue(usual) or self.detector.apart(max(usual, self.patience))
        if failure is None or self._unwatched.intersection(failure.culprit_ranks):
            return None
        kinds = {rank: self.efforts.get(rank, (0.0, ""))[1] for rank in failure.culprit_ranks}
        quiet = [rank for rank, kind in kinds.items() if kind in QUIET_KINDS or FOR_RANK.match(kind)]
        if not failure.waiting_ranks and len(quiet) < len(kinds):
            return None  # each works, or waits for something outside of the job
        resting = tuple(rank for rank, kind in kinds.items() if not kind) if failure.waiting_ranks else ()
        if not resting and failure.seconds < max(LAST_WORK * self.patience, 10 * self._longest_phase):
            return None
        if self.before_first_step(failure.culprit_ranks) and failure.seconds < self.patience:
            return None
        return msgspec.structs.replace(
            failure,
            culprit_ranks=resting or failure.culprit_ranks,
            certainty="likely",
            stage="training",
            evidence=("The job was ended from outside during this wait: what was seen is likely, not certain.",),
        )

    def _all_ask(self) -> Failure | None:
        """All living ranks, where each is outside of any collective, and asks again and again."""
        failure = self.detector.apart(self.patience)
        kinds = {self.efforts.get(rank, (0.0, ""))[1] for rank in failure.culprit_ranks} if failure else set()
        return failure if kinds and kinds <= QUIET_KINDS and kinds != {""} else None

    def without_sign(self) -> dict[int, tuple[float, str]]:
        """Living ranks that wait for one that still works, or outside of every collective: for a peer, or at rest far
        longer than is usual in this job. By rank: the seconds, and for whom it waits; empty where nothing shows that.
        """
        long_waits = {}
        for rank, snapshot in self.snapshots.items():
            rest, kind = self.efforts.get(rank, (0.0, ""))
            waits = kind.startswith("waits for ") or (not kind and rest >= LEAST_REST)
            usual = LAST_SECONDS if kind else max(LAST_SECONDS, LAST_FACTOR * self._longest_phase)
            if not snapshot.dead and snapshot.state == "compute" and snapshot.age > usual and waits:
                long_waits[rank] = snapshot.age, kind.removeprefix("waits for ") if kind else ""
        if (overdue := self.overdue) is not None:
            waiting = {rank: self.snapshots[rank].age for rank in overdue.waiting_ranks if rank in self.snapshots}
            long_waits |= {rank: (age, rank_names(overdue.culprit_ranks)) for rank, age in waiting.items()}
        return long_waits

    def _rests(self, rank: int) -> bool:
        """Whether the processes of a rank have done nothing for a while; also where it is not known.

        Nor has one that waits for what ranks that wait in collectives were to do.
        """
        rest, kind = self.efforts.get(rank, (math.inf, ""))
        for_lock = not kind or FOR_RANK.fullmatch(kind)  # in the kernel; else it asks again, and gets on so
        return bool(self._circle().other_side(rank) or (for_lock and rest >= max(RESTING * self.patience, LEAST_REST)))

    def _circle(self) -> CircularWait:
        waits = {rank: kind for rank, (_, kind) in self.efforts.items()}
        return CircularWait(self.world, self.store_port, self.snapshots, waits)

    def limit_of(self, failure: Failure) -> float:
        """Seconds for which the ranks that wait may do so: the limits of their own groups."""
        if failure.kind == "never-joined":
            return self._longest_rendezvous()
        timeouts = [
            self.timeouts[group]
            for rank in failure.waiting_ranks
            if (group := self.snapshots[rank].group) in self.timeouts
        ]
        return min(timeouts, default=LONG_WORK * self.patience)

    def _past_limit(self, failure: Failure) -> bool:
        waited = max((self.snapshots[rank].age for rank in failure.waiting_ranks), default=0.0)
        return waited >= self.limit_of(failure) and not self._unwatched.intersection(failure.culprit_ranks)

    def host_cut(self, ranks: Mapping[str, Sequence[int]], now: float) -> Failure | None:
        """Hosts whose kernels acknowledge nothing any more, while ranks of other hosts wait for theirs.

        ``ranks``: by such a host. A connection that is lost while the training goes on is no failure.
        """
        lost = {rank for host_ranks in ranks.values() for rank in host_ranks}
        waiting = [
            snap
            for rank, snap in sorted(self.snapshots.items())
            if rank not in lost
            and not snap.dead
            and snap.state == "collective"
            and snap.effective > self.patience
            and lost.intersection(self.detector.members(snap.group))
        ]
        if not waiting:
            return None
        first = waiting[0]
        text = filled(
            "{0}: nothing comes from it any more, and its kernel acknowledges nothing", ", ".join(sorted(ranks))
        )
        return Failure(
            "silent",
            tuple(sorted(lost)),
            tuple(snap.rank for snap in waiting),
            certainty="evidence",
            stage="training",
            step=first.step,
            op=first.op,
            seq=first.seq,
            group=self.detector.groups.get(first.group, ("", ()))[0],
            seconds=round(max(snap.age for snap in waiting), 3),
            limit=self.patience,
            text=text,
        )

    def _never_joined(self, late_ranks: Sequence[int], now: float, unseen: Collection[int]) -> Failure | None:
        """Ranks that the others have been waiting for in the rendezvous.

        One that was not started is named, as is one that has come to rest; one that works, or that cannot be seen, when
        the others give up.
        """
        waited, limit = self.rendezvous.waited(now), self._longest_rendezvous()
        if waited < min(STARTING * self.patience, limit):
            return None
        named = [rank for rank in late_ranks if waited >= limit or self._will_not_come(rank)]
        failure = self.rendezvous.failure(named or late_ranks, unseen, now)
        self.overdue = None if named else failure
        return failure if named else None

    def look_for_late_ranks(self, pids: Mapping[int, int], local: Collection[int], now: float) -> list[dict[str, Any]]:
        """As `RendezvousWait.look`; returns events for the leader, of those of this host that will not come."""
        self.efforts.update(self.rendezvous.look(pids, local, now))
        if self.rendezvous.waited(now) < STARTING * self.patience:
            return []
        return self.rendezvous.new_events(rank for rank in local if self._will_not_come(rank))

    def _will_not_come(self, rank: int) -> bool:
        return rank in self.rendezvous.away or (rank in self.efforts and self._rests(rank))

    def _longest_rendezvous(self) -> float:
        return min(self.rendezvous.timeouts.values(), default=LONG_WORK * self.patience)
