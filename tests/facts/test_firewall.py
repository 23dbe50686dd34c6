"""The rules of a host's firewall: read as its tools print them, and followed as the kernel would.

That they are followed rightly is shown against the kernel itself, in `test_firewall_kernel`.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.fact import Absent, Fact, Output, Unreadable
from doctor.facts.firewall import FirewallRules, _tool_output
from doctor.facts.firewall.boot_rules import list_boot_rules
from doctor.facts.firewall.gate import GateQuery, GateResult, evaluate_gate
from doctor.facts.firewall.host_rules import list_rules
from doctor.facts.firewall.packets import (
    AllOf,
    AnyOf,
    Condition,
    FieldIn,
    Not,
    Packets,
    Unclear,
    any_row_matches,
    count,
    difference,
    intersect,
    invert,
    to_ranges,
)
from doctor.facts.firewall.rules import RuleTable
from tests.facts.answers import answered
from tests.facts.firewall_hosts import HEAD, brought, rules, saved
from tests.facts.garbage import JSON, runs_on_python_3_6

FIREWALLD = json.loads(Path(__file__).with_name("recorded").joinpath("firewalld.json").read_text())
"""firewalld 1.3.3 as Debian 12 installs it, with its public zone: what nft 1.0.6 printed."""
NFT = {"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}}
LOCAL = "10.1.0.1"


def listing(*rules: Any, policy: str = "accept", hook: str = "input", family: str = "inet", **more: Any) -> str:
    """``nft -j list ruleset`` of a table f with a chain c that has these rules."""
    chain = {"family": family, "table": "f", "name": "c", "type": "filter", "hook": hook, "prio": 0, "policy": policy}
    record = {"family": family, "table": "f", "chain": "c"}
    parts = [NFT, {"table": {"family": family, "name": "f"}}, {"chain": {**chain, **more}}]
    parts += [{"rule": {**record, "handle": at, "expr": expr}} for at, expr in enumerate(rules)]
    return json.dumps({"nftables": parts})


def nft(*rules: Any, plain_text: str = "", family: str = "inet", **more: Any) -> dict[str, Any]:
    outputs = {"nft": {"out": listing(*rules, family=family, **more)}, "nft -a": {"out": plain_text}}
    return brought(tables=[[family, "f"]], outputs=outputs)


def evaluated_gate(answer: dict[str, Any], family: int = 4) -> GateResult:
    network = "10.1.0.0/30" if family == 4 else "fd00::/126"
    full = ipaddress.ip_network(network)
    fleet = to_ranges([(int(full[1]), int(full[2]))])
    ask = GateQuery(
        "eth0", family, fleet, to_ranges([(29500, 29500), (60000, 60031)]), to_ranges([(32768, 59999)]), True
    )
    return evaluate_gate(rules(answer, LOCAL).tables, ask)


def blocked(answer: dict[str, Any], family: int = 4) -> list[tuple[str, str]]:
    """Each rule that surely blocks, with the ports."""
    gate = evaluated_gate(answer, family)
    assert not gate.unclear, gate.unclear
    return [
        (obstacle.position.rule, str(obstacle.ports)) for obstacle in gate.blocked if obstacle.packet_kind == "opening"
    ]


def unclear(answer: dict[str, Any]) -> list[str]:
    gate = evaluated_gate(answer)
    assert not gate.blocked
    return [obstacle.position.rule for obstacle in gate.unclear]


def blocked_kinds(answer: dict[str, Any]) -> set[str]:
    """The kinds of packets that a rule surely stops."""
    gate = evaluated_gate(answer)
    assert not gate.unclear, gate.unclear
    return {obstacle.packet_kind for obstacle in gate.blocked}


def matched(lhs: Any, right: Any, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": lhs, "right": right}}


DPORT = {"payload": {"protocol": "tcp", "field": "dport"}}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
DROP, ACCEPT = {"drop": None}, {"accept": None}


# ---- reading


def refusal(observed: Any) -> str:
    firewall_rules = answered(FirewallRules, observed)
    assert isinstance(firewall_rules, Unreadable), firewall_rules
    return str(firewall_rules)


def test_a_host_without_a_firewall() -> None:
    firewall_rules = rules(brought())
    assert (firewall_rules.tables, firewall_rules.unread) == ((), {})


def test_without_root() -> None:
    output = refusal({**brought(), "local": [], "refused": True, "error": "nftables: Operation not permitted"})
    assert output == "only root may read the firewall's rules: log in as root, or use --sudo"


def test_root_of_a_container() -> None:
    """Without CAP_NET_ADMIN nobody in it can read rules: that is a container's nature, and nothing is unknown of it."""
    firewall_rules = answered(
        FirewallRules, {**brought(), "local": [], "refused": True, "root": True, "error": "nftables: not permitted"}
    )
    assert type(firewall_rules) is Absent
    assert "CAP_NET_ADMIN" in str(firewall_rules)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give it up")
