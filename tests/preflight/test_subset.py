"""A saved run as if some of its hosts had never been looked at."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
import pytest

from doctor.engine.exit_code import Exit
from doctor.engine.fact import Output
from doctor.engine.record import HostRecord, LaunchOptions, RankTableFile, Run
from doctor.engine.result import Outcome, Status
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.preflight.spares import SpareSelection, bad_hosts, select_hosts
from doctor.rank_table.run_subset import subset, table_host_names
from doctor.report.layout.host_health import classify_hosts
from tests.checks import tables
from tests.preflight import runs
from tests.preflight.runs import judge_by, ours, real, run, with_facts

LOST = "3 packets transmitted, 0 received, 100.00% packet loss"
PING_ANSWERED = "3 packets transmitted, 3 received, 0.00% packet loss"


def judged(check: str, created_run: Run) -> Outcome:
    return judge_by(real(check))(created_run).outcomes[0]


def blames(check: str, created_run: Run) -> list[str]:
    return [host for finding in judged(check, created_run).findings for host in finding.hosts]


def test_all_hosts_are_the_run_itself() -> None:
    created_run = run({"a": 5, "b": 5})
    assert subset(created_run, ("a", "b")) is created_run


def test_the_hosts_their_ranks_and_the_source_are_fewer() -> None:
    created_run = run({"a": 5, "b": 5, "c": 5}, launch=LaunchOptions(ranks_per_host={"a": 8, "b": 4}))
    part = subset(created_run, ("a", "c"))
    assert list(part.hosts) == ["a", "c"]
    assert part.probe_inputs.hosts == ("a", "c")
    assert part.launch.ranks_per_host == {"a": 8}
    assert part.source == "2 of 3 hosts from the test"


def named(**unknown: str) -> Run:
    """Hosts a, b and c, which know each other's names but for those in ``unknown``."""
    responses = {
        host: {
            "own": host,
            "names": {
                name: {"error": "no such name"} if name in unknown.get(host, "") else {"addresses": ["10.0.0.1"]}
                for name in "abc"
            },
            "fleet": 3,
        }
        for host in "abc"
    }
    return with_facts(run(dict.fromkeys("abc", 5)), HostNames=responses)


def test_the_names_of_those_left_out_are_no_matter_any_more() -> None:
    created_run = named(a="c")
    assert blames("host-name-unresolved", created_run) == ["a"]
    assert blames("host-name-unresolved", subset(created_run, ("a", "b"))) == []
    assert blames("host-name-unresolved", subset(created_run, ("a", "c"))) == ["a"]


def test_the_masters_name_is() -> None:
    structs = msgspec.structs.replace(named(a="c"), launch=LaunchOptions(master_addr="c"))
    structs = msgspec.structs.replace(
        structs, probe_inputs=msgspec.structs.replace(structs.probe_inputs, master_addr="c")
    )
    assert blames("master-address-unresolved", subset(structs, ("a", "b"))) == ["a"]


def pinged(texts: dict[str, dict[str, str]], first: int = 1) -> Run:
    """One NPU a host; each host pings those that ``texts`` says."""
    hosts = [*dict.fromkeys(name for host, text in texts.items() for name in (host, *text))]
    at = {host: f"10.0.0.{number}" for number, host in enumerate(sorted(hosts), first)}
    created_run = run(dict.fromkeys(sorted(hosts), 5))
    records = {
        host: HostRecord(
            record.visit, {"DeviceAddresses": {"0": Output(out=f"ipaddr:{at[host]}\nnetmask:255.255.255.0\n")}}
        )
        for host, record in created_run.hosts.items()
    }
    calls = {host: [[0, at[to], text] for to, text in responses.items()] for host, responses in texts.items()}
    return with_facts(msgspec.structs.replace(created_run, hosts=records), DevicePings=calls)


