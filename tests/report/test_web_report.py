"""The HTML report: what stands in it, and that nothing in it is more than text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from doctor.engine.catalog import load_checks
from doctor.engine.exit_code import exit_code
from doctor.engine.result import Report
from doctor.report.diff.load import BadReport, decode
from doctor.report.formats.json import encode
from doctor.report.formats.registry import RenderContext, render_bytes
from doctor.report.layout.fold import fold
from doctor.report.web.loss_chart import training_chart
from doctor.report.web.path_maps import network_map, pair_map
from doctor.report.web.report_values import hang_timeline
from tests.report import pictured_reports, recorded_fleets
from tests.report import reports as example_reports
from tests.report.strategies import reports
from tests.report.test_formats import large

CHECKS = {check.name: check for check in load_checks()}
MAX_BYTES = 300_000
"""Of a page of 64 hosts."""
VOID = {"meta", "br", "img", "input", "link", "wbr"}
HARMLESS_ATTRIBUTES = re.compile(
    r"(?:id|class|lang|charset|http-equiv|content|name|href|type|hidden|tabindex|role|scope|open|data-[a-z]+|aria-[a-z]+"
    r"|viewbox|x|y|x1|x2|y1|y2|cx|cy|r|width|height|points|text-anchor)\Z"
)


def rendered(report: Report, checks: Any = example_reports.PAGES) -> str:
    return render_bytes("html", report, RenderContext(int(exit_code(report)), checks)).decode("utf-8")


class Outline(HTMLParser):
    """The elements of a page, its text, and what is not as this project writes it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.contents: dict[str, list[str]] = {"style": [], "script": []}
        self.texts: list[str] = []
        self.feed(page)
        self.close()
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attributes}
        self.tags.append((tag, named))
        self.faults += [f"{tag} {name}" for name in named if not HARMLESS_ATTRIBUTES.match(name)]
        if "id" in named:
            self.ids.append(named["id"])
        if "href" in named:
            self.links.append(named["href"])
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes another element")

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"comment {data[:50]}")

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        if inside in self.contents:
            self.contents[inside].append(data)
        else:
            self.texts.append(data)

    @property
    def attributes(self) -> dict[str, dict[str, str]]:
        return dict(self.tags)


def data_of(outline: Outline) -> Any:
    return json.loads(outline.contents["script"][0])


ALL = {**example_reports.ALL, "pictured": pictured_reports.pictured, "evil": pictured_reports.evil}


@pytest.mark.parametrize("kind", ALL)
def test_a_page_is_one_well_formed_file_that_loads_and_runs_nothing_else(kind: str) -> None:
    page = rendered(ALL[kind]())
    outline = Outline(page)
    assert outline.faults == []
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert all(link.startswith("#") and link[1:] in outline.ids for link in outline.links)
    assert {tag for tag, _ in outline.tags} & {"img", "iframe", "object", "embed", "link", "base", "form"} == set()
    assert [named.get("type", "") for tag, named in outline.tags if tag == "script"] == ["application/json", ""]
    assert not [letter for letter in page if not letter.isprintable() and letter not in "\n"]


@pytest.mark.parametrize("kind", ["pictured", "evil", "nothing"])
def test_the_policy_allows_the_style_and_the_script_of_the_page_and_nothing_else(kind: str) -> None:
    outline = Outline(rendered(ALL[kind]()))
    (policy,) = [
        named["content"] for tag, named in outline.tags if named.get("http-equiv") == "Content-Security-Policy"
    ]
    allowed = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    (style,), (_, script) = outline.contents["style"], outline.contents["script"]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    assert allowed == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digests[0]}'",
        "script-src": f"'sha256-{digests[1]}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert not any(name == "style" for _, named in outline.tags for name in named)


def test_what_hosts_print_reaches_the_page_as_text_alone() -> None:
    page = rendered(pictured_reports.evil())
    outline = Outline(page)
    assert "<script>window.broken=1</script>" in outline.text
    assert page.count("<script") == 2
    assert not any("onmouseover" in name or "onfocus" in name for _, named in outline.tags for name in named)
    assert "\u202e" not in page and "\x1b" not in page
    assert "{{ 7 * 7 }}" in outline.text
    assert len(page.encode()) < 150_000, "a text of 300,000 letters is cut"