@pytest.mark.parametrize(("dropped", "answer"), [(12, Absent), (21, Unreadable)], ids=["NET_ADMIN", "SYS_ADMIN"])
def test_an_ordinary_user_of_a_container(dropped: int, answer: type) -> None:
    """Root of it could read no more where CAP_NET_ADMIN cannot be gained; without another right it could."""
    drop_bounding = 24  # PR_CAPBSET_DROP of prctl(2)
    script = (
        "import ctypes, json, os; from doctor.facts.firewall.host_rules import list_rules; "
        f"assert not ctypes.CDLL(None).prctl({drop_bounding}, {dropped}, 0, 0, 0); "
        "os.setuid(65534); print(json.dumps(list_rules({})))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert type(answered(FirewallRules, json.loads(done.stdout))) is answer, done.stdout


def test_tables_that_no_tool_tells_of() -> None:
    """The kernel holds one, and nft is not installed: not known, and never no rules."""
    absent = {"ended": "absent"}
    assert rules(brought(tables=[["inet", "f"]], outputs={"nft": absent})).unread == {
        "table inet f": "nft is not installed"
    }
    old = {"code": 1, "err": "Error: JSON support not compiled-in"}
    assert "JSON support" in rules(brought(tables=[["ip", "f"]], outputs={"nft": old})).unread["table ip f"]


def test_legacy_tables_that_no_tool_tells_of() -> None:
    firewall_rules = rules(brought(legacy={"ip": ["filter"], "ip6": []}))
    assert list(firewall_rules.unread) == ["table filter of legacy iptables"]
    other = {"iptables-legacy": {"out": HEAD.replace("v1.8.9", "v1.8.9 (nf_tables)") + "*filter\nCOMMIT\n"}}
    assert rules(brought(legacy={"ip": ["filter"], "ip6": []}, outputs=other)).unread


def test_nft_is_preferred_and_iptables_asked_where_nft_has_no_words() -> None:
    plain_text = HEAD.replace("v1.8.9", "v1.8.9 (nf_tables)") + (
        "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp -m multiport --ports 29500 -j DROP\nCOMMIT\n"
    )
    chain = {"family": "ip", "table": "filter", "name": "INPUT", "type": "filter", "hook": "input", "prio": 0}
    for expr, tool in (([{"xt": {"type": "match", "name": "multiport"}}, DROP], "iptables"), ([DROP], "nft")):
        rule = {"family": "ip", "table": "filter", "chain": "INPUT", "handle": 1, "expr": expr}
        parts = [{"table": {"family": "ip", "name": "filter"}}, {"chain": chain}, {"rule": rule}]
        outputs = {"nft": {"out": json.dumps({"nftables": parts})}, "iptables": {"out": plain_text}}
        (table,) = rules(brought(tables=[["ip", "filter"]], outputs=outputs)).tables
        assert table.tool == tool


def test_without_iptables_its_matches_are_not_known() -> None:
    assert unclear(nft([{"xt": {"type": "match", "name": "multiport"}}, DROP]))
    assert unclear(nft([{"xt": {"type": "target", "name": "REJECT"}}]))


def test_a_long_listing_is_packed() -> None:
    answer = nft([DROP], policy="drop")
    text = answer["outputs"]["nft"]["out"]
    packed = "zlib:" + base64.b64encode(zlib.compress(text.encode())).decode()
    assert rules(brought(tables=answer["tables"], outputs={"nft": {"out": packed}})) == rules(answer)
    cut = "zlib:" + base64.b64encode(zlib.compress(text.encode())[:-20]).decode()
    for broken in ("zlib:", "zlib:!", "zlib:" + base64.b64encode(b"no").decode(), cut):
        firewall_rules = answered(FirewallRules, {**brought(tables=answer["tables"], outputs={"nft": {"out": broken}})})
        assert isinstance(firewall_rules, Unreadable) or firewall_rules.unread


def test_a_packed_listing_that_is_cut_is_not_read_as_a_shorter_one() -> None:
    """Of lines, the first of them are a rule set of their own."""
    full = zlib.compress(bytes(range(256)))
    cut = Output(out="zlib:" + base64.b64encode(full[:-9]).decode())
    assert _tool_output({"iptables": Output(out="zlib:" + base64.b64encode(full).decode())}, "iptables")[1] == ""
    assert _tool_output({"iptables": cut}, "iptables") == ("", "iptables: a part of a zlib stream")


def test_counters_do_not_make_two_rule_sets_differ() -> None:
    assert rules(nft([{"counter": {"packets": 1, "bytes": 60}}, DROP])) == rules(nft([DROP]))


def test_rules_are_shown_as_nft_shows_them() -> None:
    plain_text = "table inet f { # handle 1\n\tchain c { # handle 1\n\t\ttcp dport 29500 drop # handle 0\n\t}\n}\n"
    assert blocked(nft([matched(DPORT, 29500), DROP], plain_text=plain_text))[0][0] == "tcp dport 29500 drop"
    assert '"drop"' in blocked(nft([matched(DPORT, 29500), DROP]))[0][0]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nftables": 1}', '{"nftables": [{"rule": {}}]}'])
def test_listings_that_are_none(text: str) -> None:
    assert "not understood" in refusal(brought(tables=[["inet", "f"]], outputs={"nft": {"out": text}}))


@pytest.mark.parametrize("text", [HEAD + "*filter\n", HEAD + "*filter\n:INPUT MAYBE [0:0]\nCOMMIT\n", HEAD + "hello\n"])
def test_saves_that_are_none(text: str) -> None:
    refusal(brought(legacy={"ip": ["filter"], "ip6": []}, outputs={"iptables-legacy": {"out": text}}))


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(FirewallRules, value), Unreadable)