def test_pings_to_those_left_out_are_no_matter_any_more() -> None:
    created_run = pinged(
        {
            "a": {"b": PING_ANSWERED, "c": "no answer in 10 s"},
            "b": {"a": PING_ANSWERED, "c": LOST},
            "c": {"a": LOST, "b": LOST},
        }
    )
    report = judge_by(real("device-unreachable"))(created_run)
    assert bad_hosts(report) == {"a": ["device-unreachable"], "c": ["device-unreachable"]}
    assert judged("device-unreachable", subset(created_run, ("a", "b"))).status is Status.PASSED
    choice = select_hosts(created_run, report, judge_by(real("device-unreachable")), 2)
    assert (choice.hosts, choice.code) == (("a", "b"), 0), "those that findings blame go first"


@pytest.mark.parametrize(
    ("parts", "need", "hosts", "code"),
    [
        ("ab cd", 2, ("a", "b"), 0),
        ("ab cd", 3, (), 1),
        ("ab cd", 4, (), 1),
        ("ab cd e", 2, ("a", "b"), 0),
        ("abc def", 3, ("a", "b", "c"), 0),
    ],
)
def test_of_a_fleet_that_is_cut_the_part_stays_that_the_job_fits_in(
    parts: str, need: int, hosts: tuple[str, ...], code: int
) -> None:
    part_of = {host: part for part in parts.split() for host in part}
    created_run = pinged(
        {
            host: {
                other: PING_ANSWERED if part_of[host] == part_of[other] else LOST for other in part_of if other != host
            }
            for host in part_of
        }
    )
    judge = judge_by(real("device-unreachable"))
    report = judge(created_run)
    assert set(bad_hosts(report)) == set(part_of)
    for_all = select_hosts(created_run, report, judge, 0)
    assert (for_all.hosts, for_all.excluded, classify_hosts(report).bad) == ((), {}, ()), "nobody is to blame"
    choice = select_hosts(created_run, report, judge, need)
    assert (choice.hosts, bool(choice.code)) == (hosts, bool(code))


def test_a_host_that_tried_none_of_those_that_stay_is_not_known() -> None:
    created_run = pinged(
        {"a": {"b": PING_ANSWERED}, "b": {"c": PING_ANSWERED}, "c": {"d": PING_ANSWERED}, "d": {"a": PING_ANSWERED}}
    )
    outcome = judged("device-unreachable", subset(created_run, ("a", "b", "d")))
    assert outcome.status is Status.PASSED, "it was pinged"
    outcome = judged("device-unreachable", subset(created_run, ("a", "c")))
    assert set(outcome.unknown) == {"a", "c"}
    assert "was only tested with excluded hosts" in outcome.unknown["a"].text


def test_one_host_alone_needs_no_peer() -> None:
    outcome = judged(
        "device-unreachable", subset(pinged({"a": {"b": PING_ANSWERED}, "b": {"a": PING_ANSWERED}}), ("a",))
    )
    assert (outcome.status, outcome.unknown) == (Status.SKIPPED, {})


def in_pods(pods: dict[str, int]) -> Run:
    """Hosts whose NPU has the same virtual address in each super pod, one more for each host of a pod."""
    places: dict[str, int] = {}
    for host, pod in pods.items():
        places[host] = sum(pods[other] == pod for other in places)
    created_run = run(dict.fromkeys(pods, 5))
    records = {}
    for host, pod in pods.items():
        spod = f"Super Pod ID : {pod}\nServer Index : {places[host]}\nSuper Pod Size : 4\n"
        vnic = f"vnic link status: UP\nvnic ipaddr: 192.168.2.{places[host]}\nvnic netmask: 255.255.255.0\n"
        outputs = {SuperPodId.__name__: {"": Output(out=spod)}, "VnicAddresses": {"0": Output(out=vnic)}}
        records[host] = HostRecord(created_run.hosts[host].visit, outputs)
    calls = {
        host: [
            [0, f"192.168.2.{places[other]}", PING_ANSWERED]
            for other in pods
            if other != host and pods[other] == pods[host]
        ]
        for host in pods
    }
    return with_facts(msgspec.structs.replace(created_run, hosts=records), HccsPings=calls)


def test_a_virtual_address_means_a_host_of_the_same_super_pod_alone() -> None:
    created_run = in_pods({"a": 0, "b": 0, "c": 1, "d": 1})
    assert judged("hccs-unreachable", created_run).status is Status.PASSED
    outcome = judged("hccs-unreachable", subset(created_run, ("a", "b", "c")))
    assert outcome.unknown == {}
    assert set(outcome.skipped) == {"c"}, "its only partner has gone, and the hosts of the other pod are none"


