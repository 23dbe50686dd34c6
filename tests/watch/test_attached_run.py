"""What `--attach` has seen, as a run of the ordinary checks: findings, exit codes, notes, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from doctor.engine.errors import InputError
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Report
from doctor.report.formats.registry import RenderContext, render
from doctor.session.replay import load
from doctor.session.select_checks import load_catalog
from doctor.watch.attach.attached_run import BY_ARGUMENT, MOST_RANKS, attached_run
from doctor.watch.attach.odd_ranks import find_odd
from doctor.watch.attach.rank_report import HostReport, Look, ProcessReport, read_report
from doctor.watch.attach.recorded_causes import RecordedCause
from doctor.watch.data_outcomes import evaluate_watch
from tests.watch.test_odd_ranks import COMPUTES, LOADER, OTHER, SPINS, WAITS, host, looks, rank

CATALOG = load_catalog([])
Stack = list[tuple[str, str, int]]


def judged(
    *ranks: ProcessReport,
    failed: Mapping[str, str] | None = None,
    recorded: Sequence[RecordedCause] = (),
    reports: Mapping[str, HostReport] | None = None,
) -> tuple[int, Report]:
    """Exit code and report, by way of the saved run."""
    run, checks = attached_run(
        find_odd(reports or {"node1": host(*ranks)}), failed or {}, recorded, "this host", 4.0, []
    )
    run = load(msgspec.json.encode(run), "saved")
    report = evaluate_watch(run, [check for check in CATALOG if check.name in checks], CATALOG)
    return exit_code(report), report


def findings(report: Report) -> list[str]:
    return [f"{outcome.check}: {finding}" for outcome in report.outcomes for finding in outcome.findings]


def three_wait() -> list[ProcessReport]:
    return [rank(number, None, WAITS) for number in (0, 1, 3)]


@pytest.mark.parametrize(
    ("observed_looks", "stack", "check", "text"),
    [
        (looks("futex", "T"), WAITS, "smoke-rank-stopped", "rank 2 is stopped: kill -CONT 102"),
        (looks("sleep"), COMPUTES, "smoke-rank-blocked", "it sleeps (spin at train.py:3)"),
        (looks("read", "D", file="/nfs/x"), COMPUTES, "smoke-rank-blocked", "uninterruptible wait of the kernel"),
        (looks("poll"), LOADER, "smoke-input-stalled", "rank 2 waited for input data"),
        (looks(), OTHER, "smoke-collective-mismatched", "rank 2 called broadcast (main at train.py:5)"),
    ],
)
def test_an_odd_rank_is_a_finding_of_the_check_of_its_kind(
    observed_looks: list[Look], stack: Stack, check: str, text: str
) -> None:
    code, report = judged(*three_wait(), rank(2, observed_looks, stack))
    [finding] = findings(report)
    assert code == 10
    assert finding.startswith(check + ": ") and text in finding
    [failure] = report.smoke.failures if report.smoke else ()
    assert (failure.culprit_ranks, failure.waiting_ranks) == ((2,), (0, 1, 3))
    assert "line 7 in main" in failure.stacks[0]


def test_ranks_that_are_odd_in_two_ways_are_two_findings() -> None:
    stopped, sleeps = rank(2, looks("futex", "T"), WAITS), rank(3, looks("sleep"), COMPUTES)
    code, report = judged(rank(0, None, WAITS), rank(1, None, WAITS), stopped, sleeps)
    assert code == 10
    assert [text.partition(":")[0] for text in findings(report)] == ["smoke-rank-stopped"]
    assert report.smoke and any("rank 3: sleeps" in note for note in report.smoke.notes)


def test_a_rank_that_has_gone_is_said_to_have_left() -> None:
    code, report = judged(*three_wait())
    [finding] = findings(report)
    assert (code, finding.partition(":")[0]) == (10, "smoke-rank-left")
    assert "rank 2 left" in finding and "how it ended" in finding


def test_a_job_that_moves_passes_the_checks_of_its_ranks() -> None:
    code, report = judged(*(rank(number, looks(switches=500)) for number in range(4)))
    assert (code, findings(report)) == (0, [])
    assert {outcome.check for outcome in report.outcomes if outcome.complete} == {
        "smoke-rank-stopped", "smoke-rank-blocked", "smoke-input-stalled", "smoke-rank-left",
    }  # fmt: skip


def test_of_ranks_that_were_not_seen_it_is_not_said_that_none_has_left() -> None:
    _, report = judged(reports={"node1": host(rank(0, looks(switches=500)), local=False)})
    assert "smoke-rank-left" not in {outcome.check for outcome in report.outcomes}
    assert report.smoke and any("1 of 4 ranks was seen" in note for note in report.smoke.notes)


def test_what_cannot_be_decided_is_unknown_with_its_reason() -> None:
    code, report = judged(*(rank(number) for number in range(4)))
    assert (code, findings(report)) == (12, [])
    reasons = [str(reason) for outcome in report.outcomes for reason in outcome.unknown.values()]
    assert all("without their stacks" in reason for reason in reasons)
    assert {"smoke-network-silent", "smoke-collective-mismatched"} <= {outcome.check for outcome in report.outcomes}


def test_what_is_likely_is_a_warning_and_leaves_the_job_undecided() -> None:
    fields: dict[str, object] = {"shared": [7, 7, 7], "samples": SPINS}
    waiting = [rank(number, looks("running", "R", ran=9.0), None, **fields) for number in (0, 2, 3)]
    samples = {"samples": [("solver", 900)], "register_values": 1}
    computes = rank(1, looks("running", "R", ran=9.0), None, shared=[7, 7, 7], **samples)
    code, report = judged(reports={"node1": msgspec.structs.replace(host(computes, *waiting), seconds=20.0)})
    [finding] = [finding for outcome in report.outcomes for finding in outcome.findings]
    assert code == 12 and finding.is_warning and "rank 1 keeps ranks 0, 2 and 3 waiting: it looks at" in str(finding)
    assert any("No message passed meanwhile" in str(why) for o in report.outcomes for why in o.unknown.values())


def test_a_host_that_says_nothing_is_unknown() -> None:
    code, report = judged(*(rank(number, looks(switches=500)) for number in range(4)), failed={"node2": "no answer"})
    assert code == 12
    assert any("no answer" in str(outcome.unknown.get("node2")) for outcome in report.outcomes)


def test_without_a_rank_there_is_nothing_to_report() -> None:
    with pytest.raises(InputError, match=r"no rank of a job runs here.*node2: refused"):
        judged(reports={"node1": host()}, failed={"node2": "refused"})


def test_the_job_with_the_odd_rank_is_reported_and_the_others_are_noted() -> None:
    well = [
        msgspec.structs.replace(rank(number, looks(switches=500)), job={"MASTER_PORT": "1"}, pid=200 + number)
        for number in range(4)
    ]
    code, report = judged(*well, *three_wait(), rank(2, looks("sleep"), COMPUTES))
    assert code == 10 and len(findings(report)) == 1
    assert report.smoke and any(
        "another job, master port 1, 4 ranks: The ranks move" in note for note in report.smoke.notes
    )


def test_a_lone_process_with_a_connection_to_elsewhere_is_a_note_beside_a_job() -> None:
    """As a notebook that is connected with a web server; by itself it may be one of a job's ranks, and is unknown."""
    well = [rank(number, looks(switches=500)) for number in range(4)]
    stranger = msgspec.structs.replace(
        rank(0, looks("sleep")), rank=None, world=0, pid=900, devices=[], links=["10.0.0.1:5>10.9.9.9:443"]
    )
    code, report = judged(*well, stranger)
    assert code == 0
    assert report.smoke and any("another job, 1 connected process" in note for note in report.smoke.notes)
    assert judged(stranger)[0] == 12


