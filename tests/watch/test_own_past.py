"""A job against its own earlier runs: the part, the rank and the host that make its steps longer."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from doctor.analysis.outliers.own_past import LEAST_RUNS, LEAST_STEPS, compare_pace, pace_lines, undecided
from doctor.engine.quantities import seconds_text
from doctor.engine.watch_summary import PathPace, RankPace, RunPace
from doctor.history.paces import MOST_RUNS, PaceFolder, job_identity, last_runs
from doctor.watch.live_pace import LivePace
from doctor.watch.pace import Entry, StepPace, StepTimes
from doctor.watch.training import Training
from tests.smoke.slurm import free_ports
from tests.watch.running import Watched, doctor_watch

PROGRAM = Path(__file__).with_name("programs") / "paced.py"
HOSTS = {0: "w0", 1: "w0", 2: "w1", 3: "w1"}
USUAL = {"input": 0.1, "compute": 0.5, "network": 0.2}


def run_of(
    more: Mapping[int, Mapping[str, float]] = {}, noise: float = 1.0, steps: int = 50, **paths: float
) -> RunPace:
    ranks = {
        rank: RankPace(rank, host, **{
            part: noise * USUAL.get(part, 0.0) + more.get(rank, {}).get(part, 0.0)
            for part in (*USUAL, "wait", "unsplit", "calls", "interpreter", "cpu_wait")
        })
        for rank, host in HOSTS.items()
    }  # fmt: skip
    return RunPace(steps, ranks, tuple(PathPace(name[:2], name[:2], name[2:], trip) for name, trip in paths.items()))


PAST = [run_of(noise=noise) for noise in (1.0, 1.03, 0.98)]


@pytest.mark.parametrize("steps", [0, LEAST_STEPS - 1, LEAST_STEPS])
def test_a_job_of_few_steps_has_no_pace_to_report(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in its first step, say, and is looked at for longer than a minute."""
    training = Training(4, 10.0, "w0", 0.0)
    assert training.run_pace().ranks == {}
    if steps:
        monkeypatch.setattr(training, "run_pace", lambda newest=0: run_of(steps=steps))
    assert LivePace(["train.py"], {"XDG_STATE_HOME": str(tmp_path)}).look(training, 100.0) == []
    assert (training.pace_report is not None) == (steps >= LEAST_STEPS)


@pytest.mark.parametrize("part", ["input", "compute"])
def test_the_rank_whose_part_is_longer_is_named_and_not_those_that_wait_for_it(part: str) -> None:
    now = run_of({rank: {part: 2.0} if rank == 2 else {"wait": 2.0} for rank in HOSTS})
    (slow,) = compare_pace(now, PAST).slow
    assert (slow.part, slow.ranks, slow.hosts) == (part, (2,), ("w1",))
    assert slow.step == pytest.approx(2.8) and slow.usual_step == pytest.approx(0.8)


def test_what_is_slower_on_all_ranks_is_said_of_all() -> None:
    (slow,) = compare_pace(run_of({rank: {"input": 2.0} for rank in HOSTS}), PAST).slow
    assert (slow.part, slow.ranks) == ("input", ())


def test_a_thread_that_keeps_the_interpreter_is_told_in_the_place_of_the_network() -> None:
    """It makes each return from a collective longer, so that it looks like the network."""
    more = {"network": 2.0, "interpreter": 0.005}
    now = run_of(dict.fromkeys(HOSTS, more))
    (slow,) = compare_pace(now, PAST).slow
    assert (slow.part, slow.ranks, slow.seconds) == ("interpreter", (), 0.005)
    one = run_of({rank: more if rank == 3 else {"wait": 2.0, "interpreter": 0.005 * (rank == 2)} for rank in HOSTS})
    (slow,) = compare_pace(one, PAST).slow
    assert (slow.part, slow.ranks) == ("interpreter", (3,))  # rank 2 has such a thread, and is no slower
    busy = {3: {"compute": 9.0, "cpu_wait": 1.2, "interpreter": 0.005}}  # it comes back late as it has no CPU
    others = {rank: {"wait": 9.0} for rank in (0, 1, 2)}
    assert [row.part for row in compare_pace(run_of({**others, **busy}), PAST).slow] == ["compute"]
    slept = {3: {"input": 9.0, "cpu_wait": 0.01, "interpreter": 0.002}}  # a small part of a long step, and longer
    assert [row.part for row in compare_pace(run_of({**others, **slept}), PAST).slow] == ["input"]
    past = [run_of({rank: {"interpreter": 0.005} for rank in HOSTS}, noise) for noise in (1.0, 1.03)]
    assert [row.part for row in compare_pace(now, past).slow] == ["network"]  # it was there before


