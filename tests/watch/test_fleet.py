"""Hosts of one watched job that meet over real sockets: who is let in, whose word counts, and what is sent."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from doctor.analysis.outliers.peers import stragglers_by_part
from doctor.environment.job_context import JobContext
from doctor.smoke.model import MOST_CALLS, Collective
from doctor.smoke.rendezvous.link import Hello
from doctor.smoke.rendezvous.reachability import attempt_connection
from doctor.watch.fleet import sockets
from doctor.watch.fleet.follower import FollowingHost
from doctor.watch.fleet.leader_post import KEPT_SECONDS, HostClock, LeaderPost
from doctor.watch.fleet.meeting import Meeting, block_of, find_meeting, leads, meets_on_loopback, starts_elsewhere
from doctor.watch.fleet.messages import PROTOCOL, FleetVerdict, Outbox, RankNews, WatchedMoment
from doctor.watch.pace import Entry, StepTimes
from doctor.watch.rank_process import QuotaWait
from doctor.watch.suspicion import StackPending
from doctor.watch.training import Training

LIMIT = 30.0
HERE = JobContext(leader_addresses=("127.0.0.1",), leader_address_source="MASTER_ADDR", launcher_host_name="w1")
ROWS = {"stamp": 7, "state": "compute", "stage": "training", "step": 3}


def until(condition: Callable[[], Any]) -> Any:
    """What the condition returns once it is true."""
    deadline = time.monotonic() + LIMIT
    while not (value := condition()):
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.005)
    return value


class Job:
    """A leading host of four ranks in all, two of them its own, and the other hosts that tests add."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self.meeting = Meeting(HERE, bytes(range(32)))
        self.post = LeaderPost(self.meeting, 4)
        stack.callback(self.post.close)
        self._stack = stack
        self.news: list[tuple[str, RankNews]] = []

    def follower(self, host: str = "w1", world: int = 4, rank: int = 2) -> FollowingHost:
        context = msgspec.structs.replace(HERE, launcher_host_name=host)
        follower = FollowingHost(self.meeting._replace(context=context), world, rank, 2, Outbox())
        self._stack.callback(follower.close)
        return follower

    def take_news(self) -> list[tuple[str, RankNews]]:
        self.news += [(host.name, news) for host, news in self.post.take_news(time.monotonic(), [0, 1])]
        return self.news

    def raw(self, key: bytes | None = None, **values: Any) -> Any:
        """A connection without a follower behind it, or why there is none."""
        hello = Hello(**{"rank": 2, "world": 4, "host": "w1", "pid": 1, "version": PROTOCOL, "use": "lines", **values})
        link = attempt_connection(HERE, key or self.meeting.key, hello)
        if isinstance(link, socket.socket):
            self._stack.callback(link.close)
        return link


@pytest.fixture
def job() -> Iterator[Job]:
    with contextlib.ExitStack() as stack:
        yield Job(stack)


def test_news_come_in_order_and_the_verdict_goes_back(job: Job) -> None:
    follower = job.follower()
    follower.outbox.add(2, [{"ev": "rank", "rank": 2, "world": 4}], None, [])
    until(job.take_news)
    follower.outbox.add(2, [], ROWS, [Entry(0, 1, 3, 55)])
    until(lambda: len(job.take_news()) > 1)
    events = [(host, news.events) for host, news in job.news]
    assert events == [("w1", ({"ev": "rank", "rank": 2, "world": 4},)), ("w1", ())]
    moment = job.news[1][1].moment
    assert moment and (moment.stamp, moment.step, job.news[1][1].entries) == (7, 3, (Entry(0, 1, 3, 55),))
    assert job.post.anyone_lives and follower.connected and not follower.leaderless
    follower.finish()
    until(lambda: job.take_news() and not job.post.anyone_lives)
    job.post.announce(FleetVerdict(10, "smoke-rank-blocked: rank 2 on w1\x1b[31m", "w0: stdout", True))
    verdict = until(lambda: follower.verdict)
    assert (verdict.code, verdict.headline, verdict.hang) == (10, "smoke-rank-blocked: rank 2 on w1", True)


def test_the_clock_of_the_other_host_is_measured(job: Job) -> None:
    job.follower()
    host = until(lambda: job.take_news() or next(iter(job.post.hosts.values()), None))
    until(lambda: job.take_news() or host.clock.offset(time.monotonic()) is not None)
    assert abs(host.clock.offset(time.monotonic())) <= host.clock.error(time.monotonic()) < LIMIT