@pytest.mark.parametrize("name", recorded_fleets.RECORDED)
def test_every_finding_of_a_real_run_is_in_the_page_in_the_order_of_the_terminal(name: str) -> None:
    report = recorded_fleets.report(name)
    page = rendered(report, CHECKS)
    outline = Outline(page)
    failures = fold(report).failures
    heads = [named.get("data-check") for tag, named in outline.tags if tag == "article"]
    assert heads == [failure.outcome.check for failure in failures]
    for failure in failures:
        for group in failure.groups[:50]:
            message = fold(report).fleet.message(group.finding, 2000).replace("`", "")
            assert " ".join(message.split()) in outline.text
        assert all(other.check in outline.text for other in failure.following)
    for outcome in report.outcomes:
        assert outcome.check in page
    assert len(page.encode()) < MAX_BYTES


def test_a_page_of_64_hosts_with_every_figure_is_small() -> None:
    assert len(rendered(pictured_reports.pictured()).encode()) < MAX_BYTES


def test_a_page_of_a_thousand_hosts_stays_usable() -> None:
    assert len(rendered(large()).encode()) < 1_000_000


def letters(runs: str) -> str:
    return "".join(letter * int(count or 1) for count, letter in re.findall(r"(\d*)(\D)", runs))


def test_a_page_where_every_host_has_its_own_message_stays_small() -> None:
    """Of every finding the first messages, and the hosts of the others: the matrix of hosts and checks has them."""
    page = rendered(pictured_reports.crowded(300))
    assert page.count("<article") == 94
    assert len(re.findall(r"<[a-z]", page)) < 12_000
    assert page.count("more on node[") >= 94
    assert '<th scope="row"></th>' not in page


def test_the_grid_has_the_state_of_every_check_on_every_host() -> None:
    report = example_reports.dead_host()
    grid = data_of(Outline(rendered(report)))["grid"]
    dead = grid["hosts"].index(example_reports.DEAD)
    cells = {check[0]: letters(runs) for check, runs in zip(grid["checks"], grid["cells"], strict=True)}
    assert {len(row) for row in cells.values()} == {len(grid["hosts"])} == {64}
    assert cells["host-unreachable"][dead] == "E"
    assert cells["link-down"][dead] == "h", "a consequence of the dead host"
    assert cells["python3-missing"] == "p" * 64
    reports = {text for _, text, _ in grid["notes"]}
    assert {"connection refused on port 22", "not reached: connection refused"} <= reports


def test_what_is_not_known_is_never_shown_as_passed() -> None:
    report = example_reports.unknown()
    grid = data_of(Outline(rendered(report)))["grid"]
    column = [check[0] for check in grid["checks"]].index("somaxconn-low")
    assert letters(grid["cells"][column])[:4] == "uuup"
    outcome = example_reports.outcome("link-down", evaluated_hosts=example_reports.HOSTS[:2])
    grid = data_of(Outline(rendered(example_reports.report(outcome))))["grid"]
    assert letters(grid["cells"][0])[:3] == "pp.", "nothing is known of the third host"


def test_hosts_that_are_not_of_the_run_and_the_job_itself_have_rows_of_their_own() -> None:
    stranger = example_reports.Finding("it answers", hosts=("other",))
    report = example_reports.report(
        example_reports.outcome("link-down", stranger),
        example_reports.outcome("rank-table-hole", example_reports.Finding("a hole")),
    )
    grid = data_of(Outline(rendered(report)))["grid"]
    assert (grid["hosts"][0], grid["hosts"][-1], grid["foreign"]) == ("(the job itself)", "other", 1)


def test_sections_stand_only_where_something_was_measured() -> None:
    ids = Outline(rendered(example_reports.healthy())).ids
    assert not {"network", "smoke", "unknown"} & set(ids)
    text = Outline(rendered(example_reports.smoke_hang())).text
    assert "When each rank entered its last call: not measured." in text
    assert text.count("Not measured.") == 2
    ids = Outline(rendered(pictured_reports.pictured())).ids
    assert {"network", "smoke", "unknown", "training-chart", "learning-chart", "timeline-1"} <= set(ids)


