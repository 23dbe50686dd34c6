"""What firewall-blocks-job finds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Fact, Output, Visit
from doctor.engine.record import HostRecord
from doctor.engine.result import Outcome, Status
from doctor.facts.firewall import FirewallRules, remedy
from doctor.facts.gpu import GpuCards
from doctor.facts.names import HostNames, NameResolution
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.ports import Listeners, ListeningSocket
from doctor.job import LaunchConfig
from tests.checks.npus import npus
from tests.checks.ports import reserved
from tests.checks.run_check import advice, check, job, messages, run_check
from tests.facts.firewall_hosts import brought, rules, saved

ESTABLISHED = "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
SSH = "-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT"
ALL = "29500, 32768-60999"


def host(
    number: int,
    answer: dict[str, Any] | None = None,
    *more: Fact,
    networks: tuple[str, ...] = ("10.1.0",),
    count: int = 3,
) -> list[Any]:
    """Host w1, w2, ...: eth0 in the first network, eth1 in the next; every one has the same docker0."""
    own_names = [f"{network}.{number}" for network in networks]
    wires = [InterfaceAddress(f"eth{at}", address, 24) for at, address in enumerate(own_names)]
    fixed = [InterfaceAddress("lo", "127.0.0.1", 8), InterfaceAddress("docker0", "172.17.0.1", 16)]
    names = {f"w{index}": NameResolution(addresses=(f"10.1.0.{index}",)) for index in range(1, count + 1)}
    facts = [
        rules(answer or brought(), *own_names),
        HostAddresses(interfaces=(*fixed, *wires)),
        HostNames(own=f"w{number}", names=names, fleet=count),
        reserved(""),
        Listeners(sockets=()),
    ]
    return list({type(fact): fact for fact in (*facts, *more)}.values())


def look(answer: dict[str, Any] | None, *more: Fact, **environ: str) -> Outcome:
    """Three hosts, of which the second has these rules."""
    hosts = {f"w{number}": host(number, answer if number == 2 else None, *more) for number in (1, 2, 3)}
    return run_check("firewall-blocks-job", hosts, job(**environ))


def test_hosts_without_a_firewall() -> None:
    outcome = look(None)
    assert (outcome.status, outcome.evaluated_hosts) == (Status.PASSED, ("w1", "w2", "w3"))


def test_an_active_firewall_that_lets_the_fleet_in_passes() -> None:
    open_ = ("-A INPUT -i lo -j ACCEPT", SSH, "-A INPUT -s 10.1.0.0/24 -p tcp -j ACCEPT", "-A INPUT -j REJECT")
    assert look(saved(ESTABLISHED, *open_, policy="DROP")).status is Status.PASSED


def test_an_active_firewall_that_opens_just_the_ports_passes() -> None:
    ports = "-A INPUT -p tcp -m multiport --dports 29500,32768:60999 -j ACCEPT"
    assert look(saved(ESTABLISHED, SSH, ports, policy="DROP")).status is Status.PASSED


def test_a_firewall_that_lets_in_ssh_alone() -> None:
    outcome = look(saved(ESTABLISHED, SSH, policy="DROP"))
    sentence = f"iptables-legacy blocks incoming connections to TCP ports {ALL} from every other host"
    assert messages(outcome) == [("w2", sentence)]
    assert outcome.findings[0].values["observed"] == "policy drop of the chain INPUT"


def test_master_port_open_and_the_ports_that_the_kernel_gives_closed() -> None:
    """The commonest half-open firewall: rendezvous works, and the first collective hangs."""
    outcome = look(saved(ESTABLISHED, SSH, "-A INPUT -p tcp -m tcp --dport 29500 -j ACCEPT", policy="DROP"))
    assert outcome.findings[0].values["ports"] == "32768-60999"


def test_the_ports_of_hccl_on_hosts_with_npus_alone() -> None:
    closed = saved("-A INPUT -p tcp -m tcp --dport 60000:60031 -j DROP")
    set_aside = reserved("60000-60031")
    assert look(closed, set_aside).status is Status.PASSED
    assert look(closed, set_aside, npus(8)).findings[0].values["ports"] == "60000-60031"


def test_other_ports_of_hccl() -> None:
    closed = saved("-A INPUT -p tcp -m tcp --dport 21000:21010 -j DROP")
    outcome = look(closed, npus(8), HCCL_IF_BASE_PORT="21005")
    assert outcome.findings[0].values["ports"] == "21005-21010"


def test_one_host_kept_out() -> None:
    outcome = look(saved("-A INPUT -s 10.1.0.3/32 -p tcp -j REJECT --reject-with icmp-host-prohibited"))
    (finding,) = outcome.findings
    assert finding.values["peers"] == ["w3"]
    assert "-s 10.1.0.3 " in finding.values["fix"]


def test_connections_that_may_not_leave() -> None:
    outcome = look(saved("-A OUTPUT -p tcp -m tcp --dport 29500 -j DROP"))
    assert messages(outcome) == [
        ("w2", "iptables-legacy blocks outgoing connections to TCP port 29500 of every other host")
    ]


def test_connections_that_are_opened_and_carry_nothing() -> None:
    outcome = look(saved("-A INPUT -p tcp -m conntrack --ctstate NEW -j ACCEPT", policy="DROP"))
    (finding,) = outcome.findings
    assert str(finding).startswith("iptables-legacy blocks the later packets of connections to TCP ports")
    assert finding.values["fix"].endswith("-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")


def test_a_port_that_the_job_cannot_get_may_be_closed() -> None:
    closed = saved("-A INPUT -p tcp -m tcp --dport 33060 -j DROP")
    assert look(closed).findings[0].values["ports"] == "33060"
    assert look(closed, reserved("33060")).status is Status.PASSED
    held = Listeners(sockets=(ListeningSocket(33060, "0.0.0.0", True, "mysql"),))
    assert look(closed, held).status is Status.PASSED
    narrow = Listeners(sockets=(ListeningSocket(33060, "127.0.0.1", True, "mysql"),))
    assert look(closed, narrow).status is Status.FAILED


def test_a_rule_about_the_other_ends_port() -> None:
    assert (
        look(saved("-A INPUT -p tcp -m tcp --sport 40000:40009 -j DROP")).findings[0].values["ports"] == "40000-40009"
    )
    assert look(saved("-A INPUT -p tcp -m tcp --sport 1:32767 -j DROP"), reserved("")).status is Status.FAILED


# ---- MASTER_PORT


CLOSED_MASTER = saved("-A INPUT -p tcp -m tcp --dport 29500 -j DROP")


def test_without_a_known_master_every_host_may_be_it() -> None:
    assert look(CLOSED_MASTER).status is Status.FAILED
    assert look(CLOSED_MASTER, MASTER_ADDR="elsewhere.example").status is Status.FAILED


def test_a_master_that_a_host_cannot_resolve_is_the_one_of_the_list() -> None:
    mute = HostNames(own="w2", names={}, fleet=3)
    assert look(CLOSED_MASTER, mute, MASTER_ADDR="w1").status is Status.PASSED
    assert look(CLOSED_MASTER, mute, MASTER_ADDR="w2").status is Status.FAILED


@pytest.mark.parametrize("master", ["10.1.0.1", "w1"])
def test_master_port_is_needed_on_its_host_alone(master: str) -> None:
    assert look(CLOSED_MASTER, MASTER_ADDR=master).status is Status.PASSED


@pytest.mark.parametrize("master", ["10.1.0.2", "w2"])
def test_master_port_closed_on_its_host(master: str) -> None:
    assert look(CLOSED_MASTER, MASTER_ADDR=master).findings[0].values["ports"] == "29500"


def test_the_way_out_to_the_master() -> None:
    outcome = look(saved("-A OUTPUT -p tcp -m tcp --dport 29500 -j DROP"), MASTER_ADDR="10.1.0.3")
    assert outcome.findings[0].values["peers"] == ["w3"]


def test_another_port_of_the_master() -> None:
    assert look(CLOSED_MASTER, MASTER_PORT="29400").status is Status.PASSED
    assert look(saved("-A INPUT -p tcp -m tcp --dport 29400 -j DROP"), MASTER_PORT="29400").status is Status.FAILED


# ---- several networks


def two_networks(answer: dict[str, Any], **environ: str) -> Outcome:
    both = ("10.1.0", "10.2.0")
    hosts = {f"w{number}": host(number, answer if number == 2 else None, networks=both) for number in (1, 2, 3)}
    return run_check("firewall-blocks-job", hosts, job(**environ))


ONE_NETWORK = saved("-A INPUT -i eth0 -p tcp -j DROP")


def test_a_network_that_is_closed_beside_one_that_is_open() -> None:
    outcome = two_networks(ONE_NETWORK)
    assert outcome.status is Status.UNKNOWN
    assert "eth1 (10.2.0.2) lets the job's ports through, eth0 (10.1.0.2) does not" in outcome.unknown["w2"].text


def test_the_masters_network_is_the_jobs() -> None:
    assert two_networks(ONE_NETWORK, MASTER_ADDR="10.2.0.1").status is Status.PASSED
    assert two_networks(ONE_NETWORK, MASTER_ADDR="10.1.0.1").status is Status.FAILED


def test_both_networks_closed() -> None:
    outcome = two_networks(saved("-A INPUT ! -i lo -p tcp -j DROP"))
    assert outcome.status is Status.FAILED
    assert {finding.hosts for finding in outcome.findings} == {("w2",)}


def test_hosts_of_several_networks_with_routes_between_them() -> None:
    hosts = {f"w{number}": host(number, networks=(f"10.{number}.0",)) for number in (1, 2, 3)}
    hosts["w2"] = host(2, saved("-A INPUT -s 10.3.0.0/24 -j DROP"), networks=("10.2.0",))
    outcome = run_check("firewall-blocks-job", hosts)
    assert outcome.findings[0].values["peers"] == ["w3"]


def test_the_networks_of_containers_are_not_the_jobs() -> None:
    hosts = {}
    for number in (1, 2, 3):
        closed = saved("-A INPUT -i cni0 -j DROP", "-A INPUT -i tun9 -j DROP") if number == 2 else None
        hosts[f"w{number}"] = facts = host(number, closed)
        wires = (InterfaceAddress("cni0", f"10.244.{number}.1", 24), InterfaceAddress("tun9", f"10.9.{number}.1", 32))
        facts[1] = HostAddresses(interfaces=(*facts[1].interfaces, *wires))
        facts[0] = rules(closed or brought(), f"10.1.0.{number}", f"10.244.{number}.1", f"10.9.{number}.1")
    assert run_check("firewall-blocks-job", hosts).status is Status.PASSED


def test_a_host_that_cannot_be_met() -> None:
    hosts = {f"w{number}": host(number) for number in (1, 2, 3)}
    hosts["w3"][1] = HostAddresses(interfaces=(InterfaceAddress("lo", "127.0.0.1", 8),))
    outcome = run_check("firewall-blocks-job", hosts)
    assert outcome.status is Status.UNKNOWN
    assert outcome.unknown["w1"].text == "doctor found no network that it shares with w3"


@pytest.mark.parametrize("device", ["lo", "eth1"])
def test_a_host_whose_address_another_one_has(device: str) -> None:
    """On the loopback of the other it is still its owner's for all; elsewhere the duplicate is what must be mended."""
    hosts = {f"w{number}": host(number) for number in (1, 2, 3)}
    own = hosts["w2"][1].interfaces
    hosts["w2"][1] = HostAddresses(interfaces=(*own, InterfaceAddress(device, "10.1.0.3", 32)))
    outcome = run_check("firewall-blocks-job", hosts)
    assert outcome.status is (Status.PASSED if device == "lo" else Status.UNKNOWN)
    assert {why.root_cause for why in outcome.unknown.values()} <= {"duplicate-address"}


