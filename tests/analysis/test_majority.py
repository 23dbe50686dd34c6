"""Who is outvoted: the norm of every check that compares hosts, and of ranks that must agree."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.analysis.majority import differing, leader, split
from doctor.engine.check import Skip

FLEETS = st.dictionaries(
    st.sampled_from([f"w{number}" for number in range(9)]), st.none() | st.integers(0, 2), min_size=2
)
TEMPLATE = "it has {observed}; {count} of {total} hosts have {expected}"


@given(FLEETS)
def test_hosts_that_agree_have_no_finding(fleet: dict[str, int | None]) -> None:
    assert list(differing(dict.fromkeys(fleet, 1), TEMPLATE)) == []


@given(FLEETS)
def test_each_host_outside_of_the_norm_is_blamed_once_and_no_other(fleet: dict[str, int | None]) -> None:
    votes = Counter(fleet.values())
    leading = leader(votes)
    findings = list(differing(fleet, TEMPLATE))
    blamed = [host for finding in findings for host in finding.hosts]
    if not leading:
        assert sorted(blamed) == sorted(fleet) and len(findings) == 1
        return
    (norm,) = leading
    assert sorted(blamed) == sorted(host for host, value in fleet.items() if value != norm)
    for finding in findings:
        assert {fleet[host] for host in finding.hosts} == {finding.values["observed"]}
        assert (finding.values["expected"], finding.values["count"]) == (norm, votes[norm])


@given(FLEETS)
def test_the_order_of_the_hosts_decides_nothing(fleet: dict[str, int | None]) -> None:
    turned = dict(reversed(list(fleet.items())))
    texts = [{str(finding) for finding in differing(hosts, TEMPLATE)} for hosts in (fleet, turned)]
    if leader(Counter(fleet.values())):
        assert texts[0] == texts[1]


def test_a_single_host_is_compared_with_none() -> None:
    with pytest.raises(Skip, match="a single host"):
        list(differing({"w1": 1}, TEMPLATE))


@given(FLEETS)
def test_a_split_is_a_partition(fleet: dict[str, int | None]) -> None:
    parts = split(fleet, fleet.__getitem__)
    if parts is None:
        assert len(set(fleet.values())) == 1
    else:
        assert sorted((*parts.agreeing, *parts.differing)) == sorted(fleet)
        assert parts.kinds == len(set(fleet.values())) > 1


def test_no_value_may_be_the_value_of_most() -> None:
    (finding,) = differing({"w1": None, "w2": None, "w3": 1}, TEMPLATE)
    assert (finding.hosts, finding.values["expected"]) == (("w3",), None)


def test_of_several_items_of_one_voter_one_counts() -> None:
    hosts = {0: "a", 1: "a", 2: "a", 3: "b", 4: "c"}
    parts = split(hosts, lambda rank: rank < 3, voter=hosts.__getitem__)
    assert parts is not None and (parts.differing, parts.agreeing) == ((0, 1, 2), (3, 4))
    assert split([0, 1], lambda rank: rank, 1).agreeing == (1,)