@pytest.mark.parametrize(
    ("calls", "network", "part"),
    [(400.0, 16.0, "calls"), (8.0, 1.0, "network"), (5.0, 1.0, "network")],
    ids=["more of them", "more, and each takes longer", "as many"],
)
def test_more_collectives_than_before_are_told_in_the_place_of_the_network(
    calls: float, network: float, part: str
) -> None:
    past = [run_of({rank: {"calls": 5.0} for rank in HOSTS}, noise) for noise in (1.0, 1.03)]
    now = run_of({rank: {"network": network, "calls": calls} for rank in HOSTS})
    report = compare_pace(now, past)
    assert [row.part for row in report.slow] == [part]
    assert ("has 400 collectives, and had 5" in pace_lines(report)[0]) == (part == "calls")
    assert [row.part for row in compare_pace(now, PAST).slow] == ["network"]  # earlier runs that did not count them


def test_of_a_network_the_host_is_named_of_which_all_paths_are_slower() -> None:
    ends = {"w0w1": 1e-4, "w0w2": 1e-4, "w1w0": 1e-4, "w1w2": 1e-4, "w2w0": 1e-4, "w2w1": 1e-4}
    past = [run_of(noise=noise, **ends) for noise in (1.0, 1.02, 0.97)]
    slower = {name: 0.02 if "w1" in (name[:2], name[2:]) else trip for name, trip in ends.items()}
    now = run_of({rank: {"network": 1.0} for rank in HOSTS}, **slower)
    (slow,) = compare_pace(now, past).slow
    assert (slow.part, slow.hosts) == ("network", ("w1",))
    two = {name: trip for name, trip in slower.items() if "w2" not in (name[:2], name[2:])}
    (slow,) = compare_pace(run_of({rank: {"network": 1.0} for rank in HOSTS}, **two), past).slow
    assert slow.hosts == ("w0", "w1")  # nothing says which of the two
    (slow,) = compare_pace(run_of({rank: {"network": 1.0} for rank in HOSTS}, **ends), past).slow
    assert slow.hosts == ()


def test_a_path_is_slow_in_one_direction_and_by_as_much_as_the_slowest_is() -> None:
    """As in a ring, where each host sends to the next one alone: the kernel's figure of the other way is an old one.

    Round trips of other hosts that grow by parts of a millisecond, as on a busy machine, are no reason.
    """
    usual = {"w0w1": 1e-4, "w1w2": 1e-4, "w2w0": 1e-4, "w0w2": 1e-4, "w2w1": 1e-4, "w1w0": 1e-4}
    past = [run_of(noise=noise, **usual) for noise in (1.0, 1.02, 0.97)]

    def hosts_of(**slower: float) -> tuple[str, ...]:
        report = compare_pace(run_of({rank: {"network": 0.4} for rank in HOSTS}, **{**usual, **slower}), past)
        return report.slow[0].hosts

    assert hosts_of(w2w0=0.3, w1w2=0.25, w0w1=3e-4, w1w0=2e-4) == ("w2",)
    assert hosts_of(w2w0=3e-4, w1w2=3e-4) == ()  # far too little for what a step takes more
    assert hosts_of(w2w0=0.3, w1w2=0.02) == ("w0", "w2")
    assert hosts_of(w2w0=0.3, w1w2=0.25, w0w1=0.28) == ("w0", "w1", "w2")


def test_a_network_that_several_hosts_share_is_said_so() -> None:
    def text(**paths: float) -> str:
        ends = dict.fromkeys(("w0w1", "w1w2", "w2w0"), 1e-4)
        past = [run_of(noise=noise, **ends) for noise in (1.0, 1.02, 0.97)]
        now = run_of({rank: {"network": 1.0} for rank in HOSTS}, **{**ends, **paths})
        return pace_lines(compare_pace(now, past))[0].rpartition("over the network of ")[2]

    assert text() == "the hosts; no path between two of them shows where"
    assert text(w0w1=0.2) == "w0 or w1: it is on the path between them"
    assert text(w0w1=0.2, w1w2=0.2) == "w1"
    assert text(w0w1=0.2, w1w2=0.2, w2w0=0.2) == "several hosts: w0, w1, w2"