# ---- not known


@pytest.mark.parametrize(
    "rule",
    [
        "-A INPUT -p tcp -m limit --limit 100/sec -j DROP",
        "-A INPUT -p tcp -m set --match-set nobody src -j DROP",
        "-A INPUT -p tcp -m newer-than-us --with words -j DROP",
        "-A INPUT -p tcp -j NFQUEUE --queue-num 0",
        "-A OUTPUT -p tcp -m owner --uid-owner 1000 -j REJECT",
    ],
)
def test_a_rule_that_cannot_be_judged_is_named(rule: str) -> None:
    outcome = look(saved(rule))
    assert outcome.status is Status.UNKNOWN
    assert rule in outcome.unknown["w2"].text
    assert outcome.evaluated_hosts == ("w1", "w3")


@pytest.mark.parametrize(("most", "is_tried"), [(1, False), (511, False), (512, True), (65535, True)])
def test_few_connections_at_a_time_do_not_try_a_rule_that_counts_them(most: int, is_tried: bool) -> None:
    rule = f"-A INPUT -p tcp -m connlimit --connlimit-above {most} --connlimit-mask 0 --connlimit-saddr -j DROP"
    assert look(saved(rule)).unknown["w2"].by_trial is is_tried


@pytest.mark.parametrize(
    "amount",
    [
        *("limit --limit 50/sec", "hashlimit --hashlimit-above 5/sec", "quota --quota 1000000"),
        "connbytes --connbytes 100000: --connbytes-dir both --connbytes-mode bytes",
        "statistic --mode random --probability 0.5",
    ],
)
@pytest.mark.parametrize(
    ("first", "is_tried"), [((), False), (("-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",), True)]
)
def test_few_packets_do_not_try_a_rule_by_rate_or_amount_for_open_connections(
    amount: str, first: tuple[str, ...], is_tried: bool
) -> None:
    """A limit for new connections alone is tried by opening some."""
    displayed = saved(*first, f"-A INPUT -p tcp -m {amount} -j DROP")
    assert look(displayed).unknown["w2"].by_trial is is_tried


