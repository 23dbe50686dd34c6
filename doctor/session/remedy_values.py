"""Values that a remedy needs beside those of the check: the container that a host is, the rank table, the devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from doctor.engine.check import Check
from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Fact
from doctor.engine.result import CONTAINER, IN_CONTAINER, Finding, Report
from doctor.engine.shell_quote import placeholder_names
from doctor.facts.container import ContainerView, Engine, HostContainer, JobContainer

if TYPE_CHECKING:
    from doctor.smoke.model import RankPlacement

T = TypeVar("T")
RANK_TABLE = "rank_table"
"""A finding's value: the file of the job's rank table."""
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
        return finding.with_values(**{CONTAINER: sorted(engines)[0]})

    return _with_findings(report, views, with_engine)


def with_rank_table(report: Report, checks: Sequence[Check], path: str) -> Report:
    """``report``, whose findings have the job's rank table as `RANK_TABLE` where the check's page names it."""
    pages = {check.name: path for check in _naming(checks, RANK_TABLE)} if path else {}
    return _with_findings(report, pages, lambda finding, table: finding.with_values(**{RANK_TABLE: table}))


def with_places(report: Report, checks: Sequence[Check], places: Sequence[RankPlacement]) -> Report:
    """``report``, whose findings of ranks have ``device`` and ``peer`` where the check's page names them.

    ``device``: the number of the NPU or GPU of the first rank to blame on the finding's first host, where it has one.
    ``peer``: another host of the finding; of a finding of one host, the next one of the run.
    """
    pages = {check.name: places for check in _naming(checks, "device", "peer") if check.area == "smoke" and places}
    return _with_findings(report, pages, lambda finding, given: finding.with_values(**_place_values(finding, given)))


def _place_values(finding: Finding, places: Sequence[RankPlacement]) -> dict[str, Any]:
    if not finding.hosts:
        return {}
    first, *others = finding.hosts
    blamed = finding.values.get("ranks", [finding.values.get("rank")])
    on_first = [place for place in places if place.host == first]
    blamed_places = [place for place in on_first if isinstance(blamed, list) and place.rank in blamed] or on_first
    peers = [host for host in [*others, *(place.host for place in places)] if host != first]
    values: dict[str, Any] = {}
    if blamed_places and blamed_places[0].device >= 0:
        values["device"] = blamed_places[0].device
    if peers:
        values["peer"] = peers[0]
    return {name: value for name, value in values.items() if name not in finding.values}


def _naming(checks: Sequence[Check], *names: str) -> list[Check]:
    """The checks whose remedy names one of these values."""
    return [check for check in checks if placeholder_names(check.section("What to do")) & {*names}]


def _with_findings(report: Report, of_checks: Mapping[str, T], change: Callable[[Finding, T], Finding]) -> Report:
    """``report``, with the findings of these checks changed."""
    outcomes = tuple(
        msgspec.structs.replace(
            outcome, findings=tuple(change(finding, of_checks[outcome.check]) for finding in outcome.findings)
        )
        if outcome.findings and outcome.check in of_checks
        else outcome
        for outcome in report.outcomes
    )
    return msgspec.structs.replace(report, outcomes=outcomes)


def _view(check: Check) -> type[ContainerView]:
    """The container that the check looks at: the job's where one of its facts is read there, else the host's own."""
    inside = any(fact.probe.job for fact in check.facts if not issubclass(fact, ContainerView))
    return JobContainer if inside else HostContainer
