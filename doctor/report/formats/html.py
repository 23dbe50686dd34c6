"""The report as one HTML file for a browser, a mail or a CI artifact."""

from __future__ import annotations

from doctor.engine.result import Report
from doctor.report.formats.registry import RenderContext
from doctor.report.web.report_values import report_values
from doctor.report.web.self_contained import self_contained_page


def render(report: Report, context: RenderContext) -> str:
    """The page."""
    values = report_values(report, context.checks_by_name, context.code, context.fixable_checks, context.command)
    return self_contained_page("report.html.jinja", **values)