def test_a_trial_does_not_try_the_hours_to_come() -> None:
    rule = "-A INPUT -p tcp -m time --timestart 20:00 --timestop 06:00 -j DROP"
    assert not look(saved(rule)).unknown["w2"].by_trial


def test_a_rule_that_cannot_be_judged_and_makes_no_difference() -> None:
    displayed = saved("-A INPUT -p tcp -m limit --limit 3/min -j LOG", "-A INPUT -m set --match-set x src -j ACCEPT")
    assert look(displayed).status is Status.PASSED
    closed = look(saved("-A INPUT -m limit --limit 3/min -j DROP", "-A INPUT -p tcp -j DROP"))
    assert closed.status is Status.FAILED


def test_a_container_with_a_network_of_its_own() -> None:
    hosts = {f"w{number}": host(number) for number in (1, 2, 3)}
    hosts["w2"][0] = rules(saved("-A INPUT -j DROP"), "192.168.7.7")
    outcome = run_check("firewall-blocks-job", hosts)
    assert "the job's container has the address 10.1.0.2 of its own" in outcome.unknown["w2"].text


def test_a_bridge_with_rules_of_its_own() -> None:
    rule = {"rule": {"family": "bridge", "table": "f", "chain": "c", "handle": 1, "expr": [{"drop": None}]}}
    chain = {"family": "bridge", "table": "f", "name": "c", "type": "filter", "hook": "input", "prio": 0}
    parts = [{"table": {"family": "bridge", "name": "f"}}, {"chain": chain}, rule]
    text = json.dumps({"nftables": parts})
    answer = brought(tables=[["bridge", "f"]], outputs={"nft": {"out": text}})
    assert look({**answer, "bridges": ["br0"]}).status is Status.PASSED
    assert look({**answer, "bridges": ["eth0"]}).status is Status.FAILED


