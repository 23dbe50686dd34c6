"""Made-up runs of a few hosts, and checks that look at one number of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from doctor import ERROR, WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.engine.catalog import bundled_folder, load_check
from doctor.engine.check import Check
from doctor.engine.fact import Fact, Output, ProbeAnswer, Unreadable, Visit, read
from doctor.engine.record import SCHEMA, HostRecord, ProbeInputs, Run
from doctor.engine.result import Report
from doctor.session.replay import replay


class Gauge(Fact, frozen=True):
    """A number of the host: 5 is right."""

    probe = read("/gauge")

    number: int

    @classmethod
    def read(cls, answer: ProbeAnswer) -> Gauge:
        return cls(number=int(answer.text("/gauge")))


@check(severity=ERROR)
def gauge_low(gauge: Gauge) -> Iterator[Finding]:
    """Every gauge shows 5 or more."""
    if gauge.number < 5:
        yield Finding("it shows {observed}", observed=gauge.number)


@check(severity=WARNING)
def gauge_high(gauge: Gauge) -> Iterator[Finding]:
    """No gauge shows more than 9."""
    if gauge.number > 9:
        yield Finding("it shows {observed}", observed=gauge.number)


@check(severity=ERROR)
def gauge_repeated(gauges: PerHost[Gauge]) -> Iterator[Finding]:
    """No two hosts show the same number from 6 to 9."""
    for number in range(6, 10):
        hosts = [host for host, gauge in gauges.items() if gauge.number == number]
        if len(hosts) > 1:
            yield Finding("{hosts_} show {number}", hosts=hosts, hosts_=hosts, number=number)


@check(severity=ERROR)
def gauge_differs(gauges: PerHost[Gauge]) -> Iterator[Finding]:
    """All gauges show the same."""
    if len(gauges) > 1:
        yield from differing({host: gauge.number for host, gauge in gauges.items()}, "{observed} is not {expected}")


@check(severity=ERROR)
def gauge_seven(gauges: PerHost[Gauge]) -> Iterator[Finding]:
    """No gauge shows 7; who is wrong is not said."""
    if any(gauge.number == 7 for gauge in gauges.values()):
        yield Finding("one of them shows 7")


@check(severity=ERROR)
def gauge_unsure(gauges: PerHost[Gauge]) -> Iterator[Finding]:
    """What others show is known only when none shows 4."""
    if any(gauge.number == 4 for gauge in gauges.values()):
        raise Unreadable("one of them shows 4")
    yield from ()


@check(severity=ERROR)
def gauge_crashes(gauge: Gauge) -> Iterator[Finding]:
    """Breaks on 8."""
    if gauge.number == 8:
        raise KeyError
    yield from ()


def ours(*functions: Callable[..., Iterable[Finding]]) -> list[Check]:
    return [Check(function) for function in functions]


def real(*names: str) -> list[Check]:
    return [load_check(bundled_folder("checks") / f"{name.replace('-', '_')}.py") for name in names]


ROOTS = real("host-unreachable", "python3-missing")


def run(hosts: Mapping[str, Any], **more: Any) -> Run:
    """Each host shows its number; a text is the trouble that kept us from it."""
    records = {}
    for host, number in hosts.items():
        if isinstance(number, str):
            records[host] = HostRecord(Visit(number, "no answer"))
        else:
            records[host] = HostRecord(Visit(), {"Gauge": {"/gauge": Output(out=str(number))}})
    source = f"{len(hosts)} hosts from the test"
    created_run = Run(SCHEMA, source, "", 0.0, records, ProbeInputs(hosts=tuple(hosts)))
    return msgspec.structs.replace(created_run, **more)


def with_facts(created_run: Run, **facts: Mapping[str, Any]) -> Run:
    """The run with what `ask` functions returned, by fact and host."""
    hosts = dict(created_run.hosts)
    for name, fact in facts.items():
        for host, value in fact.items():
            outputs = {**hosts[host].outputs, name: {"": Output(out=json.dumps(value))}}
            hosts[host] = HostRecord(hosts[host].visit, outputs)
    return msgspec.structs.replace(created_run, hosts=hosts)


def judge_by(checks: list[Check]) -> Callable[[Run], Report]:
    return lambda created: replay(created, checks)