@given(st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "replace")), st.sampled_from(["nft", "iptables"]))
def test_any_text_as_a_tools_answer(text: str, tool: str) -> None:
    """A table that exists is told, or unread, or the fact is unreadable: it never just vanishes."""
    tables = [["ip", "filter"]] if tool == "nft" else []
    legacy = {"ip": [] if tool == "nft" else ["filter"], "ip6": []}
    outputs = {"nft" if tool == "nft" else "iptables-legacy": {"out": text}}
    firewall_rules = answered(FirewallRules, brought(tables=tables, legacy=legacy, outputs=outputs))
    assert isinstance(firewall_rules, Unreadable) or (isinstance(firewall_rules, Fact) and firewall_rules.unread)


@given(st.lists(st.dictionaries(st.sampled_from(["match", "drop", "vmap", "set", "mangle", "new"]), JSON, min_size=1)))
def test_any_rule_can_be_followed(parts: list[Any]) -> None:
    firewall_rules = answered(FirewallRules, brought(tables=[["inet", "f"]], outputs={"nft": {"out": listing(parts)}}))
    if isinstance(firewall_rules, FirewallRules):
        evaluate_gate(
            firewall_rules.tables, GateQuery("eth0", 4, ((1, 2),), ((29500, 29500),), ((32768, 60999),), True)
        )


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n"), max_size=12), max_size=8))
def test_any_words_of_iptables_can_be_followed(arguments: list[str]) -> None:
    firewall_rules = answered(FirewallRules, saved("-A INPUT " + " ".join(arguments)))
    if isinstance(firewall_rules, FirewallRules):
        evaluate_gate(
            firewall_rules.tables, GateQuery("eth0", 4, ((1, 2),), ((29500, 29500),), ((32768, 60999),), True)
        )


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(list_rules)
    assert runs_on_python_3_6(list_boot_rules)


# ---- following: a choice of what the comparison with the kernel does not draw


def test_firewalld_as_it_is_installed() -> None:
    answer = brought(tables=[["inet", "firewalld"]], outputs={name: {"out": text} for name, text in FIREWALLD.items()})
    assert {rule for rule, _ in blocked(answer)} == {"reject with icmpx admin-prohibited"}
    (obstacle, *_) = [result for result in evaluated_gate(answer).blocked if result.packet_kind == "opening"]
    assert (obstacle.position.base.name, obstacle.position.chain, obstacle.outgoing) == (
        "filter_INPUT",
        "filter_IN_public",
        False,
    )


@pytest.mark.parametrize("family", [4, 6])
def test_a_table_of_both_families(family: int) -> None:
    assert blocked(nft([matched(DPORT, 29500), DROP]), family) != []


