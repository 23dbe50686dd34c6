"""What a network test did not take in, or does not list, is said beside how much it tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord
from doctor.facts.network_test import NetworkAnswer
from doctor.net.localize import MOST_CAUSES
from doctor.net.plan import NetOptions
from doctor.net.run.network_round import MAX_NAMED_HOSTS, coverage_notes

LISTENERS = [{"port": 0, "state": "listening"}]
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