def test_stacks_are_asked_for_and_answered(job: Job) -> None:
    follower = job.follower()
    follower.outbox.add(2, [{"ev": "rank"}], None, [])
    until(job.take_news)
    with pytest.raises(StackPending):
        job.post.take_stack(2)
    assert until(lambda: follower.orders and follower.orders.popleft()) == (2,)
    follower.answer({2: "File train.py", 0: "of a rank that is not its own"})

    def stack() -> str | None:
        job.take_news()
        with contextlib.suppress(StackPending):
            return job.post.take_stack(2)
        return None

    assert until(stack) == "File train.py"


def test_a_host_speaks_for_its_own_ranks_alone(job: Job) -> None:
    first, second = job.follower("w1"), job.follower("w2")
    first.outbox.add(2, [{"ev": "rank"}], None, [])
    until(job.take_news)
    second.outbox.add(2, [{"ev": "error", "text": "I am rank 2"}], None, [])
    second.outbox.add(0, [{"ev": "error", "text": "I am the leader's"}], None, [])
    second.outbox.add(99, [{"ev": "rank"}], None, [])
    second.outbox.add(3, [{"ev": "rank"}], None, [])
    until(lambda: len(job.take_news()) > 1)
    assert [(host, news.rank) for host, news in job.news] == [("w1", 2), ("w2", 3)]
    assert "Rank 2 was reported by w2 too, which was not taken in" in job.post.sentences()


def test_a_stranger_is_not_let_in(job: Job) -> None:
    assert job.raw(key=bytes(32)).reason in ("refused", "stranger")
    job.take_news()
    assert not job.post.hosts


@pytest.mark.parametrize(
    ("values", "why"), [({"world": 8}, "its world size is 8"), ({"version": "watch 0"}, "another version of doctor")]
)
def test_a_host_of_another_job_or_version_is_refused_and_told_why(job: Job, values: dict[str, Any], why: str) -> None:
    link = job.raw(**values)
    until(lambda: job.take_news() or job.post.notes)
    assert why in link.recv(1000).decode() and not job.post.hosts
    assert why in job.post.sentences()[0]


@pytest.mark.parametrize(
    "line",
    [b"{}garbage", b'{"news":{"rank":2,"moment":{"stamp":"x"}}}', b'{"news":{"rank":1e99}}', b"[" * 5000, b"\xff\xfe"],
)
def test_a_host_that_sends_what_no_watch_sends_is_heard_no_more(job: Job, line: bytes) -> None:
    link = job.raw()
    link.sendall(line + b"\n")
    until(lambda: job.take_news() or job.post.notes)
    assert "it sent what no watch sends" in next(iter(job.post.notes))
    assert not job.news and not job.post.anyone_lives