def test_a_table_of_one_family() -> None:
    assert blocked(nft([DROP], family="ip6"), 4) == []
    assert blocked(nft([DROP], family="ip6"), 6) != []
    assert blocked(saved("-A INPUT -s fd00::/64 -j DROP", family="ip6"), 6) != []


def test_an_address_of_one_family_never_fits_the_other() -> None:
    """nft looks at the family first, whatever the comparison: ``ip6 saddr != ::1`` is no IPv4 packet."""
    other = {"payload": {"protocol": "ip6", "field": "saddr"}}
    assert blocked(nft([matched(other, "::1", "!="), DROP])) == []
    assert blocked(nft([matched(other, "::1", "!="), DROP]), 6) != []


@pytest.mark.parametrize(
    "part",
    [
        {"limit": {"rate": 10, "burst": 5, "per": "second"}},
        {"quota": {"val": 100, "val_unit": "mbytes"}},
        {"ct count": {"val": 10}},
        {"set": {"op": "add", "elem": SADDR, "set": "@x", "stmt": [{"limit": {"rate": 1, "per": "second"}}]}},
        matched({"meta": {"key": "skuid"}}, 1000),
        matched({"meta": {"key": "time"}}, "2020-01-01 00:00:00"),
        matched(SADDR, "@not-listed"),
        matched({"payload": {"base": "th", "offset": 16, "len": 16}}, 29500),
        matched({"something": "new"}, 1),
        {"something": "new"},
    ],
)
def test_what_is_not_known_stays_so(part: Any) -> None:
    assert unclear(nft([part, DROP])) != []
    assert unclear(nft([part, ACCEPT], policy="drop")) != []
    if part != {"something": "new"}:  # a statement, which may do anything
        assert evaluated_gate(nft([part, {"log": None}])) == GateResult()
        assert evaluated_gate(nft([part, DROP], [DROP])).unclear == ()


@pytest.mark.parametrize("part", [{"redirect": {"port": 8080}}, {"dnat": {"addr": "10.0.0.1"}}, {"queue": {"num": 0}}])
def test_what_becomes_of_packets_elsewhere_is_not_known(part: Any) -> None:
    assert unclear(nft([matched(DPORT, 29500), part])) != []


def test_a_set_that_rules_fill_as_it_is_now() -> None:
    blocklist = {"set": {"family": "inet", "table": "f", "name": "bad", "type": "ipv4_addr", "elem": ["10.1.0.2"]}}
    parts = json.loads(listing([matched(SADDR, "@bad"), DROP]))
    parts["nftables"].insert(2, blocklist)
    answer = brought(tables=[["inet", "f"]], outputs={"nft": {"out": json.dumps(parts)}})
    assert [
        str(obstacle.peer_addresses) for obstacle in evaluated_gate(answer).blocked if obstacle.packet_kind == "opening"
    ] == [str(to_ranges([(int(ipaddress.ip_address("10.1.0.2")),) * 2]))]


def test_ipsets() -> None:
    drop = saved("-A INPUT -m set --match-set some src,dst -j DROP")

    def with_sets(text: str) -> dict[str, Any]:
        return {**drop, "outputs": {**drop["outputs"], "ipset": {"out": text}}}

    assert unclear(drop) != []
    pair = "create some hash:ip,port family inet hashsize 1024 maxelem 65536\nadd some 10.1.0.2,tcp:29500\n"
    assert [
        obstacle.ports for obstacle in evaluated_gate(with_sets(pair)).blocked if obstacle.packet_kind == "opening"
    ] == [((29500, 29500),)]
    net = "create some hash:net family inet hashsize 1024 maxelem 65536\nadd some 10.1.0.0/24\n"
    assert blocked(with_sets(net)) != []
    assert blocked(with_sets("create some hash:net family inet\nadd some 10.7.0.0/24\n")) == []
    assert unclear(with_sets("create some list:set size 8\nadd some other\n")) != []
    assert unclear(with_sets(net + "add some 10.1.0.2 nomatch\n")) != []


def test_a_pair_of_another_protocol() -> None:
    pair = "create some hash:ip,port family inet hashsize 1024\nadd some 10.1.0.2,udp:29500\n"
    drop = saved("-A INPUT -m set --match-set some src,dst -j DROP")
    assert blocked({**drop, "outputs": {**drop["outputs"], "ipset": {"out": pair}}}) == []