def placed(bad: str = "", **launch: Any) -> Run:
    """Three hosts of a rank table, known by other names than its server_ids."""
    hosts = {f"w{number}": 1 if f"w{number}" == bad else 5 for number in range(3)}
    table = RankTableFile("/job/table.json", json.dumps(tables.a2(3, 2)))
    options = LaunchOptions(**{"environ": {"RANK_TABLE_FILE": "/job/table.json"}, **launch})
    created_run = run(hosts, rank_table=table, launch=options)
    addresses = {f"w{n}": [["eth0", f"172.16.0.{n + 110}", 24]] for n in range(3)}
    sha = hashlib.sha256(table.text.encode()).hexdigest()
    copies = {host: {"path": "/job/table.json", "present": True, "sha256": sha} for host in hosts}
    return with_facts(created_run, HostAddresses=addresses, RankTableOnHost=copies)


TABLE_CHECKS = [
    *ours(runs.gauge_low),
    *real("rank-table-counts-wrong", "rank-table-ranks-not-contiguous", "rank-table-address-repeated"),
    *real("rank-table-world-size-differs", "rank-table-not-json", "rank-table-host-unknown"),
]


def start(created_run: Run, need: int, *more: str, **options: Any) -> SpareSelection:
    judge = judge_by([*TABLE_CHECKS, *real(*more)])
    return select_hosts(created_run, judge(created_run), judge, need, fail_on="warning", **options)


def test_findings_about_a_server_id_blame_the_host_that_it_is() -> None:
    assert table_host_names(placed())["node_1"] == "w1"
    value = tables.a2(3, 2)
    value["server_list"][2]["device"][0]["device_ip"] = value["server_list"][0]["device"][0]["device_ip"]
    structs = msgspec.structs.replace(placed(), rank_table=RankTableFile("/job/table.json", json.dumps(value)))
    choice = start(structs, 1, writes_table=True)
    assert (choice.hosts, choice.code) == (("w1",), 0)
    assert choice.excluded == dict.fromkeys(("w0", "w2"), ("rank-table-address-repeated",))


def test_the_rank_table_is_reduced_and_judged_and_is_on_no_host_yet() -> None:
    choice = start(placed("w1"), 2, "rank-table-differs-between-hosts", writes_table=True)
    assert (choice.hosts, choice.code, choice.obstacles) == (("w0", "w2"), 0, ())
    assert [s.server_id for s in tables.table(choice.run.rank_table.text).servers] == ["node_0", "node_2"]
    assert choice.report.outcomes[-1].status is not Status.FAILED


def test_a_rank_table_that_nobody_writes_anew_stops_the_start() -> None:
    choice = start(placed("w1"), 2)
    assert choice.code == Exit.FAILED
    assert choice.obstacles == ("the rank table lists excluded hosts; expected a reduced table to be written",)
    assert start(placed(), 3).code == 0, "nobody is left out"


@pytest.mark.parametrize(("size", "code"), [("4", 0), ("6", Exit.FAILED)])
def test_the_number_of_ranks_must_be_that_of_the_hosts_that_start(size: str, code: int) -> None:
    created_run = placed("w1", environ={"RANK_TABLE_FILE": "/job/table.json", "WORLD_SIZE": size})
    assert start(created_run, 2, writes_table=True).code == code


def test_a_table_that_cannot_be_reduced_fails_the_rest() -> None:
    structs = msgspec.structs.replace(placed("w1"), rank_table=RankTableFile("/t.json", json.dumps(tables.a2(1, 2))))
    part = subset(structs, ("w0", "w2"))
    (finding,) = judged("rank-table-not-json", part).findings
    assert "it cannot be reduced to 2 hosts: it does not list w2" in str(finding)
    assert start(structs, 2, writes_table=True).code == Exit.FAILED


def test_a_table_of_another_version_stays_as_it_is() -> None:
    structs = msgspec.structs.replace(placed(), rank_table=RankTableFile("/t.json", error="no such file"))
    assert subset(structs, ("w0",)).rank_table == structs.rank_table
