"""What a network test did not take in, or does not list, is said beside how much it tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord
from doctor.facts.network_test import NetworkAnswer
from doctor.net.findings import localized
from doctor.net.localize import MOST_CAUSES
from doctor.net.plan import NetOptions
from doctor.net.run.network_round import MAX_NAMED_HOSTS, coverage_notes

LISTENERS = [{"port": 0, "state": "listening"}]
BOTH = [*LISTENERS, {"port": 1, "state": "listening", "number": 40000}]
TEST = {"ports": [["master", 29500]], "mode": "quick", "seed": 1}


def notes(rows: Sequence[str], attempts: Mapping[int, list[dict[str, Any]]] = {}) -> list[str]:
    """The notes of hosts w1, w2, ... with one port, but for that on the coverage; ``attempts`` by number of a host."""
    names = [f"w{number + 1}" for number in range(len(rows))]
    records = {}
    for host, name in enumerate(names):
        answer = {"rows": [rows[host]], "listeners": LISTENERS, "attempts": attempts.get(host, [])}
        document = {**TEST, "host": host, "hosts": names, "answer": answer}
        output = Output(out=msgspec.json.encode(document).decode())
        records[name] = HostRecord(Visit(), {NetworkAnswer.__name__: {"": output}})
    coverage, *others = coverage_notes(records, NetOptions())
    assert coverage.startswith("network test (quick): ")
    return others


def test_entries_that_are_refused_are_counted_by_host() -> None:
    assert notes(["-oo", "o-o", "oo-"]) == []
    foreign = {"source": 2, "target": 1, "port": 0, "outcome": "dropped"}
    assert notes(["-oo", "o-o", "oo-"], {0: [foreign], 1: [foreign, foreign]}) == [
        "network test: entries refused in the answer of w1: 1 (malformed, or about another host)",
        "network test: entries refused in the answer of w2: 2 (malformed, or about another host)",
    ]


def test_a_fleet_of_such_hosts_is_few_lines() -> None:
    hosts = MAX_NAMED_HOSTS + 3
    rows = ["o" * host + "-" + "o" * (hosts - host - 1) for host in range(hosts)]
    result = notes(rows, {host: [{"target": host, "port": 0}] for host in range(hosts)})
    assert len(result) == MAX_NAMED_HOSTS + 1
    assert result[-1] == "network test: further hosts with refused entries: 3"


def test_pairs_that_no_finding_names_are_counted() -> None:
    hosts = 60
    bad = {(a, b) for a in range(hosts) for b in range(a) if (a * 31 + b * 17) % 7 == 0}
    rows = [
        "".join("-" if s == t else "d" if (max(s, t), min(s, t)) in bad else "o" for t in range(hosts))
        for s in range(hosts)
    ]
    assert len(bad) > MOST_CAUSES
    (note,) = notes(rows)
    number = len(bad) - MOST_CAUSES
    assert (
        note
        == f"network test: pairs of hosts that fail and are in no finding: {number} (more than {MOST_CAUSES} causes)"
    )


def test_failures_that_gloo_does_not_need_are_counted_and_no_cause() -> None:
    """Each host connects to those with smaller addresses alone; that of w2 is the smallest. Nothing passes to w3 of w1,
    which would connect.
    """
    document = {**TEST, "ports": [["master", 29500], ["ephemeral", 0]], "hosts": ["w1", "w2", "w3"]}
    rows = [["-oo", "-od"], ["o-o", "d-d"], ["oo-", "oo-"]]
    records = {}
    for host, place in enumerate((2, 0, 1)):
        own = {"host": host, "gloo_place": place, "answer": {"rows": rows[host], "listeners": BOTH}}
        output = Output(out=msgspec.json.encode({**document, **own}).decode())
        records[f"w{host + 1}"] = HostRecord(Visit(), {NetworkAnswer.__name__: {"": output}})
    assert coverage_notes(records, NetOptions())[1:] == (
        (
            "network test: 2 attempts fail that the job does not need: Gloo connects from the greater address to the "
            "smaller one"
        ),
    )
    [cause] = localized(FactCache(records).fleet(NetworkAnswer)).causes
    assert (cause.kind, cause.hosts) == ("direction", (0, 2))