def test_a_host_that_is_busy_is_not_the_jobs_slow_down() -> None:
    report = compare_pace(run_of({rank: {"compute": 1.0, "cpu_wait": 0.9} for rank in HOSTS}), PAST)
    assert report.slow == () and report.starved == (0, 1, 2, 3)
    assert undecided(report).startswith("ranks 0-3 waited for a CPU")
    # Caches and cores that are shared make the rest of the work longer, too.
    assert compare_pace(run_of({rank: {"compute": 1.5, "cpu_wait": 0.7} for rank in HOSTS}), PAST).slow == ()
    # What is far longer than that is no matter of a CPU.
    (slow,) = compare_pace(
        run_of({0: {"compute": 9.0, "cpu_wait": 0.7}, 1: {"wait": 9.0}, 2: {"wait": 9.0}}), PAST
    ).slow
    assert slow.ranks == (0,)


def test_a_slow_down_that_waits_for_a_cpu_would_hide_is_not_known() -> None:
    """Now, or in the runs that it is compared with: these are then no measure of a later one, as slow ones are not."""
    busy = run_of({rank: {"compute": 0.2, "cpu_wait": 0.7} for rank in HOSTS})
    assert undecided(compare_pace(busy, [run_of(noise=1.1), *PAST]))
    assert undecided(compare_pace(run_of(), [busy] * 3))
    assert compare_pace(busy, []).starved == (0, 1, 2, 3)
    some = run_of({rank: {"compute": 0.2, "cpu_wait": 0.3} for rank in HOSTS})
    assert not undecided(compare_pace(some, PAST)) and not undecided(compare_pace(run_of(), [some] * 3))


def test_a_step_far_longer_than_any_before_is_not_called_usual_where_few_runs_differ_much() -> None:
    """Nor is it a measure of a later one: it would make the range wider still."""
    apart = [run_of(noise=noise) for noise in (1.0, 1.27, 1.46, 1.35, 0.84)]
    report = compare_pace(run_of(noise=3.8), apart)
    assert report.slow == () and report.longest == pytest.approx(1.168)
    assert undecided(report) == (
        "a step takes 3.04 s, and 1.17 s at most in 5 earlier runs of this job, too few for how much they differ"
    )
    assert not undecided(compare_pace(run_of(noise=2.5), apart))  # such a run may well come
    assert compare_pace(run_of(noise=30.0), apart).slow and not undecided(compare_pace(run_of(noise=30.0), apart))


@pytest.mark.parametrize(("more", "told"), [({"input": 2.4}, ["input"]), ({"network": 2.4}, []), ({"input": 0.9}, [])])
def test_a_part_that_has_left_its_range_tells_what_a_wide_range_of_steps_does_not(
    more: dict[str, float], told: list[str]
) -> None:
    """Seen beside other load: compute differed by half from run to run, and input did not."""
    noise = (1.0, 1.9, 1.4, 2.2, 0.7, 1.6, 0.9)
    apart = [run_of({rank: {"compute": 0.5 * (factor - 1)} for rank in HOSTS}) for factor in noise]
    report = compare_pace(run_of(dict.fromkeys(HOSTS, more)), apart)
    assert [row.part for row in report.slow] == told
    assert bool(undecided(report)) == ("network" in more)


def test_too_few_runs_other_ranks_and_a_run_that_is_no_longer_say_nothing() -> None:
    slow = run_of({rank: {"compute": 2.0} for rank in HOSTS})
    assert compare_pace(slow, PAST[:1]) == compare_pace(slow, []) and not compare_pace(slow, []).runs
    assert compare_pace(msgspec.structs.replace(slow, steps=3), PAST).runs == 0
    others = [msgspec.structs.replace(run, ranks={0: run.ranks[0]}) for run in PAST]
    assert compare_pace(slow, others).runs == 0
    assert compare_pace(run_of(noise=1.3), PAST).slow == ()  # of few runs the range is not known


def test_slow_runs_are_no_measure_as_long_as_there_are_others() -> None:
    slow = run_of({rank: {"compute": 2.0} for rank in HOSTS})
    kept = [msgspec.structs.replace(slow, is_slow=True)] * 8
    assert compare_pace(slow, [*PAST, *kept]).slow
    assert compare_pace(slow, [PAST[0], *kept]).slow == ()  # it has become the usual pace


def test_healthy_jobs_are_accused_as_rarely_as_is_stated() -> None:
    """One healthy run in a thousand leaves the range; 15 % is the least that counts."""
    draws, accused = random.Random(7), 0
    for _ in range(1500):
        count, spread = draws.randint(5, 16), draws.choice((0.01, 0.05, 0.15))
        runs = [run_of(noise=draws.lognormvariate(0, spread)) for _ in range(count + 1)]
        accused += bool(compare_pace(runs[0], runs[1:]).slow)
    assert accused <= 8


