"""One training: the ranks that met at one address, on this host and on others, from one start to the next."""

from __future__ import annotations

import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from doctor.analysis.outliers.peers import MIN_TIMES, OwnWork, WorkPart
from doctor.engine.sanitize import count_noun, rank_names
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.engine.texts import beginning, filled, joined
from doctor.engine.watch_summary import PaceComparison, RunPace
from doctor.smoke.model import UNKNOWN_HOST, Failure
from doctor.smoke.run.progress import innermost_first
from doctor.watch.fleet.follower import FollowingHost
from doctor.watch.fleet.leader_post import LeaderPost, OtherHost
from doctor.watch.fleet.meeting import Meeting, block_of, leads, starts_elsewhere
from doctor.watch.fleet.messages import FleetVerdict, Outbox, RankNews
from doctor.watch.long_wait import no_fault, program_line, quiet_sentence, unseen_sentence, wait_sentence
from doctor.watch.outcome import with_stacks
from doctor.watch.pace import Entry, StepPace, StepTimes
from doctor.watch.paths import PathRow, joined_paths
from doctor.watch.rank_process import CpuWaits, RankProcess
from doctor.watch.rendezvous_wait import late_rank
from doctor.watch.verdict import TrainingWatch

GATHER_SECONDS = 2.0
"""Seconds for the ranks of this host to show up, before those that did not are looked for on others."""
JUDGE_SHARE = 0.1
"""Of the time that may go into judging the ranks of many hosts."""
JUDGE_SECONDS = 0.1
"""Least seconds between two judgements of ranks of several hosts."""
CLOCK_SHARE = 0.02
"""Of a step's usual work, by which the clocks of two hosts may differ for the ranks' paces to be compared."""
SLOW_CHECKS: Mapping[WorkPart, str] = {"input": "smoke-input-slow", "compute": "smoke-rank-slow"}
MOST_LONG_WAITS = 32
DEVICE_WAITS = "Of the ranks' work their waits for input were compared alone: they may wait for their devices anywhere"
STACKS_SECONDS = 4.0
"""For the stacks of all ranks, after a verdict."""
MALFORMED = (msgspec.ValidationError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


class Training:
    """What is known of one training. ``failure``: what ended it, once that is decided here."""

    is_cut = False
    """Whether the job was ended from outside, or failed."""
    has_met = False
    """Whether the other hosts of the job are known."""

    def __init__(self, world: int, patience: float, host: str, began: float) -> None:
        self.host, self.began = host, began
        self.hosts: dict[int, str] = {}
        """Of each rank that was seen."""
        self._host_list = [UNKNOWN_HOST] * world
        self.watch = TrainingWatch(world, patience, self._host_list)
        self.processes: dict[int, RankProcess] = {}
        self.pace = StepPace()
        self.notes: dict[str, None] = {}
        self.errors: dict[int, str] = {}
        """By rank: the stack of the error that ended it, innermost call first."""
        self.times: dict[int, tuple[int, int, int]] = {}
        """By rank: nanoseconds of compute, in collectives, of input."""
        self.paths: dict[int, tuple[PathRow, ...]] = {}
        """By rank: its connections."""
        self.cpu_waits = CpuWaits()
        self.pace_report: PaceComparison | None = None
        """Its pace against that of earlier runs; None while it was not compared, or has too few steps."""
        self.failure: Failure | None = None
        self.likely: Failure | None = None
        """What the ranks waited for when the job was ended from outside."""
        self.without_sign: dict[int, tuple[float, str]] = {}
        """As `TrainingWatch.without_sign`, when the job was ended from outside."""
        self.meeting: Meeting | None = None
        self.is_on_one_host = True
        """Where no meeting is known: whether all ranks must be here; not where they meet by a file that hosts share."""
        self.post: LeaderPost | None = None
        self.follower: FollowingHost | None = None
        self._cpu_seconds: dict[int, float] = {}
        self._outbox: Outbox | None = Outbox()
        """For the leading host, which has to hear all; None where there is none."""
        self._judged_at = self._judge_took = 0.0
        self._wait_stacks: tuple[object, dict[int, str]] = None, {}
        """Of the present long wait: who waits for whom in what, and the stacks."""
        self._long_waits: dict[object, str] = {}
        """What was said of ranks that still work, by who they are and what the others wait in."""

    @property
    def world(self) -> int:
        return self.watch.world

    @property
    def over(self) -> bool:
        return all(process.ended for process in self.processes.values())

    @property
    def decides(self) -> bool:
        """Whether the verdict is this host's, and not the leader's."""
        return self.follower is None or self.follower.leaderless

    # ---- the ranks of this host

    def add_process(self, rank: int, process: RankProcess) -> None:
        process.rank = rank
        self.processes[rank] = process
        self._place(rank, self.host)

    def _place(self, rank: int, host: str) -> None:
        self.hosts[rank] = self._host_list[rank] = host

    def take_event(self, rank: int, event: Mapping[str, Any], now: float) -> None:
        """Of a rank of this host, or of another one."""
        self.watch.take_event(rank, event, now)
        if event.get("ev") == "error":
            self.errors[rank] = innermost_first(str(event.get("stack", ""))[:6000])
        if event.get("ev") == "hook":
            self.notes[filled("Rank {0}: the hook: {1}", rank, beginning(str(event.get("text", "")), 300))] = None

    def take_own(self, rank: int, process: RankProcess, events: Sequence[Mapping[str, Any]], now: float) -> None:
        for event in events:
            self.take_event(rank, event, now)
        fields = process.snapshot(now, {other.pid: number for number, other in self.processes.items()})
        entries, process.timed.entries = process.timed.entries, []
        steps, process.timed.steps = process.timed.steps, []
        share = process.quota.share(other.quota for other in self.processes.values())
        cpu_wait, cpu_seconds = process.cpu_wait * (1 - share), process.cpu_seconds * (1 - share)
        self.times[rank], self.cpu_waits.shares[rank] = process.times(), cpu_wait
        if fields is not None and process.ended:
            fields["died_at"] = process.died_at
        rows = process.paths.take_rows() if fields is not None else ()
        self.paths[rank] = rows or self.paths.get(rank, ())
        if self._outbox is not None:
            more = {"times": self.times[rank], "cpu_wait": cpu_wait, "cpu_seconds": cpu_seconds}
            status = None if fields is None else {**fields, **more, "paths": rows}
            self._outbox.add(rank, events, status, entries, steps)
        if self.follower is not None and fields is not None and fields.get("dead"):
            self.follower.flush()
        if fields is not None:
            self._take_snapshot(rank, fields, entries, now)
        self._take_steps(rank, steps, cpu_seconds)

    def _take_steps(self, rank: int, steps: Sequence[StepTimes], cpu_seconds: float) -> None:
        if steps and self.decides:
            self.pace.add_times(rank, steps, cpu_seconds)
            self.pace.split_steps()

    def run_pace(self, newest: int = 0) -> RunPace:
        """What the usual step of each rank consists of. ``newest``: as `RunParts.usual`.

        What runs on an accelerator is waited for anywhere: there is no telling its work and its transfers apart.
        """
        paths = joined_paths({rank: (self.hosts.get(rank, UNKNOWN_HOST), rows) for rank, rows in self.paths.items()})
        run = self.pace.parts.usual(self.hosts, paths, newest)
        if not self.watch.on_device:
            return run
        ranks = {
            rank: msgspec.structs.replace(pace, compute=0.0, wait=0.0, network=0.0, unsplit=pace.step - pace.input)
            for rank, pace in run.ranks.items()
        }
        return msgspec.structs.replace(run, ranks=ranks)

    def _take_snapshot(self, rank: int, fields: dict[str, object], entries: Sequence[Entry], now: float) -> None:
        try:
            self.watch.take_snapshot(rank, fields, now)
        except MALFORMED:
            self.notes[filled("Rank {0}: what it wrote cannot be read", rank)] = None
            return
        self.pace.add(rank, self.watch.of_all_ranks(rank, entries))

    # ---- other hosts

    def meet(self, meeting: Meeting | None, now: float) -> None:
        """Where the other hosts are met; None: there are none, or it is not known where. To be called until `has_met`.

        Where the launcher does not say how many ranks are on this host, they are waited for a while.
        """
        elsewhere = False if meeting is None else starts_elsewhere(meeting.context, self.world)
        if elsewhere is None and now - self.began < GATHER_SECONDS and len(self.processes) < self.world:
            return
        self.has_met = True
        outbox, self._outbox = self._outbox or Outbox(), None
        if meeting is None or elsewhere is False or len(self.processes) == self.world:
            return
        self.meeting = meeting
        block = block_of(meeting.context, self.world, self.processes)
        if leads(meeting.context, {*block, *self.processes}):
            try:
                self.post = LeaderPost(meeting, self.world)
            except OSError as error:
                self.notes[filled("{0}: no port for the other hosts: {1}", self.host, error.strerror or error)] = None
            return
        self._outbox, local_world = outbox, meeting.context.local_world_size or -1
        self.follower = FollowingHost(meeting, self.world, min(self.processes), local_world, outbox)

    def exchange(self, now: float) -> None:
        """Takes what other hosts have sent, or answers the leader."""
        if self.post is not None:
            for host, news in self.post.take_news(now, list(self.processes)):
                self._take_news(host, news, now)
        if self.follower is not None:
            while self.follower.orders:
                ranks = self.follower.orders.popleft()
                their_processes = {rank: self.processes[rank] for rank in ranks if rank in self.processes}
                self.follower.answer(
                    {rank: (process.stack() or "")[: 1 << 16] for rank, process in their_processes.items()}
                )
            if self.over and self.processes:
                self.follower.finish()

    def _take_news(self, host: OtherHost, news: RankNews, now: float) -> None:
        self._place(news.rank, host.name)
        for event in news.events:
            if event.get("ev") != "late" or self.host_names().get(late_rank(event)) == host.name:
                self.take_event(news.rank, event, now)
        offset = host.clock.offset(now)
        if news.moment is None:
            self._take_steps(news.rank, news.steps, self._cpu_seconds.get(news.rank, 0.0))
            return
        fields = {**msgspec.structs.asdict(news.moment), "calls": [list(_row(call)) for call in news.moment.calls]}
        times = fields.pop("times")
        if times is not None:
            self.times[news.rank] = times
        self.cpu_waits.shares[news.rank] = fields.pop("cpu_wait")
        self._cpu_seconds[news.rank] = fields.pop("cpu_seconds")
        self.paths[news.rank] = fields.pop("paths") or self.paths.get(news.rank, ())
        died_at = fields.pop("died_at")
        if fields["dead"]:
            fields["died_at"] = died_at - offset if offset is not None and died_at else now
        entries = [] if offset is None else [entry.shifted(-offset) for entry in news.entries]
        self._take_snapshot(news.rank, fields, entries, now)
        self._take_steps(news.rank, news.steps, self._cpu_seconds[news.rank])

    # ---- verdicts

    def judge(self, now: float, late: float) -> None:
        """Decides, where it is this host that does, whether something has stopped the training."""
        if self.failure is not None or not (self.has_met or self.over):
            return
        self._look_for_late_ranks(now)
        if not self.decides:
            return
        several = self.post is not None or self.follower is not None
        if several and now - self._judged_at < max(JUDGE_SECONDS, self._judge_took / JUDGE_SHARE):
            return
        began, self._judged_at = time.monotonic(), now
        unseen = set(range(self.world)).difference(self.host_names())
        self.failure = self.watch.judge(now, late, self._stack, unseen)
        if self.failure is None and self.post is not None and (cut := self.post.cut_ranks(now)):
            self.failure = self.watch.host_cut(cut, now)
        self._keep_stacks(self.watch.likely)
        self._judge_took = time.monotonic() - began

    def _look_for_late_ranks(self, now: float) -> None:
        if self.processes and self.watch.rendezvous.late():
            local = [rank for rank, host in self.host_names().items() if host == self.host]
            pids = {rank: process.pid for rank, process in self.processes.items()}
            events = self.watch.look_for_late_ranks(pids, local, now)
            if events and self._outbox is not None:
                self._outbox.add(min(pids), events, None, ())

    def _keep_stacks(self, likely: Failure | None) -> None:
        """The stacks of this host's ranks, once for each long wait: who ends the job may end all of them at once."""
        place = None if likely is None else (likely.culprit_ranks, likely.group, likely.seq)
        if place != self._wait_stacks[0]:
            running = {rank: process for rank, process in self.processes.items() if not process.ended}
            self._wait_stacks = (
                place,
                {rank: process.stack() or "" for rank, process in running.items()} if place else {},
            )

    def end_from_outside(self) -> None:
        """The job is about to be ended: what its ranks waited for at the last look is kept, with their stacks."""
        if self.failure is None and self.decides and self.watch.likely is not None:
            self.likely = with_stacks(self.watch.likely, self._wait_stacks[1])
        elif self.decides:
            self.without_sign = self.watch.without_sign()

    def host_names(self) -> dict[int, str]:
        """The host of each rank that was seen, and of those that must be on the same hosts."""
        names = dict(self.hosts)
        if self.meeting is None:
            return {**dict.fromkeys(range(self.world), self.host), **names} if self.is_on_one_host else names
        for rank in block_of(self.meeting.context, self.world, self.processes):
            names.setdefault(rank, self.host)
        return {**(self.post.blocks(self.world, names) if self.post is not None else {}), **names}

    def _stack(self, rank: int) -> str | None:
        process = self.processes.get(rank)
        if process is not None:
            return process.stack()
        return self.post.take_stack(rank) if self.post is not None else ""

    def long_wait(self) -> str:
        """Once for each wait: who waits for ranks that still work; empty without one."""
        failure = self.watch.overdue
        if failure is None or self.failure is not None:
            return ""
        place = (failure.culprit_ranks, failure.group, failure.seq)
        if place in self._long_waits or len(self._long_waits) >= MOST_LONG_WAITS:
            return ""
        working = [rank for rank in failure.culprit_ranks if self.watch.efforts.get(rank, (0.0, ""))[1]]
        if not working:
            return ""
        rank = working[0]
        stack = self.processes[rank].stack() if rank in self.processes else ""
        names = self.host_names()
        hosts = ", ".join(sorted({names.get(culprit, UNKNOWN_HOST) for culprit in failure.culprit_ranks}))
        effort = self.watch.efforts[rank][1]
        limit = self.watch.limit_of(failure)
        sentence = wait_sentence(failure, hosts, effort, program_line(stack or ""), limit)
        self._long_waits[place] = sentence
        return sentence

    def headline(self, failure: Failure) -> str:
        """Such as ``smoke-rank-blocked: rank 3 on w1``."""
        return self._headline(FAILURE_KINDS[failure.kind].check, failure.culprit_ranks)

    def slow_headlines(self, slow: Mapping[WorkPart, Collection[int]]) -> list[str]:
        """The same of slow ranks, by the part that is longer."""
        return [self._headline(SLOW_CHECKS[part], ranks) for part, ranks in slow.items() if ranks]

    def _headline(self, check: str, ranks: Collection[int]) -> str:
        hosts = sorted(set(map(self.host_names().get, ranks, [UNKNOWN_HOST] * len(ranks))))
        who = f"{rank_names(ranks)} on {', '.join(hosts)}" if hosts else "not known which rank"
        return filled("{0}: {1}", check, who)

    def verdict(self) -> str:
        """The headline of what was found, as far as something stopped the training; else empty."""
        likely = filled("likely {0}", self.headline(self.likely)) if self.likely else ""
        return self.headline(self.failure) if self.failure else likely

    def progress_line(self) -> str:
        """How far it is: ranks, step, pace, seconds; and the headline of what has stopped it."""
        step, seconds = min(self.watch.steps.values(), default=0), time.monotonic() - self.began
        pace = filled(", {0} steps/s", f"{step / seconds:.2f}") if step else ""
        hosts = len(set(self.hosts.values()))
        on_hosts = filled(" on {0} hosts", hosts) if hosts > 1 else ""
        answered, world = len(self.hosts), count_noun(self.world, "rank")
        line = filled("{0} of {1}{2}, step {3}{4}, {5} s", answered, world, on_hosts, step, pace, f"{seconds:.0f}")
        return joined("; ", filter(None, (line, self.verdict())))

    def long_waits(self) -> list[str]:
        return list(self._long_waits.values())

    def stacks(self) -> dict[int, str]:
        """By rank: its Python stacks, of those that live; the tracebacks of those that ended by an error."""
        if self.post is not None:
            self.post.request_stacks([rank for rank in self.hosts if rank not in self.processes])
        snapshots = self.watch.snapshots
        stacks = {rank: text for rank, text in self.errors.items() if rank in snapshots and snapshots[rank].error}
        for rank, process in sorted(self.processes.items()):
            if not process.ended and (stack := process.stack()):
                stacks[rank] = stack
        limit = time.monotonic() + STACKS_SECONDS
        while self.post is not None and time.monotonic() < limit:
            self.exchange(time.monotonic())
            if all(rank in host.stacks for host in self.post.hosts.values() for rank in host.requested):
                break
            time.sleep(0.02)
        others = self.post.hosts.values() if self.post is not None else ()
        return {**stacks, **{rank: stack for host in others for rank, stack in host.stacks.items() if stack}}

    def comparable_work(self) -> dict[int, OwnWork]:
        """By rank: its own work in each step; only of this host where clocks cannot be compared.

        Empty where ranks waited for a CPU, and it is not known how long in a step.
        """
        work = self.pace.work(self.watch.on_device)
        if not self.cpu_waits.are_known_in(work):
            return {}
        if self.post is None or not work:
            return work
        now = time.monotonic()
        errors = [host.clock.error(now) for host in self.post.hosts.values() if host.ranks & set(work)]
        usual = statistics.median([time for steps in work.values() for time in steps.seconds] or [0.0])
        if all(error is not None and error <= CLOCK_SHARE * usual for error in errors):
            return work
        self.notes["The paces of different hosts were not compared: their clocks are not known well enough"] = None
        return {rank: steps for rank, steps in work.items() if rank in self.processes}

    def usual_work(self, newest: int) -> dict[int, float]:
        """By rank: seconds of its own work in the middle one of its newest steps."""
        work = self.comparable_work()
        return {rank: statistics.median(steps.seconds[-newest:]) for rank, steps in work.items() if steps.compute}

    def sentences(self) -> list[str]:
        """What else a report has to say: ranks without any sign, and hosts that were not reached."""
        texts = [*self.notes, *self._long_waits.values()]
        quiet = quiet_sentence(self.without_sign, self.watch.store_port)
        texts += filter(None, (self.cut_sentence(), quiet, self.busy_sentence()))
        if self.post is not None:
            texts += self.post.sentences()
        if self.follower is not None and self.follower.leaderless:
            texts.append(filled("{0} reports for itself: {1}.", self.host, self.follower.reason()))
        return texts

    def busy_sentence(self) -> str:
        """How far the paces of the ranks were not compared; empty where they were, or there were too few steps."""
        ranks = self.cpu_waits.busy_ranks()
        work = self.pace.work() if ranks or self.watch.on_device else {}
        if all(len(steps.compute) < MIN_TIMES for steps in work.values()):
            return ""
        return self.cpu_waits.sentence(work) if ranks else DEVICE_WAITS

    def unseen_sentence(self) -> str:
        """Which ranks were not seen; empty where all were."""
        return unseen_sentence([rank for rank in range(self.world) if rank not in self.hosts])

    def unjudged(self) -> list[int]:
        """Ranks that had not completed a first step when the job was cut."""
        return sorted(self.watch.before_first_step(self.hosts)) if self.is_cut else []

    def cut_sentence(self) -> str:
        """Up to where a job was judged that ended early; empty for another one, and where nothing was judged."""
        if not self.is_cut or self.unjudged():
            return ""
        reached = self.watch.repeats.reached(self.watch.steps)
        return filled("The job ended early: what its ranks called and waited for was judged up to {0}.", reached)

    def no_fault(self) -> str:
        """What is said where nothing was found: of ranks without a step, that nothing was judged."""
        quiet = quiet_sentence(self.without_sign, self.watch.store_port)
        return no_fault(self.host, self.unjudged(), self.unseen_sentence(), quiet, self.cut_sentence())

    # ---- the end

    def announce(self, verdict: FleetVerdict) -> None:
        if self.post is not None:
            self.post.announce(verdict)

    def close(self) -> None:
        if self.post is not None:
            self.post.close()
        if self.follower is not None:
            self.follower.close()


def _row(call: msgspec.Struct) -> Sequence[Any]:
    return [getattr(call, name) for name in call.__struct_fields__]
