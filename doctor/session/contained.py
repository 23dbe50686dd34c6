"""Findings of hosts that are containers: what is to be done is another thing there than on a machine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Fact
from doctor.engine.result import CONTAINER, IN_CONTAINER, Finding, Report
from doctor.facts.container import ContainerView, Engine, HostContainer, JobContainer

APPLICATION_ENGINES: tuple[Engine, ...] = ("docker", "podman", "kubernetes", "containerd")
"""Engines whose containers have limits, names and kernel settings from outside. Apptainer and enroot leave those of
the host as they are, and an LXC or systemd-nspawn container is set up like a machine."""


def needed_facts(checks: Sequence[Check]) -> list[type[Fact]]:
    """What must be read for these checks, and so that their findings can say that a host is a container."""
    facts = [fact for check in checks for fact in check.facts]
    return [*facts, *container_views(checks)]


def container_views(checks: Sequence[Check]) -> list[type[Fact]]:
    """What must be read so that findings of these checks can say that a host is a container."""
    return [_view(check) for check in checks if check.section(IN_CONTAINER)]


def with_containers(report: Report, checks: Sequence[Check], cache: FactCache) -> Report:
    """``report``, whose findings in containers have the engine as the value ``container``.

    Those of checks whose page says what to do in a container, and others where it was read anyway.
    """
    views = {check.name: _view(check) for check in checks}

    def engine(host: str, view: type[ContainerView]) -> str:
        value = cache.get(host, view) if host in cache.records else None
        return value.engine if isinstance(value, ContainerView) and value.engine in APPLICATION_ENGINES else ""

    def with_engine(finding: Finding, view: type[ContainerView]) -> Finding:
        engines = {engine(host, view) for host in finding.hosts}
        if not engines or "" in engines or CONTAINER in finding.values:
            return finding
        copy = finding.as_warning(finding.is_warning)
        copy.values[CONTAINER] = sorted(engines)[0]
        return copy

    outcomes = tuple(
        msgspec.structs.replace(
            outcome, findings=tuple(with_engine(finding, views[outcome.check]) for finding in outcome.findings)
        )
        if outcome.findings and outcome.check in views
        else outcome
        for outcome in report.outcomes
    )
    return msgspec.structs.replace(report, outcomes=outcomes)


def _view(check: Check) -> type[ContainerView]:
    """The container that the check looks at: the job's where one of its facts is read there, else the host's own."""
    inside = any(fact.probe.job for fact in check.facts if not issubclass(fact, ContainerView))
    return JobContainer if inside else HostContainer