def test_a_part_that_no_run_had_before_and_numbers_without_sense() -> None:
    (slow,) = compare_pace(
        run_of({1: {"unsplit": 3.0}, 0: {"wait": 3.0}, 2: {"wait": 3.0}, 3: {"wait": 3.0}}), PAST
    ).slow
    assert (slow.part, slow.ranks) == ("unsplit", (1,))
    for value in (0.0, 1e300, 1e-300):
        compare_pace(run_of(noise=value), [*PAST, run_of(noise=value)])
    assert pace_lines(compare_pace(run_of({rank: {"wait": 3.0} for rank in HOSTS}), PAST))[0].endswith("is the reason")
    assert [seconds_text(value) for value in (744.2, 0.31, 0.0042)] == ["744 s", "0.31 s", "4.2 ms"]


# ---- steps in parts


def split(calls: Mapping[int, list[tuple[int, bool]]], times: Mapping[int, StepTimes]) -> dict[int, RankPace]:
    """The same step again and again; ``calls``: microseconds into it, and whether C++ has started it."""
    pace = StepPace()
    for step in range(40):
        for rank, row in calls.items():
            entries = [
                Entry(0, step * 9 + number, step, step * 10**6 + at, started)
                for number, (at, started) in enumerate(row)
            ]
            pace.add(rank, entries)
            pace.add_times(rank, [times[rank]._replace(step=step + 1)], 0.0)
        pace.split_steps()
    return pace.parts.usual(HOSTS).ranks


def test_waiting_for_others_is_told_apart_from_the_network_in_calls_that_are_waited_for() -> None:
    ranks = split(
        {0: [(200_000, False)], 1: [(700_000, False)]},
        {0: StepTimes(0, 150_000, 600_000, 50_000, 0, 0), 1: StepTimes(0, 650_000, 100_000, 50_000, 0, 0)},
    )
    assert ranks[0] == RankPace(0, "w0", 0.05, 0.15, 0.5, pytest.approx(0.1))
    assert ranks[1] == RankPace(1, "w0", 0.05, 0.65, 0.0, pytest.approx(0.1))


def test_and_in_backward_passes_that_go_on_meanwhile() -> None:
    """Two buckets: the second one's call ends the backward pass of the rank itself."""
    ranks = split(
        {0: [(100_000, True), (200_000, True)], 1: [(300_000, True), (500_000, True)]},
        {0: StepTimes(0, 100_000, 0, 0, 500_000, 0), 1: StepTimes(0, 300_000, 0, 0, 300_000, 0)},
    )
    assert ranks[0] == RankPace(0, "w0", 0.0, 0.2, pytest.approx(0.3), pytest.approx(0.1))
    assert ranks[1] == RankPace(1, "w0", 0.0, 0.5, 0.0, pytest.approx(0.1))


