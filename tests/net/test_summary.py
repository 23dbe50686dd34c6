"""The network test in a report: JSON that its schema allows and that is read again, a map, metrics."""

from __future__ import annotations

import json

import jsonschema

from doctor.engine.fact import PerHost
from doctor.engine.report_parts import NetSummary
from doctor.engine.result import Report
from doctor.facts.network_test import NetworkAnswer
from doctor.net.summary import summarise_test
from doctor.report.diff.load import decode
from doctor.report.formats import prometheus
from doctor.report.formats.json import encode
from doctor.report.formats.registry import RenderContext
from tests.checks.net_answers import HEALTHY, answers
from tests.checks.test_net_path_slow import measured
from tests.report import rendering
from tests.schemas import schema_file

FAILED = answers([["-odo", "o-do", "dd-d", "ood-"]] * 2)


def reported(facts: object) -> Report:
    values: dict[str, NetworkAnswer] = {host: host_facts[0] for host, host_facts in facts.items()}  # type: ignore[attr-defined]
    hosts = tuple(values)
    return Report("4 hosts", hosts, (), net=summarise_test(PerHost(values), hosts))


def test_the_document_is_what_its_schema_says_and_reads_back_equal() -> None:
    for facts in (HEALTHY, FAILED, measured({(1, 5): 8.0})):
        report = reported(facts)
        assert isinstance(report.net, NetSummary)
        data = encode(report, 0)
        jsonschema.validate(json.loads(data), json.loads(schema_file("report").read_text()))
        assert decode(data, "report.json").net == report.net


def test_a_map_is_drawn_where_an_attempt_failed_and_only_there() -> None:
    assert "net     2 w3" in rendering.plain(reported(FAILED), {})
    assert "net     " not in rendering.plain(reported(HEALTHY), {})


def test_the_metrics_name_the_host() -> None:
    text = prometheus.render(reported(FAILED), RenderContext(10))
    assert 'doctor_net_causes{host="w3"} 1.0' in text
    assert 'doctor_net_causes{host="w1"} 0.0' in text


def test_figures_that_do_not_fit_the_reports_hosts_are_left_out() -> None:
    document = json.loads(encode(reported(FAILED), 0))
    document["net"]["rows"][0].pop()
    assert decode(json.dumps(document).encode(), "report.json").net is None
