"""What the section on a smoke run says, and never says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.engine.exit_code import Verdict, exit_code, verdict
from doctor.engine.quantities import bytes_text
from doctor.engine.result import Report
from doctor.engine.smoke_summary import SoakErrors, SoakFigures, SoakLink
from doctor.report.diff.load import decode
from doctor.report.formats.json import encode
from doctor.report.layout.smoke_section import MAX_STACK_LINES, ranks_in_words, smoke_lines
from doctor.smoke.model import Failure
from tests.examples import examples
from tests.report import rendering, reports
from tests.schemas import schema_file

VALID = jsonschema.Draft202012Validator(json.loads(schema_file("report").read_text("utf-8")))


def lines(report: Report, **more: Any) -> list[str]:
    return rendering.plain(report, reports.PAGES, **more).splitlines()


def under(label: str, report: Report, full: bool = False) -> list[str]:
    """The lines of one label."""
    names: list[str] = []
    last = ""
    assert report.smoke
    for name, text in smoke_lines(report.smoke, full):
        last = name or last
        names += [text] if last == label else []
    return names


def test_the_cause_comes_first_with_where_it_is_and_what_it_did() -> None:
    observed_lines = [line for line in lines(reports.smoke_hang()) if line.startswith("smoke   ")]
    assert observed_lines[0] == (
        "smoke   cause: rank 5 (node002, NPU 1) blocked outside of a collective, stage training, "
        "layout pp2 dp2 tp2, step 2: sleeping in hrtimer_nanosleep"
    )
    assert observed_lines[1] == "smoke   call: rank 5: compute, after all_reduce #6 (128 x float32, group dp2)"


def test_who_waits_in_one_call_stands_together() -> None:
    assert under("waited", reports.smoke_hang()) == [
        "ranks 0,2,4: all_reduce #7 (128 x float32, group dp2)",
        "ranks 1,3,6-7: recv #3 (256 x float32, group p2p 4>6)",
    ]


def test_the_stack_is_the_guilty_ranks_and_bounded() -> None:
    stack = under("stack", reports.smoke_hang())
    assert stack[0] == "rank 5, innermost call first:"
    assert stack[1] == '  File "train.py", line 40 in step_0'
    assert stack[MAX_STACK_LINES + 1 : MAX_STACK_LINES + 3] == [
        "  ... 8 more lines",
        "all ranks, outermost call first:",
    ]
    full = under("stack", reports.smoke_hang(), full=True)
    assert full.index("all ranks, outermost call first:") == 2 * (MAX_STACK_LINES + 2)


def test_what_was_not_reached_is_said() -> None:
    assert under("unfinished", reports.smoke_hang()) == ["training, learning, loader, pace, teardown"]
    assert under("unfinished", reports.smoke_fine()) == []


def test_only_the_largest_message_of_each_collective_unless_all_is_asked_for() -> None:
    brief, full = under("speed", reports.smoke_fine()), under("speed", reports.smoke_fine(), full=True)
    assert [line.split(",")[0] for line in brief[1:]] == ["all_reduce 4 MiB", "barrier"]
    assert len(full) == 6
    assert brief[1] == "all_reduce 4 MiB, world of 8: 12.1 ms, 347 / 607 MB/s"


def test_what_a_consequence_hides_is_not_unknown_on_hosts_without_a_finding() -> None:
    """One rank stops the run on all hosts: nobody is to look for a second reason on the others."""
    assert not [line for line in lines(reports.smoke_hang()) if line.startswith("unknown")]


def test_every_kind_of_trouble_has_words() -> None:
    kinds = Failure.__annotations__["kind"]
    names = set(msgspec.json.schema(Failure)["$defs"]["Failure"]["properties"]["kind"]["enum"])
    assert kinds == "FailureKind"
    for kind in sorted(names):
        run = reports.summary(ended="trouble", failures=(Failure(kind, culprit_ranks=(1,)),))
        report = reports.report(hosts=reports.PAIR, smoke=run)
        (cause,) = under("cause", report)
        assert cause.startswith("rank 1 (node001, NPU 1) ")
        VALID.validate(json.loads(encode(report, exit_code(report))))


def test_a_run_that_was_cut_short_is_never_healthy() -> None:
    for ended in ("trouble", "budget", "interrupted"):
        report = reports.report(reports.outcome("host-unreachable"), smoke=reports.summary(ended=ended))
        assert verdict(report) is Verdict.UNKNOWN
        assert exit_code(report) == 12
        assert lines(report)[-1] == "UNKNOWN: the smoke run did not finish"


def test_json_has_all_of_it_with_its_types() -> None:
    document = json.loads(encode(reports.smoke_hang(), 10))
    VALID.validate(document)
    run = document["smoke"]
    assert run["hosts"] == [{"host": "node001", "ranks": 4}, {"host": "node002", "ranks": 4}]
    assert run["layouts"][1] == {"layout": "pp2 dp2 tp2", "steps": 0, "error": None, "losses": []}
    assert run["collective_speeds"][2]["busbw"] == pytest.approx((4 << 20) / 0.0121 * 1.75)
    (trouble, later) = run["failures"]
    assert (trouble["kind"], trouble["culprit_ranks"], trouble["seq"]) == ("blocked", [5], 7)
    assert trouble["calls"][5] == {"rank": 5, "text": "compute, after all_reduce #6 (128 x float32, group dp2)"}
    assert later["text"] == "signal 9"
    assert json.loads(encode(reports.healthy(), 0))["smoke"] is None


SOAK = SoakFigures(60.0, {"all_reduce": 900}, (SoakErrors(5, "all_reduce", 2, 900),), (SoakLink(0, 5, 2),))


def test_the_counts_of_a_soak() -> None:
    report = reports.report(reports.outcome("host-unreachable"), smoke=reports.summary(soak=SOAK))
    assert under("soak", report) == [
        "900 collectives on each rank in 60.0 s: 2 wrong results on rank 5",
        "rank 5 (node002, NPU 1): 2 of 900 all_reduce",
        "rank 0 (node001, NPU 0) to rank 5 (node002, NPU 1): 2",
    ]
    document = json.loads(encode(report, exit_code(report)))
    VALID.validate(document)
    assert document["smoke"]["soak"]["errors"] == [{"rank": 5, "op": "all_reduce", "wrong": 2, "calls": 900}]
    assert document["smoke"]["soak"]["links"] == [{"source": 0, "rank": 5, "wrong": 2}]
    assert getattr(decode(encode(report, exit_code(report)), "r").smoke, "soak", None) == SOAK
    clean = reports.report(
        reports.outcome("host-unreachable"), smoke=reports.summary(soak=SoakFigures(5.0, {"all_reduce": 9}))
    )
    assert under("soak", clean) == ["9 collectives on each rank in 5.0 s: no wrong result"]


@settings(max_examples=examples(60), deadline=None)
@given(st.text(max_size=300), st.floats(), st.integers(-(1 << 63), 1 << 64))
def test_no_word_of_a_rank_breaks_the_layout_or_the_schema(evil: str, number: float, outlier: int) -> None:
    trouble = Failure(
        "dead", (0, 7), (1,), ((evil, evil),), "certain", evil, evil, outlier, evil, outlier, evil, outlier, evil, evil
    )
    trouble = msgspec.structs.replace(trouble, calls={0: evil, 1: evil}, stacks={0: evil}, evidence=(evil,))
    run = reports.summary(
        failures=(trouble,),
        environments=(msgspec.structs.replace(reports.summary().environments[0], torch=evil, device=evil),),
        layouts=(msgspec.structs.replace(reports.summary().layouts[0], error=abs(number)),),
        notes=(evil,),
        placements=(evil,) * 8,
        soak=SoakFigures(1.0, {evil: 3}, (SoakErrors(1, evil, 1, 3),), (SoakLink(0, 1, 1),)),
    )
    report = reports.report(reports.outcome("host-unreachable"), smoke=run)
    output = rendering.plain(report, reports.PAGES)
    assert all(line.isprintable() for line in output.splitlines())
    assert all(line[:8].strip() in ("ok", "smoke", "run", "") for line in output.splitlines()[:-1])
    VALID.validate(json.loads(encode(report, exit_code(report))))


def test_ranks_and_sizes_in_words() -> None:
    assert [ranks_in_words(ranks) for ranks in ((3,), (0, 1, 2, 5), (7, 5))] == ["rank 3", "ranks 0-2,5", "ranks 5,7"]
    assert [bytes_text(number) for number in (4, 1023, 65536, 4 << 20, 3 << 29)] == [
        "4 B",
        "1023 B",
        "64 KiB",
        "4 MiB",
        "1.5 GiB",
    ]


def test_ranks_that_differ_among_themselves_are_not_held_against_others() -> None:
    hang = reports.smoke_hang().smoke
    assert hang
    failure = Failure("mismatch", culprit_ranks=(0, 1), calls={0: "all_reduce #7 (4 x float32)", 1: "barrier #7"})
    (cause, *_) = (text for _, text in smoke_lines(msgspec.structs.replace(hang, failures=(failure,)), False))
    assert "called different collectives" in cause
    assert "others" not in cause