def test_the_timeline_groups_ranks_by_call_and_begins_with_the_culprit() -> None:
    timeline = hang_timeline(pictured_reports.hang())
    assert timeline
    assert [(row.ranks, row.is_culprit, row.longest) for row in timeline.rows] == [
        ("rank 5", True, 1.04),
        ("ranks 0,2,4", False, 1.31),
        ("ranks 1,3,6-7", False, 1.22),
    ]
    assert timeline.rows[1].start == 0.0, "the first to enter is at the left end"
    first, second = timeline.rows[1].entries[:2]
    assert first < second < 640
    assert hang_timeline(msgspec.structs.replace(pictured_reports.hang(), ages={})) is None


def test_losses_are_drawn_as_far_as_they_are_finite() -> None:
    smoke = pictured_reports.pictured().smoke
    assert smoke
    chart = training_chart(smoke)
    assert chart
    assert [curve.name for curve in chart.curves] == ["reference run", "dp8", "tp8", "pp2 dp2 tp2 zero1", "dp4 tp2"]
    wrong = chart.curves[-1]
    assert len(wrong.pieces) == 1 and len(wrong.points) == 10
    assert wrong.losses[9:] == ("not finite", "not finite", "3.9")
    assert training_chart(example_reports.summary()) is None


def test_the_maps_have_every_attempt_and_speed() -> None:
    summary = pictured_reports.tested_network(24, 3)
    drawn = network_map(summary, [f"n{number}" for number in range(24)])
    worst, *ports = [layer for layer in drawn["layers"] if "cells" in layer]
    assert [port["name"] for port in ports] == ["master 29500", "hccl 60000", "hccl 60001"]
    assert letters(worst["cells"])[12 * 24 + 20] == "r"
    assert letters(worst["cells"])[20 * 24 + 12] == "?", "unknown is worse than open"
    assert letters(worst["cells"])[5 * 24 + 6] == "."
    speeds = {layer["name"]: layer for layer in drawn["layers"] if "dense" in layer}
    texts = speeds["latency, median"]["dense"].split(",")
    assert len(texts) == 24 * 24 and texts[0] == ""
    first = summary.speeds[0]["latency_median"]
    assert first
    assert float(texts[1]) * speeds["latency, median"]["scale"] == pytest.approx(first, rel=0.01)
    assert pair_map(example_reports.summary()) is None


def test_a_saved_report_gives_the_same_page() -> None:
    report = pictured_reports.pictured(12)
    assert rendered(decode(encode(report, 10), "x")) == rendered(report)


@settings(max_examples=40, deadline=None)
@given(reports())
def test_any_report_makes_a_well_formed_page(report: Report) -> None:
    page = rendered(report)
    outline = Outline(page)
    assert outline.faults == [] and outline.open == []
    assert not [letter for letter in page if not letter.isprintable() and letter != "\n"]


def test_speeds_that_make_no_sense_are_refused_where_a_report_is_read() -> None:
    document = json.loads(encode(pictured_reports.pictured(12), 10))
    document["net"]["speeds"][0]["source"] = 0.5
    with pytest.raises(BadReport, match="not a report"):
        decode(json.dumps(document).encode(), "x")


def test_a_time_that_is_no_number_is_left_out_of_the_document() -> None:
    failure = msgspec.structs.replace(pictured_reports.hang(), ages={0: math.nan, 1: 2.5})
    report = example_reports.report(
        example_reports.outcome("rank-blocked"), smoke=example_reports.summary(failures=(failure,))
    )
    assert json.loads(encode(report, 10))["smoke"]["failures"][0]["ages"] == [{"rank": 1, "seconds": 2.5}]


def test_the_template_engine_is_loaded_for_this_format_alone() -> None:
    program = (
        "import sys; from importlib import import_module; from doctor.cli.main import main;"
        "from doctor.report.formats.registry import REPORT_FORMATS;"
        "others = {row.module for row in REPORT_FORMATS.values()} - {'html'};"
        "[import_module(f'doctor.report.formats.{module}') for module in others];"
        "sys.exit('jinja2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=100).returncode == 0