@pytest.mark.parametrize("numbers", [(0, 1, 1, 3), (0, 1, None, 3), (0, 1, MOST_RANKS, 3)])
def test_processes_that_do_not_tell_their_ranks_apart_are_counted(numbers: tuple[int | None, ...]) -> None:
    ranks = [
        msgspec.structs.replace(
            rank(0, None, WAITS), rank=number, pid=500 + place, world=4 if number is not None else 0
        )
        for place, number in enumerate(numbers)
    ]
    ranks[2] = msgspec.structs.replace(ranks[2], looks=looks("futex", "T"))
    _, report = judged(*(msgspec.structs.replace(entry, rank=None) if None in numbers else entry for entry in ranks))
    [finding] = findings(report)
    assert "pid 502" in finding
    assert report.smoke and any("rank 2 is pid 502 on node1" in note for note in report.smoke.notes)


SURE = RecordedCause("NCCL RAS: process 102 on node1 does not answer (likely)", pids=(102,))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((2, 0, 1), "rank 1 "), ((2, 0, 2), "rank 2 "), ((2, None, 1), "rank 2 "), ((5, 4, 3), "rank 2 ")],
)
def test_processes_without_ranks_are_numbered_by_their_functions_arguments_or_counted(
    arguments: tuple[int | None, ...], named: str
) -> None:
    fields: dict[str, object] = {"rank": None, "world": 0, "job": {}, "group": 50}
    ranks = [rank(0, None, WAITS, **fields, pid=50 + place, argument=value) for place, value in enumerate(arguments)]
    ranks[2] = msgspec.structs.replace(ranks[2], looks=looks("sleep"), stacks=[COMPUTES, COMPUTES])
    code, report = judged(*ranks)
    assert code == 10 and named in findings(report)[0] and "(pid 52)" in findings(report)[0]
    assert report.smoke and (BY_ARGUMENT in report.smoke.notes) is (arguments == (2, 0, 1))