OPEN = "Chain INPUT (policy ACCEPT)\n"
ARPTABLES = {  # arptables 0.0.5, -L -n
    "a peer": (f"{OPEN}-j DROP -s 10.1.0.1 \n\nChain OUTPUT (policy ACCEPT)\n", Status.FAILED),
    "all": ("Chain INPUT (policy DROP)\n\nChain OUTPUT (policy ACCEPT)\n", Status.FAILED),
    "by a chain": (
        f"{OPEN}-j foo -i eth0 --opcode 2 \n\nChain foo (1 references)\n-j DROP ! -s 10.9.0.1 \n",
        Status.FAILED,
    ),
    "another address": (
        f"{OPEN}-j DROP -s 10.1.0.200 \n\nChain OUTPUT (policy DROP)\n-j ACCEPT -d 10.1.0.0/24 \n",
        Status.PASSED,
    ),
    "no rule": (f"{OPEN}\nChain OUTPUT (policy ACCEPT)\n", Status.PASSED),
    "by a card": (f"{OPEN}-j DROP --src-mac 02:00:00:00:00:01 \n", Status.UNKNOWN),
    "an error": ("", Status.UNKNOWN),
}


@pytest.mark.parametrize("text", ARPTABLES)
def test_rules_of_legacy_arptables(text: str) -> None:
    """Its save script asks the other arptables (Debian), so its list is read."""
    listing, expected = ARPTABLES[text]
    outcome = look(brought(legacy={"arp": ["filter"]}, outputs={"arptables-legacy": {"out": listing}}))
    assert outcome.status is expected
    if expected is Status.FAILED:
        assert outcome.findings[0].values["fix"].startswith("arptables-legacy -I INPUT --opcode 1 -j ACCEPT; ")