def test_a_host_that_floods_is_heard_no_more(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be looked at is bounded in bytes too, not in lines alone."""
    monkeypatch.setattr(sockets, "MOST_WAITING_BYTES", 10_000)
    link = job.raw()
    until(lambda: job.take_news() or job.post.hosts)
    with contextlib.suppress(OSError):  # the leader closes it
        for _ in range(1000):
            link.sendall(b'{"over": false}' + b" " * 1000 + b"\n")
    until(lambda: job.post.hosts["w1"].link.ended)


def test_a_host_whose_watch_ends_is_not_known_from_then_on_and_not_cut(job: Job) -> None:
    follower = job.follower()
    follower.outbox.add(2, [{"ev": "rank"}], None, [])
    until(job.take_news)
    follower.close()
    until(lambda: job.take_news() and job.post.hosts["w1"].state == "closed")
    assert job.post.cut_ranks(time.monotonic() + 100) == {}
    assert job.post.sentences() == ["w1: its watch has ended; from then on nothing is known of rank 2."]


def test_a_host_that_comes_again_tells_all_once_more(job: Job) -> None:
    follower = job.follower()
    follower.outbox.add(2, [{"ev": "rank"}], ROWS, [])
    until(job.take_news)
    job.post.hosts["w1"].link.wake_and_close(0.0)
    until(lambda: len(job.take_news()) > 1)
    assert [news.events for _, news in job.news] == [({"ev": "rank"},)] * 2
    assert job.news[1][1].moment is not None and list(job.post.hosts) == ["w1"]


def test_what_a_rank_tells_before_its_host_has_met_the_leader_is_heard_too(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that has begun, and does not come to the rendezvous, tells nothing more."""
    monkeypatch.setattr("doctor.watch.training.leads", lambda context, ranks: False)
    now = time.monotonic()
    training = Training(4, 10.0, "w1", now)
    process = SimpleNamespace(
        snapshot=lambda *_: None, timed=SimpleNamespace(entries=[], steps=[]), times=lambda: (0, 0, 0), ended=False,
        cpu_wait=0.0, cpu_seconds=0.0, quota=QuotaWait(), pid=0,
    )  # fmt: skip
    training.add_process(2, process)  # type: ignore[arg-type]
    training.take_own(2, process, [{"ev": "rank", "rank": 2}], now)  # type: ignore[arg-type]
    context = msgspec.structs.replace(HERE, launcher_host_name="w1", rank=2, world_size=4, local_world_size=2)
    training.meet(job.meeting._replace(context=context), now)
    try:
        until(job.take_news)
    finally:
        training.close()
    assert job.news[0] == ("w1", RankNews(2, ({"ev": "rank", "rank": 2},)))


@pytest.mark.parametrize(("teller", "named"), [("w1", (3,)), ("w0", ())])
def test_of_late_ranks_their_own_host_alone_is_believed(teller: str, named: tuple[int, ...]) -> None:
    training = Training(4, 1.0, "here", 0.0)
    training.has_met = True
    training.hosts = {2: "w1", 3: "w1", 0: "w0", 1: "w0"}
    for rank in (0, 1, 2):
        training.take_event(rank, {"ev": "rank"}, 0.0)
    host = SimpleNamespace(name=teller, clock=SimpleNamespace(offset=lambda _: None))
    late = {"ev": "late", "rank": 3, "missing": True}
    sender = 2 if teller == "w1" else 0
    training.meeting = SimpleNamespace(context=msgspec.structs.replace(HERE, rank=0, world_size=4, local_world_size=2))  # type: ignore[assignment]
    training._take_news(host, RankNews(sender, (late, {"ev": "late", "rank": [3]})), 0.0)  # type: ignore[arg-type]
    training.judge(9.0, 0.0)
    assert (training.failure.culprit_ranks if training.failure else ()) == named


def test_without_a_leader_a_host_decides_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("doctor.watch.fleet.follower.UNREACHED_SECONDS", 0.2)
    follower = FollowingHost(Meeting(HERE, b"nobody listens here" * 2), 4, 2, 2, Outbox())
    try:
        until(lambda: follower.leaderless)
        assert until(follower.reason).startswith("MASTER_ADDR=127.0.0.1 ")
    finally:
        follower.close()


@pytest.mark.parametrize(("environ", "accused"), [({"MASTER_ADDR": "127.0.0.1"}, (2, 3)), ({}, ())])
def test_ranks_that_may_be_on_another_host_are_not_named_for_not_joining(
    environ: dict[str, str], accused: tuple[int, ...]
) -> None:
    """Those that meet by a file that hosts share have no address: where they are nobody knows."""
    training = Training(4, 1.0, "here", 0.0)
    training.is_on_one_host = meets_on_loopback({**environ, "MASTER_PORT": "29500"}, 0, 4, "")
    training.processes = {rank: SimpleNamespace(ended=False, pid=0) for rank in (0, 1)}  # type: ignore[dict-item]
    for rank in (0, 1):
        training.hosts[rank] = "here"
        training.take_event(rank, {"ev": "rank"}, 0.0)
    training.meet(None, 0.0)
    training.judge(31.0, 0.0)
    assert training.failure and training.failure.kind == "never-joined"
    assert training.failure.culprit_ranks == accused


def test_what_waits_to_be_sent_stays_bounded_and_keeps_the_newest() -> None:
    outbox = Outbox()
    for seq in range(1, 5001):
        call = [0, seq, "all_reduce", "float32", 8, -1, seq, "training"]
        outbox.add(1, [], {**ROWS, "stamp": seq, "calls": [call], "entered": {"0": seq}}, [Entry(0, seq, seq, seq)])
    (news,) = outbox.take()
    assert news.moment and len(news.moment.calls) == MOST_CALLS and news.moment.calls[-1].seq == 5000
    assert news.moment.entered == {0: 5000} and len(news.entries) == 4 * MOST_CALLS
    assert outbox.take() == []
    outbox.start_again()
    (again,) = outbox.take()
    assert again.moment and (again.moment.stamp, again.moment.calls, again.moment.entered) == (5000, (), {0: 5000})


def test_old_pings_are_forgotten_and_the_quickest_counts() -> None:
    clock = HostClock()
    assert clock.offset(0.0) is None
    clock.add(1.0, 1.4, 51.3)
    clock.add(2.0, 2.1, 52.05)
    clock.add(3.0, 3.5, 53.0)
    assert clock.offset(4.0) == pytest.approx(50.0) and clock.error(4.0) == pytest.approx(0.05)
    assert clock.offset(4.0 + KEPT_SECONDS) is None


# ---- where they meet

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.1",
    "MASTER_PORT": "29500",
}
SRUN = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "10.0.0.[1-2]",
}
MPIRUN = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "prterun-7",
    "MASTER_ADDR": "10.0.0.1",
}