def several(*chains: tuple[str, int, list[Any]], kind: str = "filter") -> dict[str, Any]:
    """A table with chains of these hooks, priorities and rules."""
    parts: list[Any] = [{"table": {"family": "inet", "name": "f"}}]
    for at, (hook, priority, rules_) in enumerate(chains):
        based = {"type": kind, "hook": hook, "prio": priority} if hook else {}
        parts.append({"chain": {"family": "inet", "table": "f", "name": f"c{at}", **based}})
        record = {"family": "inet", "table": "f", "chain": f"c{at}", "handle": at}
        parts += [{"rule": {**record, "expr": expr}} for expr in rules_]
    return brought(tables=[["inet", "f"]], outputs={"nft": {"out": json.dumps({"nftables": parts})}})


MARK = {"meta": {"key": "mark"}}


def test_a_mark_that_an_earlier_chain_sets() -> None:
    put, look = [{"mangle": {"key": MARK, "value": 5}}], [matched(MARK, 5), DROP]
    assert blocked(several(("input", 0, [look]), ("input", -10, [put]))) != []
    assert blocked(several(("input", 0, [put]), ("input", -10, [look]))) == []
    assert blocked(several(("input", -10, [look]), ("prerouting", 10, [put]))) != []


def test_what_a_goto_does_not_come_back_to() -> None:
    for word, present in (("jump", True), ("goto", False)):
        go = [{word: {"target": "c1"}}]
        assert bool(blocked(several(("input", 0, [go, [DROP]]), ("", 0, [[{"counter": None}]])))) is present


def test_only_new_connections_pass_the_chains_for_addresses() -> None:
    later = [matched({"ct": {"key": "state"}}, "established", "in"), DROP]
    assert evaluated_gate(several(("input", 0, [later]))).blocked != ()
    assert evaluated_gate(several(("input", 100, [later]), kind="nat")).blocked == ()


def test_before_the_kernel_knows_the_connection() -> None:
    new = "-A PREROUTING -m conntrack --ctstate NEW -j DROP"
    assert blocked(saved(new, table="mangle")) != []
    assert unclear(saved(new, table="raw")) != []


def test_connections_that_the_kernel_is_told_not_to_know() -> None:
    untracked = saved("-A PREROUTING -p tcp -j CT --notrack", table="raw")
    drop = saved("-A INPUT -m conntrack --ctstate UNTRACKED -j DROP")
    assert blocked(drop) == []
    text = "".join(record["outputs"]["iptables-legacy"]["out"] for record in (untracked, drop))
    both = brought(legacy={"ip": ["raw", "filter"], "ip6": []}, outputs={"iptables-legacy": {"out": text}})
    assert blocked(both) != []


