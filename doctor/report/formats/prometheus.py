"""The report as Prometheus metrics, for the textfile collector of node_exporter.

The file's name must end in ``.prom``, or the collector does not read it. A check has up to six series, a host up to
five, and each pair of a check and a host with a finding one, up to `MAX_PAIRS`. What is healthy is only counted.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from doctor import __version__
from doctor.engine.check import Check
from doctor.engine.result import Outcome, Report
from doctor.net.localize import localize
from doctor.net.slow_paths import slow_paths
from doctor.net.summary import add_metrics, matrix_of
from doctor.report.formats.registry import RenderContext
from doctor.report.layout.failures import filled_fix, first_sentences, fix_template, why_text
from doctor.report.layout.fold import sort_by_area
from doctor.report.layout.formatting import clean, unwrap_lines
from doctor.report.layout.host_health import HostHealth, classify_hosts
from doctor.report.layout.host_names import Fleet

STATES = ("healthy", "bad", "unknown")
MAX_PAIRS = 5000
"""Pairs of a check and a host that have a series; the rest is counted."""


def render(report: Report, context: RenderContext) -> str:
    """The metrics."""
    metrics, fleet = _Metrics(), Fleet.of_report(report)
    metrics.run(report, context.code)
    for outcome in sort_by_area(report.outcomes):
        metrics.check(outcome)
        metrics.advise(outcome, context.checks_by_name.get(outcome.check), fleet)
    metrics.hosts(report, classify_hosts(report))
    metrics.pairs(report)
    metrics.net(report)
    return generate_latest(metrics.registry).decode("utf-8")


class _Metrics:
    """Gauges in a registry of their own: the global one would add this process's."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"doctor_{name}", text, labels, registry=self.registry)

    def run(self, report: Report, code: int) -> None:
        self.gauge("build_info", "Version of cluster-doctor.", "version").labels(__version__).set(1)
        self.gauge("run_exit_code", "Exit code of the run: 0 healthy, 10 failed, 12 unknown.").set(int(code))
        self.gauge("run_duration_seconds", "Duration of the run, in seconds.").set(report.seconds)
        ended = _timestamp(report.started)
        if ended is not None:
            self.gauge("run_timestamp_seconds", "Start of the run, in seconds since the epoch.").set(ended)
        hosts = self.gauge("run_hosts", "Hosts of the run by state.", "state")
        host_health = classify_hosts(report)
        for state in STATES:
            hosts.labels(state).set(len(getattr(host_health, state)))
        waived = self.gauge("waived_findings", "Findings accepted by a waiver.")
        waived.set(sum(len(outcome.waived) for outcome in report.outcomes))
        self.status = self.gauge(
            "check_status", "Status of a check, as a label.", "check", "area", "severity", "status"
        )
        self.findings = self.gauge("check_findings", "Findings of a check.", "check", "area", "severity")
        self.hosts_of_check = self.gauge("check_hosts", "Hosts of a check by state.", "check", "area", "state")
        self.advice = self.gauge("check_advice", "Why a finding matters, and its first remedy.", "check", "why", "fix")

    def check(self, outcome: Outcome) -> None:
        labels = (clean(outcome.check), clean(outcome.area), outcome.found_severity.value)
        self.status.labels(*labels, outcome.status.value).set(1)
        self.findings.labels(*labels).set(len(outcome.findings))
        hosts_by_state = {
            "failed": {host for finding in outcome.findings for host in finding.hosts},
            "evaluated": set(outcome.evaluated_hosts),
            "unknown": {host for host in (*outcome.unknown, *outcome.crashed) if host},
        }
        for state, hosts in hosts_by_state.items():
            if hosts:
                self.hosts_of_check.labels(*labels[:2], state).set(len(hosts))

    def advise(self, outcome: Outcome, check: Check | None, fleet: Fleet) -> None:
        """Why, and what to do about the first finding: one series for a check that has any."""
        for finding in outcome.findings[:1]:
            fix = filled_fix(fix_template(check, (finding,)), finding, fleet.ordered(finding.hosts), fleet)
            texts = [first_sentences(unwrap_lines(why_text(check, (finding,)))), first_sentences(fix)]
            if any(texts):
                self.advice.labels(clean(outcome.check), *(clean(text, 400) for text in texts)).set(1)

    def hosts(self, report: Report, host_health: HostHealth) -> None:
        well = self.gauge("host_healthy", "1: checked, no error, nothing unknown.", "host")
        findings = self.gauge("host_findings", "Findings that blame a host.", "host", "severity")
        fine = set(host_health.healthy)
        for host in sorted(
            report.hosts, key=lambda name: name in fine, reverse=True
        ):  # of equal names the worse counts
            well.labels(_label(host)).set(host in fine)
        blamed = Counter(
            (_label(host), outcome.severity_of(finding).value)
            for outcome in report.outcomes
            for finding in outcome.findings
            for host in finding.hosts
        )
        for (host, severity), number in sorted(blamed.items()):
            findings.labels(host, severity).set(number)

    def pairs(self, report: Report) -> None:
        """Each check and host with a finding; errors first, where there are too many."""
        counts = Counter(
            (outcome.severity_of(finding).value, clean(outcome.check), _label(host))
            for outcome in report.outcomes
            for finding in outcome.findings
            for host in finding.hosts
        )
        rows = sorted(counts.items())  # error comes before warning
        findings = self.gauge(
            "host_check_findings", "Findings of a check that blame a host.", "host", "check", "severity"
        )
        for (severity, check, host), number in rows[:MAX_PAIRS]:
            findings.labels(host, check, severity).set(number)
        omitted = self.gauge(
            "host_check_findings_omitted", "Pairs of a check and a host left out, for there are too many."
        )
        omitted.set(max(0, len(rows) - MAX_PAIRS))
        checks = self.gauge("host_checks", "Checks that judged a host, or could not.", "host", "state")
        judged = Counter(host for outcome in report.outcomes for host in outcome.evaluated_hosts)
        unknown = Counter(host for outcome in report.outcomes for host in {*outcome.unknown, *outcome.crashed} if host)
        for host in report.hosts:
            checks.labels(_label(host), "evaluated").set(judged[host])
            checks.labels(_label(host), "unknown").set(unknown[host])

    def net(self, report: Report) -> None:
        """The network test, where one was made."""
        if report.net is None:
            return
        matrix = matrix_of(report.net, report.hosts)
        add_metrics(self.registry, matrix, localize(matrix).causes, slow_paths(matrix.speeds))


def _label(host: str) -> str:
    return clean(host, 100)


def _timestamp(started: str) -> float | None:
    try:
        return datetime.fromisoformat(started.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        return None
