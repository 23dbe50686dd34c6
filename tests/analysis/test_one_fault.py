"""One program and one fault, rank 2 of 4 takes no part in an all_reduce, as every source shows it: one culprit, one
check, one sentence.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from doctor.diagnose.diagnosis import Diagnosis
from doctor.engine.smoke_failures import FAILURE_KINDS
from doctor.session.saved_parts import smoke_run
from doctor.smoke.hang.detector import Detector
from doctor.smoke.model import Failure, SmokeRun
from doctor.watch.attach.attached_run import attached_run
from doctor.watch.attach.odd_ranks import find_odd
from tests.checks.smoke import findings_of, ran
from tests.diagnose.test_flight_recorder import diagnosis, dump
from tests.diagnose.test_rules import logs
from tests.smoke import simulation
from tests.smoke.simulation import Simulation, faulty, fleet, layouts_of
from tests.watch.test_odd_ranks import COMPUTES, WAITS, host, looks, rank
from tests.watch.test_verdict import PATIENCE, Ranks

CHECK = "smoke-rank-blocked"
SENTENCE = "rank 2 keeps the others waiting in all_reduce"
"""How the main sentence begins, whatever the source; a log has the name of the call as NCCL prints it."""
NCCL = (
    "[rank{0}]:[E ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600042 milliseconds"
)


def of_failure(failure: Failure | None) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    assert failure is not None
    return FAILURE_KINDS[failure.kind].check, failure.culprit_ranks, failure.waiting_ranks


def sentence(failure: Failure | None) -> str:
    """Of the finding that the check makes of the failure."""
    assert failure is not None
    (finding,) = findings_of(CHECK.replace("-", "_"), ran(4, 2, failure))
    return str(finding)


def of_diagnosis(result: Diagnosis) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    return tuple(cause.rule for cause in result.causes), tuple(
        c.rank for cause in result.causes for c in cause.culprits
    )


def test_a_smoke_run_names_it() -> None:
    groups, programs = fleet(4, [layouts_of(4)["dp"]], 0)
    programs[2] = faulty(programs[2], simulation.sleep, 2, 0, [0], Random(0))
    failure = Simulation(4, groups, programs, Random(0)).watch(Detector(4), 60)
    assert of_failure(failure) == (CHECK, (2,), (0, 1, 3))
    assert sentence(failure).startswith(f"{SENTENCE} #")


def test_a_watched_run_names_it() -> None:
    ranks = Ranks(4)
    for step in (0, 1):
        for number in range(4):
            ranks.call(number, step)
        ranks.verdict(step)
    for number in range(4):
        ranks.show(number, "compute", 2, 0.0)
    for number in (0, 1, 3):
        ranks.call(number, 2)
    ranks.verdict(2.1)
    for number in range(4):
        ranks.show(number, "compute" if number == 2 else "enqueued", 2, 2 * PATIENCE)
    failure = ranks.verdict(30.0)
    assert of_failure(failure) == (CHECK, (2,), (0, 1, 3))
    assert sentence(failure).startswith(f"{SENTENCE} #")


def test_a_look_at_the_running_job_names_it() -> None:
    waiting = [("all_reduce", *WAITS[0][1:]), *WAITS[1:]]
    reports = [
        rank(number, looks("sleep") if number == 2 else None, COMPUTES if number == 2 else waiting)
        for number in range(4)
    ]
    run, checks = attached_run(find_odd({"node1": host(*reports)}), {}, (), "this host", 4.0, [])
    smoke_facts = smoke_run(run.smoke)
    assert isinstance(smoke_facts, SmokeRun) and sentence(smoke_facts.failures[0]).startswith(
        f"{SENTENCE} (main at train.py:7): it sleeps"
    )
    (job,) = find_odd({"node1": host(*reports)})
    assert checks == (CHECK,) and [entry.rank for entry in job.odd_ranks] == [2]
    assert [view.report.rank for view in job.ranks if view.waits and "all_reduce" in view.does.text] == [0, 1, 3]


def test_logs_name_it() -> None:
    """By the silent rank; where it reports as well, by its number in the sequence."""
    texts = {f"rank_{number}": NCCL.format(number, 7) for number in (0, 1, 3)}
    assert of_diagnosis(logs(**texts, rank_2="step 6")) == (("silence",), (2,))
    result = logs(**texts, rank_2=NCCL.format(2, 6))
    assert of_diagnosis(result) == (("behind in sequence",), (2,))
    assert result.causes[0].summary.replace("ALLREDUCE", "all_reduce").startswith(f"{SENTENCE}: behind in sequence")


def test_dumps_of_the_flight_recorder_name_it(tmp_path: Path) -> None:
    """By the number of its collectives; where it left no dump, by that."""
    calls = ("all_reduce",) * 7
    dumps = {number: dump(*calls[: 6 if number == 2 else 7], world=4) for number in range(4)}
    result = diagnosis(tmp_path, dumps)
    assert of_diagnosis(result) == (("behind in sequence",), (2,))
    assert result.causes[0].summary.startswith(f"{SENTENCE}, collective 7 of process group")
    (tmp_path / "nccl_trace_rank_2").unlink()
    assert of_diagnosis(diagnosis(tmp_path, {0: dumps[0]})) == (("silence",), (2,))