def test_an_interface_without_arp_needs_no_neighbours() -> None:
    answer = brought(legacy={"arp": ["filter"]}, outputs={"arptables-legacy": {"out": ARPTABLES["all"][0]}})
    assert look({**answer, "without_arp": ["eth0"]}).status is Status.PASSED


def test_one_host() -> None:
    outcome = run_check("firewall-blocks-job", {"w1": host(1, saved("-A INPUT -j DROP"), count=1)})
    assert (outcome.status, list(outcome.skipped.values())) == (
        Status.SKIPPED,
        ["only one host: nothing crosses the network"],
    )


def test_one_host_whose_rules_only_root_may_read() -> None:
    """A check of one's own machine, not as root: nothing crosses the network, so that nothing remains unknown."""
    refused = {"outputs": {}, "tables": [], "legacy": {}, "bridges": [], "error": "x", "refused": True, "local": []}
    outputs = {FirewallRules.output_name(): {"": Output(out=json.dumps(refused))}}

    def outcome(*names: str) -> Outcome:
        visit = Visit(sent=0.0, received=0.0, began=0.0, ended=0.0, python="3.9.2", uid=1000, name="w1", local=True)
        records = FactCache({name: HostRecord(visit, outputs) for name in names})
        return evaluate_check(check("firewall-blocks-job"), names, records, {LaunchConfig: job()})

    assert outcome("w1").skipped == {"w1": "only one host: nothing crosses the network"}
    assert not outcome("w1").unknown
    assert outcome("w1", "w2").unknown["w2"].text


# ---- what to do


@pytest.mark.parametrize(
    ("answer", "command"),
    [
        (
            saved(ESTABLISHED, SSH, policy="DROP"),
            "iptables-legacy -I INPUT -p tcp -s 10.1.0.1,10.1.0.3 -m multiport --dports 29500,32768:60999 -j ACCEPT",
        ),
        (
            saved("-A ufw-before-input -i lo -j ACCEPT", "-A INPUT -j ufw-before-input", policy="DROP"),
            "for a in 10.1.0.1 10.1.0.3; do ufw prepend allow in proto tcp from $a to any port 29500,32768:60999; done",
        ),
        (
            saved("-A PREROUTING -p tcp -m tcp --dport 29500 -j DROP", table="raw"),
            "iptables-legacy -t raw -I PREROUTING -p tcp -s 10.1.0.1,10.1.0.3 -m multiport --dports 29500 -j ACCEPT",
        ),
    ],
)
def test_the_command_that_opens_the_ports(answer: dict[str, Any], command: str) -> None:
    outcome = look(answer)
    assert outcome.findings[0].values["fix"] == command
    assert command in advice("firewall-blocks-job", outcome)
    assert "disable" not in advice("firewall-blocks-job", outcome)


@pytest.mark.parametrize("outgoing", [False, True])
def test_what_firewalld_is_told(outgoing: bool) -> None:
    chain, base = ("OUT_x_deny", "OUTPUT") if outgoing else ("IN_x_deny", "INPUT")
    outcome = look(
        saved("-A INPUT_ZONES -j RETURN", f"-A {base} -j {chain}", f"-A {chain} -p tcp -m tcp --dport 29500 -j DROP")
    )
    fix = outcome.findings[0].values["fix"]
    assert outcome.findings[0].values["manager"] == "firewalld"
    assert fix.startswith("firewall-cmd --permanent --new-policy=training; " if outgoing else "z=$(firewall-cmd ")
    assert "for a in 10.1.0.1 10.1.0.3; do for p in 29500; do firewall-cmd" in fix
    assert "rule priority=-1 family=ipv4" in fix
    if outgoing:  # a policy comes into force with a reload alone, which forgets what was never made permanent
        assert fix.endswith("; done; done; firewall-cmd --reload")
    else:
        assert "firewall-cmd --zone=$z --add-rich-rule" in fix and "--permanent --zone=$z --add-rich-rule" in fix
        assert "--reload" not in fix
    back = outcome.findings[0].values["unfix"]
    assert back.count("--remove-rich-rule") == fix.count("--add-rich-rule")


