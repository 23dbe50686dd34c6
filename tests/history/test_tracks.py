"""What came, went, flapped and stayed; and how the fleet changed."""

from __future__ import annotations

import json

import jsonschema
import pytest

from doctor.engine.output_encoding import display_width
from doctor.history.render_history import render, render_json
from doctor.history.run_record import RunRecord
from doctor.history.tracks import HistoryPage, Track, history_page
from tests.history.runs import DRIVER, LINK, at, record
from tests.schemas import schema_file


def row(states: str) -> list[RunRecord]:
    """One host over several runs."""
    return [record(minute, n1=state) for minute, state in enumerate(states)]


def only_track(runs: list[RunRecord]) -> Track:
    (track,) = history_page(runs).tracks
    return track


@pytest.mark.parametrize(
    ("states", "kind", "times"),
    [
        ("E", "stays", 1),
        ("EWA", "stays", 1),
        ("..E", "came", 1),
        ("E..", "went", 1),
        (".E.", "went", 1),
        ("E.E", "flapped", 2),
        (".E.E.", "flapped", 2),
        ("E?E", "stays", 1),
        (".?E", "came", 1),
    ],
)
def test_a_finding_over_time(states: str, kind: str, times: int) -> None:
    track = only_track(row(states))
    assert (track.kind, track.times) == (kind, times)


def test_what_was_not_looked_at_is_never_gone() -> None:
    """Neither where the check could not look, nor where the host was not in the run."""
    for last in (record(2, n1="?"), record(2, n2="."), record(2, n1="s")):
        track = only_track([record(0, n1="."), record(1, n1="E"), last])
        assert (track.kind, track.is_present, track.is_current) == ("came", True, False)
        assert "not checked since 14:01" in render(history_page([record(0, n1="."), record(1, n1="E"), last]), 0)


def test_what_compares_hosts_is_not_gone_because_the_others_were_absent() -> None:
    runs = [record(1, name=DRIVER, n1="E", n2=".", n3="."), record(2, name=DRIVER, n1=".")]
    assert only_track(runs[:1]).kind == "stays"
    assert only_track(runs).states != ("error", "clear")


def test_hosts_with_the_same_course_are_one_track() -> None:
    page = history_page([record(1, n1=".", n2=".", n3="."), record(2, n1="E", n2="E", n3=".")])
    assert [(track.check, track.hosts) for track in page.tracks] == [(LINK, ("n1", "n2"))]


def test_what_flaps_stands_first() -> None:
    runs = [
        record(minute, n1=name, n2=two, n3=three) for minute, (name, two, three) in enumerate(["E.E", "..E", "EEE"])
    ]
    assert [track.kind for track in history_page(runs).tracks] == ["flapped", "came", "stays"]


def test_the_runs_tell_what_came_and_went_and_how_the_fleet_changed() -> None:
    runs = [
        record(1, n1="E", n2=".", n3="E"),
        record(2, name=DRIVER, command="net", n9="."),
        record(3, n1=".", n2="E", n4="E"),
    ]
    summary = history_page(runs).runs[-1]
    assert (summary.came, summary.went, summary.findings) == (1, 1, 2)  # n3 is not there, and n4 was not
    assert (summary.hosts_added, summary.hosts_removed) == (("n4",), ("n3",))


def test_one_host_or_one_check() -> None:
    runs = [record(1, n1="E", n2="E"), record(2, n2="E"), record(3, name=DRIVER, n1="E", n2=".")]
    page = history_page(runs, hosts=["n1"])
    assert {(track.check, track.hosts) for track in page.tracks} == {(LINK, ("n1",)), (DRIVER, ("n1",))}
    assert page.checks_by_host == {"n1": 2}
    assert {track.check for track in history_page(runs, check=DRIVER).tracks} == {DRIVER}


def page_of_all() -> HistoryPage:
    runs = [
        record(minute, **{f"node{number:03d}": "E.?AW"[(minute * number) % 5] for number in range(1, 20)})
        for minute in range(30)
    ]
    return history_page(runs, damaged=1)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("subject", ["", LINK])
def test_no_line_is_wider_than_the_terminal(width: int, subject: str) -> None:
    text = render(page_of_all(), width, subject)
    assert max(map(display_width, text.splitlines())) <= max(width, 70)
    assert "1 file could not be read" in " ".join(text.split())


def test_the_document_is_as_its_schema_says() -> None:
    document = json.loads(render_json(page_of_all()))
    jsonschema.validate(document, json.loads(schema_file("history").read_text("utf-8")))
    assert len(document["runs"]) == 30
    assert len(document["tracks"][0]["states"]) == 30


def test_a_name_from_a_host_reaches_no_terminal() -> None:
    hostile = {"\x1b[31mn1\x07": "E", "n2": "."}
    text = render(history_page([record(1, **hostile)], hosts=list(hostile)), 80, "\x1b[31mn1\x07")
    assert text.replace("\n", "").isprintable()


def test_times_of_today_are_short() -> None:
    assert f"present since {at(2)[11:16]} UTC, in 1 of 3 runs" in render(history_page(row("..E")), 0)
