"""The report as one HTML file for a browser, a mail or a CI artifact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from doctor.report.formats.renderer import RenderContext, Renderer

if TYPE_CHECKING:
    from doctor.engine.result import Report


class HtmlRenderer(Renderer):
    """`html`, as ``-f`` names it."""

    name = "html"
    purpose = "a browser: one file with tables, maps and charts, which loads nothing"
    is_localized = True

    def render(self, report: Report, context: RenderContext) -> str:
        from doctor.report.web.report_values import report_values
        from doctor.report.web.self_contained import self_contained_page

        values = report_values(report, context.checks_by_name, context.code, context.fixable_checks, context.command)
        return self_contained_page("report.html.jinja", **values)


RENDERER = HtmlRenderer()
