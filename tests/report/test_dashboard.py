"""The Grafana dashboard asks for what the Prometheus format exports, and for nothing else."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from doctor.net.cause import NetworkCause
from doctor.net.slow_paths import SlowPath
from doctor.report.formats.prometheus import render
from doctor.report.formats.registry import RenderContext
from tests.net.simulated import attempts, metrics_of
from tests.report import reports

FILE = Path(__file__).parents[2] / "doctor" / "docs" / "grafana-dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
ADDED_BY_PROMETHEUS = {"instance"}


def exported() -> dict[str, set[str]]:
    """Every metric with the labels that any report gives it."""
    labels: dict[str, set[str]] = {}
    slow = SlowPath(
        "host", (0,), "both", math.log(3.5), 0.0, 1e-6, 9, (), 2, figure="latency", value=1.0, peer_value=1.0
    )
    network = metrics_of(attempts(3, 1, []), [NetworkCause("host", (1,), (), "inbound")], [slow])
    for text in (network, *(render(make(), RenderContext(10, reports.CHECKS)) for make in reports.ALL.values())):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def expressions() -> list[str]:
    queries = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [variable for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"]
    return [*queries, *(variable["query"]["query"] for variable in variables)]


def test_every_metric_and_label_is_exported() -> None:
    metrics = exported()
    for expression in expressions():
        names = re.findall(r"doctor_\w+", expression)
        assert names, expression
        for name in names:
            assert name in metrics, name
            requested = set(re.findall(r"(\w+)=~?\"", expression)) | {
                label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")
            }
            assert requested <= metrics[name] | ADDED_BY_PROMETHEUS, expression


def test_legends_use_labels_of_their_metric() -> None:
    metrics = exported()
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            (name,) = re.findall(r"doctor_\w+", target["expr"])
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= metrics[name] | ADDED_BY_PROMETHEUS


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for place in (panel["gridPos"],)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