NFT_RULE = "ip saddr { 10.1.0.1, 10.1.0.3 } tcp dport { 29500 } accept"


def test_what_nftables_is_told_and_how_it_finds_its_rule_again() -> None:
    """nft deletes by handle alone, and prints a rule in other words than it took: the comment tells which it was."""
    drop = [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 29500}}]
    parts = [
        {"table": {"family": "inet", "name": "site"}},
        {
            "chain": {
                "family": "inet",
                "table": "site",
                "name": "in",
                "type": "filter",
                "hook": "input",
                "prio": 0,
                "policy": "accept",
            }
        },
        {"rule": {"family": "inet", "table": "site", "chain": "in", "handle": 1, "expr": [*drop, {"drop": None}]}},
    ]
    answer = brought(tables=[["inet", "site"]], outputs={"nft": {"out": json.dumps({"nftables": parts})}})
    (finding,) = look(answer).findings
    values = finding.values
    assert values["fix"].startswith(f"nft 'insert rule inet site in {NFT_RULE} comment \"cluster-doctor ")
    tag = values["fix"].split('"')[1]
    assert f'comment "{tag}".* # handle' in values["unfix"]
    assert "nft delete rule 'inet site in' handle $h" in values["unfix"]
    assert values["boot_lines"] == [f'insert rule inet site in {NFT_RULE} comment "{tag}"']
    assert values["nft_table"] == "inet site"


def test_the_way_back_takes_what_was_added_and_nothing_twice() -> None:
    values = look(saved(ESTABLISHED, SSH, policy="DROP")).findings[0].values
    rule = "INPUT -p tcp -s 10.1.0.1,10.1.0.3 -m multiport --dports 29500,32768:60999 -j ACCEPT"
    assert values["unfix"] == f"! iptables-legacy -C {rule} 2>/dev/null || iptables-legacy -D {rule}"
    assert values["boot_lines"] == [rule]
    assert values["boot_files"] == ["/etc/iptables/rules.v4", "/etc/sysconfig/iptables"]


def test_ufw_takes_its_own_rule_back() -> None:
    displayed = saved("-A ufw-before-input -i lo -j ACCEPT", "-A INPUT -j ufw-before-input", policy="DROP")
    values = look(displayed).findings[0].values
    assert values["unfix"] == values["fix"].replace("prepend", "delete")


def test_a_rule_that_ufw_itself_cannot_overrule() -> None:
    outcome = look(saved("-A INPUT -j ufw-before-input", "-A ufw-before-input -p tcp -m tcp --dport 29500 -j DROP"))
    assert outcome.findings[0].values["fix"].startswith("iptables-legacy -I INPUT ")
    assert "before.rules" in advice("firewall-blocks-job", outcome)


def test_very_many_hosts_are_named_alone_and_never_by_a_network_that_holds_others() -> None:
    closed = saved(ESTABLISHED, SSH, policy="DROP")
    hosts = {f"w{number}": host(number, closed if number == 2 else None, count=120) for number in range(2, 121, 2)}
    (finding,) = run_check("firewall-blocks-job", hosts).findings
    assert finding.values["sources"] == [f"10.1.0.{number}" for number in range(4, 121, 2)]
    assert finding.values["peers"] == "every other host"


def test_more_addresses_than_a_command_may_list_are_the_readers_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedy, "MAX_ADDRESSES", 1)
    (finding,) = look(saved(ESTABLISHED, SSH, policy="DROP")).findings
    assert finding.values["fix"].startswith(": its peers have more than ")
    assert finding.values["sources"] == [] and finding.values["method"] == []


def test_a_rule_is_shown_without_what_it_does_to_a_terminal() -> None:
    outcome = look(saved('-A INPUT -p tcp -m comment --comment "\x1b[31m' + "x" * 400 + '" -j DROP'))
    assert "\x1b" not in outcome.findings[0].values["observed"]
    assert len(outcome.findings[0].values["observed"]) <= 160


def test_hosts_with_the_same_rules_get_the_same_finding() -> None:
    """So that a report can say it once."""
    closed = saved(ESTABLISHED, SSH, policy="DROP")
    outcome = run_check("firewall-blocks-job", {f"w{number}": host(number, closed) for number in (1, 2, 3)})
    assert len({str(finding) for finding in outcome.findings}) == 1
    assert [finding.hosts for finding in outcome.findings] == [("w1",), ("w2",), ("w3",)]