def torchrun(rank: int) -> dict[str, str]:
    return {**TORCHRUN, "RANK": str(rank), "LOCAL_RANK": str(rank % 2), "GROUP_RANK": str(rank // 2)}


def srun(rank: int) -> dict[str, str]:
    return {**SRUN, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2), "SLURM_NODEID": str(rank // 2)}


def mpirun(rank: int) -> dict[str, str]:
    return {**MPIRUN, "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % 2)}


@pytest.mark.parametrize("launcher", [torchrun, srun, mpirun])
def test_all_hosts_of_a_launch_find_one_meeting(launcher: Callable[[int], dict[str, str]]) -> None:
    meetings = [find_meeting(launcher(rank), rank, 4, "", 0, 0) for rank in (0, 3)]
    first, second = meetings
    assert first and second and first.key == second.key
    assert first.context.leader_addresses == ("10.0.0.1",)
    assert starts_elsewhere(first.context, 4) is True
    assert [list(block_of(meeting.context, 4)) for meeting in (first, second)] == [[0, 1], [2, 3]]
    assert [list(block_of(meeting.context, 4, [0, 2])) for meeting in (first, second)] == [[], []]
    assert leads(first.context, [0, 1]) and not leads(second.context, [2, 3])


def test_hosts_may_have_different_numbers_of_ranks() -> None:
    environ = {**torchrun(1), "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1"}
    meeting = find_meeting(environ, 1, 3, "", 0, 0)
    assert meeting and list(block_of(meeting.context, 3)) == [1, 2]


def test_each_start_of_the_ranks_has_a_meeting_of_its_own() -> None:
    secret = {**torchrun(3), "DOCTOR_SMOKE_TOKEN": "s3cret"}
    same = torchrun(3)
    starts = [(same, 0, 0), (same, 1, 0), (same, 0, 7), (secret, 0, 0)]
    meetings = [find_meeting(environ, 3, 4, "", generation, user) for environ, generation, user in starts]
    assert len({meeting.key for meeting in meetings if meeting}) == 4


def test_hosts_meet_though_torchrun_counts_other_restarts_on_each() -> None:
    """The agent whose rank failed counts one; those that follow it into the next start count none."""
    restarted = {**torchrun(3), "TORCHELASTIC_RESTART_COUNT": "1"}
    meetings = [find_meeting(environ, 3, 4, "", 1, 0) for environ in (torchrun(3), restarted)]
    assert meetings[0] and meetings[1] and meetings[0].key == meetings[1].key


def test_a_program_that_numbers_its_ranks_itself_meets_at_the_address_that_it_names() -> None:
    environ = {"PATH": "/usr/bin", "LOCAL_WORLD_SIZE": "2"}
    meeting = find_meeting(environ, 3, 4, "10.0.0.1:29400", 0, 0)
    assert meeting and (meeting.context.rank, meeting.context.leader_addresses) == (3, ("10.0.0.1",))
    assert meeting == find_meeting({}, 3, 4, "10.0.0.1:29400", 0, 0) or starts_elsewhere(meeting.context, 4)


@pytest.mark.parametrize("address", ["127.0.0.1:29400", "localhost:29400", "[::1]:29400"])
def test_ranks_that_meet_on_the_loopback_have_no_other_hosts(address: str) -> None:
    assert find_meeting({}, 1, 2, address, 0, 0) is None


# ---- the pace of ranks on hosts whose clocks differ

AHEAD = 4000.0
"""Seconds that the other host's clock is ahead."""


def two_hosts(round_trip: float, steps: int = 40, cpu_wait: float = 0.0) -> Training:
    """Rank 0 here works 50 ms in each step, rank 1 on the other host 150 ms. ``cpu_wait``: its share without a CPU."""
    host = SimpleNamespace(name="w1", clock=HostClock(), ranks={1}, local_world=1)
    now = time.monotonic()
    host.clock.add(now - round_trip, now, now - round_trip / 2 + AHEAD)
    training = Training(2, 10.0, "w0", now)
    training.post = SimpleNamespace(hosts={"w1": host}, sentences=list)  # type: ignore[assignment]
    group = {"ev": "group", "gid": 0, "name": "0", "ranks": [0, 1]}
    for rank in (0, 1):
        training.take_event(rank, group, now)
    training.hosts[0] = "w0"
    training.processes[0] = SimpleNamespace()  # type: ignore[assignment]
    for step in range(steps):
        meets = now + 0.15 * step
        for rank, at in ((0, meets + 0.05), (1, meets + 0.15 + AHEAD)):
            entry = Entry(0, step + 1, step, round(at * 1e6) % 2**32)
            call = [0, step + 1, "all_reduce", "float32", 8, -1, step, "training"]
            fields = {"stamp": step + 1, "state": "compute", "stage": "training", "step": step}
            if rank == 0:
                training._take_snapshot(0, {**fields, "calls": [call], "entered": {0: step + 1}}, [entry], now)
                continue
            moment = WatchedMoment(**fields, calls=(Collective(*call),), entered={0: step + 1})
            moment = msgspec.structs.replace(moment, cpu_wait=cpu_wait)
            training._take_news(host, RankNews(1, (), moment, (entry,)), now)  # type: ignore[arg-type]
    return training


def test_the_slower_rank_of_two_hosts_is_found_though_their_clocks_differ() -> None:
    work = two_hosts(round_trip=0.0004).comparable_work()
    assert [round(own.seconds[5], 3) for own in work.values()] == [0.05, 0.15]
    assert list(stragglers_by_part(work)["compute"]) == [1]


def test_paces_are_not_compared_where_a_rank_waited_for_a_cpu() -> None:
    """Its host is busy with something else: the rank does not compute more slowly."""
    assert list(two_hosts(round_trip=0.0004, cpu_wait=0.09).comparable_work()) == [0, 1]
    busy = two_hosts(round_trip=0.0004, cpu_wait=0.45)
    assert busy.comparable_work() == {}
    (sentence,) = (text for text in busy.sentences() if "waited for a CPU" in text)
    assert sentence == "The paces of the ranks were not compared: rank 1 waited for a CPU, up to 45 % of the time"


def test_paces_are_compared_more_loosely_where_it_is_known_how_long_in_a_step_a_rank_waited_for_a_cpu() -> None:
    busy = two_hosts(round_trip=0.0004, cpu_wait=0.45)
    for step in range(1, 20):
        for rank in (0, 1):
            busy.pace.add_times(rank, [StepTimes(step, 50_000, 0, 0, 0, 0)], 0.02 * step * rank)
        busy.pace.split_steps()
    assert list(busy.comparable_work()) == [0, 1]
    (sentence,) = (text for text in busy.sentences() if "waited for a CPU" in text)
    assert sentence.endswith("3 times the others' counts: rank 1 waited for a CPU, up to 45 % of the time")


def test_paces_of_hosts_are_not_compared_where_their_clocks_are_not_known_well_enough() -> None:
    training = two_hosts(round_trip=0.04)
    assert list(training.comparable_work()) == [0]
    assert "paces of different hosts were not compared" in next(iter(training.notes))


def test_the_stack_of_an_error_begins_with_the_line_that_raised_it() -> None:
    """A traceback has that line last; the remedy names the first one of the program."""
    training = Training(2, 10.0, "w0", 0.0)
    frames = ((9, "<module>"), (3, "step"))
    stack = "".join(f'  File "/job/train.py", line {line}, in {name}\n    call()\n' for line, name in frames)
    training.take_event(1, {"ev": "error", "text": "ValueError: odd", "stack": stack}, 1.0)
    assert training.errors[1].splitlines()[0] == 'File "/job/train.py", line 3 in step'