def test_a_driver_that_waits_for_the_others_is_counted_last() -> None:
    fields: dict[str, object] = {"rank": None, "world": 0, "job": {}, "group": 50}
    polls = [("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947), ("main", "/job/train.py", 176)]
    ranks = [rank(0, None, WAITS, **fields, pid=51 + place) for place in range(3)]
    ranks[1] = msgspec.structs.replace(ranks[1], looks=looks("sleep"), stacks=[COMPUTES, COMPUTES])
    code, report = judged(rank(0, looks("poll"), polls, **fields, pid=50), *ranks)
    assert code == 10 and "rank 1 " in findings(report)[0] and "(pid 52)" in findings(report)[0]


def test_what_a_recorder_says_of_the_odd_rank_is_evidence() -> None:
    _, report = judged(*three_wait(), rank(2, looks("sleep"), COMPUTES), recorded=[SURE])
    assert report.smoke and report.smoke.failures[0].evidence == (SURE.text,)


def test_what_a_recorder_says_decides_where_nothing_else_does() -> None:
    code, report = judged(*(rank(number) for number in range(4)), recorded=[SURE])
    assert (code, findings(report)) == (10, [f"smoke-rank-blocked: rank 2 keeps ranks 0, 1 and 3 waiting: {SURE.text}"])


@pytest.mark.parametrize(("member", "code"), [(102, 10), (302, 12), (9, 10)], ids=["its own", "of another", "no one's"])
def test_what_a_recorder_says_of_another_job_is_no_evidence(member: int, code: int) -> None:
    """Of processes of no job, as within containers with pids of their own, it may be this one."""
    other = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29501"}
    several = [rank(number) for number in range(4)] + [
        rank(number, looks(switches=500), pid=300 + number, job=other) for number in range(4)
    ]
    cause = RecordedCause("NCCL RAS: rank 2 has launched fewer", (2,), members=(member,))
    assert judged(*several, recorded=[cause])[0] == code


def test_a_device_that_is_named_is_the_rank_that_holds_it() -> None:
    ranks = [rank(number, devices=[f"/dev/davinci{number}"]) for number in range(4)]
    named = RecordedCause("HCCL: HCCL's heartbeat names host 127.10.0.1, device 3: LOST", places=(("127.10.0.1", 3),))
    _, report = judged(*ranks, recorded=[named])
    [finding] = findings(report)
    assert "rank 3 (NPU 3) keeps ranks 0, 1 and 2 waiting: HCCL" in finding


@pytest.mark.parametrize(
    "cause", [RecordedCause("flight recorder: x", (1,), may_pass=True), RecordedCause("RAS: x", (1,), is_sure=False)]
)
def test_what_may_pass_or_is_not_sure_accuses_nobody_of_a_job_that_moves(cause: RecordedCause) -> None:
    code, report = judged(*(rank(number, looks(switches=500)) for number in range(4)), recorded=[cause])
    assert (code, findings(report)) == (0, [])
    assert report.smoke and cause.text in report.smoke.notes


@pytest.mark.parametrize(
    ("looked", "sleeps_for", "code"),
    [(looks("", "R", ran=2.0, switches=90), -1.0, 12), (looks("sleep"), 5.0, 12), (looks("sleep"), -1.0, 10)],
    ids=["computes", "sleeps for 5 s", "sleeps"],
)
def test_a_recorder_that_finds_a_rank_behind_accuses_none_whose_work_may_end(
    looked: list[Look], sleeps_for: float, code: int
) -> None:
    """Seen on an H200: rank 0 evaluated for 70 s, the other waited in a barrier, and NCCL RAS counted one call less."""
    odd = rank(2, looked, COMPUTES, sleeps_for=sleeps_for)
    cause = RecordedCause("NCCL RAS: rank 2 has launched fewer", (2,), members=(102,))
    assert judged(odd, *three_wait(), recorded=[cause])[0] == code


def test_a_rank_that_is_behind_and_moves_bytes_is_neither_accused_nor_healthy() -> None:
    """Seen on an H200: rank 0 uploaded for 70 s, and the other one waited in a barrier."""
    ranks = [rank(number, looks(switches=500)) for number in range(4)]
    cause = RecordedCause("NCCL RAS: rank 2 has launched fewer.", (2,), members=(102,))
    code, report = judged(*ranks, recorded=[cause])
    assert (code, findings(report)) == (12, [])
    assert report.smoke and "look again" in str(report.outcomes)


@pytest.mark.parametrize("name", ["plain", "md", "html", "junit", "json"])
def test_what_a_host_says_is_shown_without_control_characters(name: str) -> None:
    hostile = rank(0, looks("read", file="/tmp/\x1b[31m\u202e"), [("f\x1b]0;x\x07", "/job/\x9btrain.py", 1)])
    answer = read_report(msgspec.json.encode(host(hostile, *(rank(number, None, WAITS) for number in (1, 2, 3)))))
    code, report = judged(reports={"node1": answer})
    text = render(name, report, RenderContext(code, {check.name: check for check in CATALOG}))
    assert "smoke-rank-blocked" in text
    assert not set(text) & set("\x1b\u202e\x07\x9b")


def test_what_tells_of_many_ranks_is_kept_and_more_is_cut() -> None:
    """A store has every rank of its host for a client, and a rank sends back up to 256 variables."""
    variables, clients = {f"NCCL_{number}": "1" for number in range(256)}, list(range(1, 513))
    busy = rank(0, looks("read"), WAITS, variables=variables, stores=[(29500, clients, clients)])
    endless = rank(1, looks("read"), WAITS, links=["x" * 9999] * 4096, awaits=list(range(4096)))
    answer = read_report(msgspec.json.encode(host(busy, endless)))
    assert (answer.ranks[0].variables, answer.ranks[0].stores) == (variables, [(29500, clients, clients)])
    assert (len(answer.ranks[1].links), len(answer.ranks[1].awaits)) == (1024, 1024)
    assert max(map(len, answer.ranks[1].links)) <= 301