def test_many_steps_stay_few_blocks_and_a_rank_that_comes_later_counts() -> None:
    pace = StepPace()
    for step in range(1, 5001):
        for rank in (0, 1) if step > 10 else (0,):
            pace.add_times(rank, [StepTimes(step, 1000 * (1 + step // 4900), 0, 0, 0, 0)], step * 0.001)
        pace.split_steps()
    run = pace.parts.usual(HOSTS)
    assert run.ranks.keys() == {0, 1} and run.ranks[1].compute == pytest.approx(0.001)
    assert run.ranks[0].cpu_wait == pytest.approx(0.001, rel=0.1)
    assert pace.parts.usual(HOSTS, newest=100).ranks[1].compute > 0.0015


def test_periods_of_steps_that_are_longer_count_as_what_they_take_in_the_mean() -> None:
    """As of a loader with workers that are too slow: several quick batches, then a long wait."""
    pace = StepPace()
    for step in range(1, 203):
        pace.add_times(0, [StepTimes(step, 1000, 0, 40_000 if step % 5 == 0 else 0, 0, 0)], 0.0)
    pace.split_steps()
    assert pace.parts.usual(HOSTS).ranks[0].input == pytest.approx(0.008, rel=0.1)


# ---- what is kept


def test_runs_are_kept_for_each_launch_line_and_found_by_host(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    job = job_identity(["torchrun", "--master-port", "1", "train.py"])
    with PaceFolder.opened(environ, create=True) as folder:
        assert folder is not None
        for number in range(MOST_RUNS + 3):
            folder.add(job, run_of(noise=1 + number / 100))
        (Path(folder.path) / "0123456789abcdef.pace").write_bytes(b"no record")
    kept = last_runs(environ, job_identity(["/opt/torchrun", "--master_port=2", "train.py"]), frozenset())
    assert len(kept) == MOST_RUNS and kept[-1].ranks[0].compute == pytest.approx(0.59)
    assert last_runs(environ, "", frozenset({"w1"})) == kept
    assert last_runs(environ, "", frozenset({"w9"})) == []
    assert last_runs({}, job, frozenset()) == []


def test_what_a_killed_run_left_half_written_goes_with_the_next_run_of_any_job(tmp_path: Path) -> None:
    with PaceFolder.opened({"XDG_STATE_HOME": str(tmp_path)}, create=True) as folder:
        assert folder is not None
        drafts = [Path(folder.path, f".{digit * 16}.pace") for digit in "12"]
        for draft in drafts:
            draft.touch()
        os.utime(drafts[0], (0, 0))
        folder.add("3" * 16, run_of())
        assert [draft.exists() for draft in drafts] == [False, True]


# ---- real programs


RANKS = 'RANK=1 LOCAL_RANK=1 "$0" "$@" & RANK=0 LOCAL_RANK=0 "$0" "$@"; status=$?; wait $! && exit $status'
"""Two ranks without a launcher, which would import torch, too."""


class PacedRuns:
    """Runs of one job with a state folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.count = folder, 0

    def watch(self, slow: str = "", **environ: str) -> Watched:
        self.count += 1
        place = self.folder / str(self.count)
        place.mkdir()
        return doctor_watch(
            "sh", "-c", RANKS, sys.executable, str(PROGRAM), "40", options=("--data", "off"), folder=place,
            SLOW=slow, XDG_STATE_HOME=str(self.folder / "state"), DOCTOR_HISTORY="on",
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(*free_ports(1)), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2", **environ,
        )  # fmt: skip

    def slower(self, slow: str) -> Watched:
        """A run with a longer part; where other programs took the CPU, which is not held against the job, one with a
        part that is longer than such waits can be.
        """
        for more in (0.3, 1.5, 6.0):
            watched = self.watch(slow, MORE=str(more), STEPS="18")
            outcome = next(one for one in watched.report["outcomes"] if one["check"] == "training-slowed-down")
            if any("no part of it alone" not in finding["message"] for finding in outcome["findings"]):
                break
        return watched


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PacedRuns]:
    folder = tmp_path_factory.mktemp("paced")
    (folder / "state").mkdir()
    started = PacedRuns(folder)
    started.watch()
    with PaceFolder.opened({"XDG_STATE_HOME": str(folder / "state")}, create=False) as paces:
        assert paces is not None
        (job,) = paces.jobs()
        for _ in range(LEAST_RUNS - 1):  # as if it had run more often
            paces.add(job, paces.runs(job)[0])
    yield started


OTHERS = "compute:0", "input:"


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("slow", ["input:1", *(pytest.param(slow, marks=pytest.mark.full) for slow in OTHERS)])
def test_a_part_that_is_slower_than_before_is_named(runs: PacedRuns, slow: str) -> None:
    watched = runs.slower(slow)
    report = watched.report
    (outcome,) = [outcome for outcome in report["outcomes"] if outcome["check"] == "training-slowed-down"]
    (finding,) = outcome["findings"]
    part, _, rank = slow.partition(":")
    assert finding["values"]["ranks"] == ([int(rank)] if rank else []), finding
    assert ("for its input" in finding["message"]) == (part == "input"), finding
    pace = {row["rank"]: row for row in report["pace"]}
    assert pace[int(rank or 0)][part] > 0.25
    # Beside it the ranks are compared with each other, by the same parts; not where they waited for a CPU.
    other = {"input": "smoke-rank-slow", "compute": "smoke-input-slow"}[part]
    assert other not in watched.found_ranks and outcome["check"] in watched.found_ranks


@pytest.mark.torch
@pytest.mark.timeout(600)
def test_a_run_like_those_before_it_has_no_finding_under_whatever_load(runs: PacedRuns) -> None:
    report = runs.watch().report
    (status,) = [outcome["status"] for outcome in report["outcomes"] if outcome["check"] == "training-slowed-down"]
    assert status == "passed" or (status == "unknown" and os.getloadavg()[0] > 2 * (os.cpu_count() or 1))