def test_the_way_back_is_known_only_within_the_interfaces_own_network() -> None:
    absent = nft([matched({"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, False), DROP])
    assert blocked(absent) == []
    ask = GateQuery("eth0", 4, ((1, 2),), ((29500, 29500),), ((32768, 60999),), False)
    assert evaluate_gate(rules(absent).tables, ask).unclear != ()


def test_rules_without_end() -> None:
    """Chains that call each other cannot be loaded; a listing that says so is not followed for ever."""
    assert unclear(saved("-A A -j B", "-A B -j A", "-A INPUT -j A")) != []


def test_a_thousand_pairs_are_looked_at_in_no_time() -> None:
    """One look for all hosts and ports at once: what decides is how many rules there are, not how many packets."""
    pairs = [{"concat": [f"10.1.{at // 250}.{at % 250}", port]} for at in range(1000) for port in (22, 29500)]
    key = {"concat": [SADDR, DPORT]}
    answer = nft([matched(key, {"set": pairs}), ACCEPT], policy="drop")
    table: RuleTable = rules(answer).tables[0]
    fleet = to_ranges([(int(ipaddress.ip_address("10.1.0.0")), int(ipaddress.ip_address("10.1.3.249")))])
    gate = evaluate_gate((table,), GateQuery("eth0", 4, fleet, ((29500, 29500),), ((32768, 60999),), True))
    assert len(gate.blocked) < 50


# ---- sets of numbers and of packets

SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda ends: tuple(sorted(ends))), max_size=5)
ROOM = range(41)


def numbers(spans: Any) -> set[int]:
    return {number for low, high in spans for number in range(low, min(high, 40) + 1)}


@given(SPANS, SPANS)
def test_ranges_are_sets(entry: Any, other: Any) -> None:
    first, second = to_ranges(entry), to_ranges(other)
    assert numbers(first) == numbers(entry)
    assert count(first) == len(numbers(entry))
    assert numbers(intersect(first, second)) == numbers(entry) & numbers(other)
    assert numbers(difference(first, second)) == numbers(entry) - numbers(other)
    assert numbers(invert(first)) == set(ROOM) - numbers(entry)
    assert invert(invert(first)) == first


LEAF = st.builds(FieldIn, st.sampled_from(["sport", "dport"]), SPANS.map(to_ranges)) | st.builds(Unclear)
CONDITION: st.SearchStrategy[Condition] = st.recursive(
    LEAF,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(AllOf, st.lists(inner, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=6,
)


def truth(condition: Condition, sport: int, dport: int) -> bool | None:
    """The condition for one packet, in three values."""
    if isinstance(condition, FieldIn):
        return any(low <= (sport if condition.field == "sport" else dport) <= high for low, high in condition.values)
    if isinstance(condition, Not):
        inner = truth(condition.part, sport, dport)
        return None if inner is None else not inner
    if isinstance(condition, (AllOf, AnyOf)):
        results = {truth(part, sport, dport) for part in condition.parts}
        decisive = isinstance(condition, AnyOf)
        return decisive if decisive in results else None if None in results else not decisive
    return None


@given(CONDITION)
def test_a_condition_divides_packets_and_loses_none(condition: Condition) -> None:
    full = ((0, 12),)
    packet_classes = condition.split(Packets({"sport": full, "dport": full, "saddr": full, "daddr": full}, {}))
    for sport in range(13):
        for dport in range(13):
            here = [
                value
                for value, many in (
                    (True, packet_classes.matching),
                    (False, packet_classes.unmatched),
                    (None, packet_classes.unclear),
                )
                for packets in many
                if intersect(packets.fields["sport"], ((sport, sport),))
                and intersect(packets.fields["dport"], ((dport, dport),))
            ]
            assert here == [truth(condition, sport, dport)]


ROW = st.tuples(
    SPANS.map(lambda spans: FieldIn("sport", to_ranges(spans))),
    SPANS.map(lambda spans: FieldIn("dport", to_ranges(spans))),
)


@given(st.lists(ROW, max_size=5), st.integers(0, 40), st.integers(0, 40))
def test_rows_are_put_together_without_a_change(rows: Any, sport: int, dport: int) -> None:
    each = any(all(truth(part, sport, dport) for part in row) for row in rows)
    assert truth(any_row_matches(rows), sport, dport) == each


# ---- packets that carry data

LATER = {"sent", "returned"}
LENGTH, PAYLOAD = {"meta": {"key": "length"}}, {"payload": {"protocol": "ip", "field": "length"}}
PUSH = {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, "psh"]}


@pytest.mark.parametrize(
    ("answer", "kinds"),
    [
        (nft([matched(LENGTH, 1400, ">"), DROP]), LATER),
        (nft([matched(PAYLOAD, 1400, ">"), DROP]), LATER),
        (nft([matched(LENGTH, 1400, "<"), ACCEPT], policy="drop"), LATER),
        (nft([matched(LENGTH, 20, "<"), DROP]), set()),
        (nft([matched(LENGTH, 20, ">"), ACCEPT], policy="drop"), set()),
        (nft([matched(PUSH, "psh"), DROP]), LATER),
        (nft([matched(PUSH, 0, "!="), DROP]), LATER),
        (nft([matched(PUSH, "psh"), ACCEPT]), set()),
        (saved("-A INPUT -p tcp -m tcp --tcp-flags PSH PSH -j DROP"), LATER),
        (saved("-A INPUT -p tcp -m length --length 1401:65535 -j DROP"), LATER),
        (saved("-A INPUT -p tcp -m length ! --length 0:1300 -j DROP"), LATER),
    ],
)
def test_connections_are_made_and_their_data_is_stopped(answer: dict[str, Any], kinds: set[str]) -> None:
    assert blocked_kinds(answer) == kinds


@pytest.mark.parametrize(
    "rule",
    [
        [matched(LENGTH, 60), DROP],  # as long as packets with some options
        [matched(LENGTH, 52, "<"), DROP],
        [matched(LENGTH, 9000, ">"), DROP],  # where the kernel puts segments together
        [matched({"payload": {"protocol": "ip6", "field": "length"}}, 1400, ">"), DROP],
    ],
)
def test_what_depends_on_how_long_a_packet_is_exactly(rule: list[Any]) -> None:
    gate = evaluated_gate(nft(rule), 6 if "ip6" in json.dumps(rule) else 4)
    assert (gate.blocked, bool(gate.unclear)) == ((), True)