@pytest.mark.parametrize(
    ("first", "last", "ports"),
    [
        (40000, 40003, ALL),  # local-ports-few: the kernel's default range comes in its place
        (20000, 24095, "20000-24095, 29500"),  # enough: it stays
    ],
)
def test_the_range_of_local_ports_that_is_to_be_widened_is_opened_as_it_will_be(
    first: int, last: int, ports: str
) -> None:
    outcome = look(saved(ESTABLISHED, SSH, policy="DROP"), reserved("", first, last))
    assert messages(outcome) == [
        ("w2", f"iptables-legacy blocks incoming connections to TCP ports {ports} from every other host")
    ]


def test_ports_that_the_kernel_does_not_give_yet_are_no_fault_of_a_firewall() -> None:
    opened = "-A INPUT -p tcp -m multiport --dports 29500,40000:40003 -j ACCEPT"
    outcome = look(saved(ESTABLISHED, SSH, opened, policy="DROP"), reserved("", 40000, 40003))
    assert outcome.status is Status.PASSED


def test_a_rule_that_redirects_is_left_to_the_check_that_tries_it() -> None:
    rule = "-A PREROUTING -p tcp -m tcp --dport 29500 -j REDIRECT --to-ports 22"
    (why,) = look(saved(rule, table="nat")).unknown.values()
    assert why.root_cause == "net-answered-by-other"
    assert f"`iptables-legacy -t nat -D {rule.removeprefix('-A ')}` deletes it" in why.text


FROM_SMALLER = "-A INPUT -s 10.1.0.1/32 -p tcp -m tcp --dport 32768:60999 --tcp-flags SYN,ACK SYN -j DROP"


@pytest.mark.parametrize(
    ("number", "is_blocked"), [(1, False), (3, True)], ids=["by the smaller address", "by the greater address"]
)
@pytest.mark.parametrize("chain", ["INPUT -s", "OUTPUT -d"])
def test_a_job_of_gloo_needs_the_direction_in_which_it_connects(number: int, is_blocked: bool, chain: str) -> None:
    """With PyTorch 2.13 on two hosts: dropped from the smaller address all is well, from the greater it times out."""
    peer = number if chain == "INPUT -s" else 4 - number
    rule = f"-A {chain} 10.1.0.{peer}/32 -p tcp -m tcp --dport 32768:60999 --tcp-flags SYN,ACK SYN -j DROP"
    assert (look(saved(rule), MASTER_ADDR="w1").status is Status.FAILED) == is_blocked


def test_one_rule_that_drops_what_comes_from_one_host_and_the_answers_of_another_is_one_finding() -> None:
    """w2 connects to w1, whose answers the rule drops, and w3 connects to w2."""
    outcome = look(saved("-A INPUT -p tcp -m tcp --dport 29500:60999 -j DROP"), MASTER_ADDR="w1")
    assert messages(outcome) == [
        ("w2", "iptables-legacy blocks incoming connections to TCP ports 32768-60999 from every other host")
    ]


def test_master_port_of_a_job_of_gloo_is_needed_by_all() -> None:
    rule = "-A OUTPUT -d 10.1.0.3/32 -p tcp -m tcp --dport 29500 -j DROP"
    assert look(saved(rule), MASTER_ADDR="w3").findings[0].values["ports"] == "29500"


def test_other_jobs_need_both_directions() -> None:
    rule = saved(FROM_SMALLER)
    with_gpus = GpuCards(pci=8, driver="", tool=False)
    assert look(rule, with_gpus, MASTER_ADDR="w1").status is Status.FAILED
    assert look(rule).status is Status.FAILED


def test_the_launch_line_names_gloo() -> None:
    hosts = {f"w{number}": host(number, None, GpuCards(pci=8, driver="", tool=False)) for number in (1, 2, 3)}
    hosts["w2"][0] = rules(saved(FROM_SMALLER), "10.1.0.2")
    launch = LaunchConfig(launch_line="torchrun --nnodes 3 t.py --backend gloo")
    assert run_check("firewall-blocks-job", hosts, launch).status is Status.PASSED
    assert run_check("firewall-blocks-job", hosts, LaunchConfig(launch_line="torchrun t.py")).status is Status.FAILED
