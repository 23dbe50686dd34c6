"""Which link or host bytes do not get through, from what sockets and connection attempts say."""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
import sys
from collections import Counter
from itertools import permutations
from typing import Any

import pytest

from doctor.facts.interfaces import SendingDelay
from doctor.remote.runtime import connecting
from doctor.remote.runtime.connecting import REFUSED_HERE
from doctor.remote.runtime.netlink import neighbour_table
from doctor.smoke.hang.network_evidence import (
    REFUSALS,
    AddressOwners,
    by_host,
    failed_links,
    halted_by,
    held_back,
    is_answer,
    refusing_hosts,
    sentences,
    stuck_links,
    stuck_within,
    targets,
)
from doctor.smoke.hang.standstill import main_thread_stack
from doctor.smoke.model import Failure, SmokePlan, SmokeRun
from doctor.smoke.programs.agent.network import probe_connections
from doctor.smoke.results.trouble_findings import blamed_hosts

HOSTS = {f"w{n}": [f"10.0.0.{n}", "127.0.0.1", "172.17.0.1"] for n in range(4)}
OWNERS = AddressOwners(HOSTS)


def probes(cut: set[tuple[str, str]], result: str = "dropped") -> dict[str, list[tuple[str, int, str, float]]]:
    """All pairs tried; those in ``cut`` without an answer."""
    responses: dict[str, list[tuple[str, int, str, float]]] = {host: [] for host in HOSTS}
    for source, target in permutations(HOSTS, 2):
        responses[source].append((HOSTS[target][0], 4000, result if (source, target) in cut else "ok", 0.1))
    return responses


def test_whose_address_it_is() -> None:
    assert OWNERS.host("10.0.0.2", "w0") == "w2"
    assert OWNERS.host("127.0.0.1", "w0") == "w0"
    assert OWNERS.host("::1", "w3") == "w3"
    assert OWNERS.host("172.17.0.1", "w0") == "172.17.0.1"  # every host's bridge has it: it tells nothing
    assert OWNERS.host("8.8.8.8", "w0") == "8.8.8.8"


def test_sockets_that_send_again() -> None:
    rows = {
        "w0": [
            (0, "10.0.0.1", 5, 900, 3),
            (0, "10.0.0.1", 6, 100, 4),
            (0, "10.0.0.2", 7, 50, 1),
            (0, "10.0.0.3", 8, 0, 2),
        ],
        "w1": [(1, "10.0.0.1", 5, 900, 3), (1, "127.0.0.1", 5, 900, 3)],
    }
    assert stuck_links(rows, OWNERS) == {("w0", "w1"): (900, 4)}


def test_a_host_whose_ranks_do_not_even_reach_each_other_is_named_where_all_that_stands_still_ends_there() -> None:
    between, within = (1, "10.0.0.0", 6, 900, 3), (1, "10.0.0.1", 5, 900, 3)
    stuck = {"w0": [(0, "10.0.0.1", 5, 900, 2)], "w1": [between, within]}
    text = "w1 sends again what its own ranks have for each other, too, where no network lies between"
    assert stuck_within(stuck, OWNERS, stuck_links(stuck, OWNERS)) == {"w1": text}
    others = [("w0", "w2"), ("w0", "w1")]
    innocent = {**stuck, "w1": [between]}, {**stuck, "w0": [(0, "127.0.0.1", 5, 900, 2)]}
    assert not stuck_within(stuck, OWNERS, others)
    assert not any(stuck_within(rows, OWNERS, [("w0", "w1")]) for rows in innocent)


def test_several_agents_of_one_host() -> None:
    responses = {
        "w0 rank 0": ([(0, "10.0.0.1", 5, 1, 2)], [(0, "10.0.0.0", 9)]),
        "w0 rank 1": ([], [(1, "10.0.0.0", 10)]),
    }
    rows, doors = by_host({"w0 rank 0": "w0", "w0 rank 1": "w0"}, responses)
    assert rows == {"w0": [(0, "10.0.0.1", 5, 1, 2)]}
    assert doors == {"w0": [(0, "10.0.0.0", 9), (1, "10.0.0.0", 10)]}


def test_every_host_tries_one_port_of_every_other() -> None:
    doors = {host: [(n, "0.0.0.0", 1), (n, f"10.0.0.{n}", 4000 + n)] for n, host in enumerate(HOSTS)}
    aims = targets(doors, OWNERS, list(HOSTS))
    assert aims["w1"] == [("10.0.0.0", 4000), ("10.0.0.2", 4002), ("10.0.0.3", 4003)]
    assert set(aims) == set(HOSTS)


def test_of_many_hosts_only_those_concerned_try() -> None:
    many = AddressOwners({f"h{n}": [f"10.1.0.{n}"] for n in range(100)})
    doors = {f"h{n}": [(n, f"10.1.0.{n}", 4000)] for n in range(100)}
    assert targets(doors, many, ["h7", "h9"]) == {"h7": [("10.1.0.9", 4000)], "h9": [("10.1.0.7", 4000)]}


def test_one_link() -> None:
    assert failed_links(probes({("w1", "w2"), ("w2", "w1")}), OWNERS) == ((("w1", "w2"), ("w2", "w1")), (), ())


def test_one_host() -> None:
    cut = {pair for pair in permutations(HOSTS, 2) if "w2" in pair}
    links, hosts, _ = failed_links(probes(cut), OWNERS)
    assert set(links) == cut
    assert hosts == ("w2",)


def test_a_host_that_tried_itself_is_no_link() -> None:
    """Its own ranks come to the master's address as all others do."""
    responses = {"w0": [("10.0.0.0", 0, "dropped", 0.0)], "w1": [("10.0.0.0", 0, "dropped", 0.0)]}
    assert failed_links(responses, OWNERS) == ((("w1", "w0"),), (), ())


def test_a_host_that_does_not_reach_itself_is_named_where_its_ranks_need_it() -> None:
    """As where lo is down: all others reach it. A host with one rank has nobody of its own to reach."""
    doors = {"w0": [(0, "10.0.0.0", 4000)], "w1": [(1, "10.0.0.1", 4001), (2, "10.0.0.1", 4002)]}
    assert targets(doors, OWNERS, list(doors)) == {
        "w0": [("10.0.0.1", 4001)],
        "w1": [("10.0.0.0", 4000), ("10.0.0.1", 4001)],
    }
    responses = {**probes(set()), "w1": [("10.0.0.1", 4001, "dropped", 0.6)]}
    links, hosts, parts = failed_links(responses, OWNERS)
    assert (links, hosts, parts) == ((("w1", "w1"),), ("w1",), ())
    assert sentences({}, links, hosts, True) == ("w1: a connection to its own address gets no answer",)
    assert failed_links({"w1": responses["w1"]}, OWNERS)[1] == ("w1",), "a job of one host"


def test_who_has_the_address_of_another_host_as_well() -> None:
    owners = AddressOwners(
        {"w1": ["10.1.0.1", "127.0.0.1"], "w2": ["10.1.0.2", "10.1.0.1", "127.0.0.1"], "w3": ["10.1.0.3"]}
    )
    assert owners.other_holder("10.1.0.1", "w1") == "w2"
    assert owners.other_holder("10.1.0.1", "w3") == ""  # it has not got it itself
    assert [owners.other_holder(address, "w1") for address in ("127.0.0.1", "10.1.0.2", "head")] == ["", "", ""]
    bridge = AddressOwners({host: ["172.17.0.1"] for host in HOSTS})
    assert bridge.other_holder("172.17.0.1", "w0") == ""


def test_whose_address_another_host_has_by_now() -> None:
    hosts = {"w1": ["10.1.0.1", "172.17.0.1", "fe80::1"], "w2": ["10.1.0.2", "172.17.0.1"], "w3": ["10.1.0.3"]}
    owners = AddressOwners(hosts)
    assert owners.taken(owners) == []
    assert owners.taken(AddressOwners({**hosts, "w2": [*hosts["w2"], "10.1.0.1"]})) == [("w2", "10.1.0.1", "w1")]
    moved = {**hosts, "w1": [], "w3": ["10.1.0.3", "10.1.0.1"]}
    assert owners.taken(AddressOwners(moved)) == [], "an address that moves with its service belongs to one host"
    assert owners.taken(AddressOwners({**hosts, "w3": ["10.1.0.3", "172.17.0.1", "fe80::1"]})) == []
    both = {**hosts, "w2": [*hosts["w2"], "10.1.0.1"], "w3": [*hosts["w3"], "10.1.0.1"]}
    assert owners.taken(AddressOwners(both)) == [], "which of several is the one is not told"


def test_whose_queueing_discipline_holds_back_what_it_sends() -> None:
    slow, lossy = SendingDelay("eth0", "tbf", 0.0, 0.0, 37_500.0), SendingDelay("eth1", "netem", 0.0, 0.05, 0.0)
    usual = SendingDelay("eth0", "tbf", 0.0, 0.0, 1.25e9), SendingDelay("eth0", "netem", 0.001, 0.0, 0.0)
    rows = {"w1": [slow], "w2": usual, "w3": []}
    assert held_back(rows, 3, []) == {"w1": "tbf on eth0 of w1 limits to 0.3 Mbit/s"}
    assert held_back(rows, 3, [("w1", "w2"), ("w3", "w1")]).keys() == {"w1"}
    assert not held_back(rows, 3, [("w1", "w2"), ("w2", "w3")]), "it explains one of two links"
    assert held_back({"w1": [], "w2": [lossy]}, 2, []) == {"w2": "netem on eth1 of w2 drops 5 %"}
    assert not held_back({host: [slow] for host in HOSTS}, len(HOSTS), []), "a fleet that is meant to be so"
    assert not held_back({"w2": usual}, 2, [])


def test_who_keeps_all_bytes_of_a_connection_back() -> None:
    def judged(halted: dict[str, list[tuple[str, bool]]], **unread: str) -> Any:
        reports = [(host, halted.get(host, []), unread.get(host, "").split()) for host in ("w0", "w1", "w2")]
        return halted_by(reports, OWNERS, 3)

    refusing, links = judged({"w1": [("10.0.0.2", True)]})
    assert (refusing.keys(), links) == ({"w1"}, {})
    assert judged({host: [("10.0.0.2", True)] for host in ("w0", "w1")}) == ({}, {}), "most hosts"
    no_room = {"w1": [("10.0.0.2", False)], "w0": [("10.0.0.2", False)]}
    refusing, links = judged(no_room)
    assert (refusing, links.keys()) == ({}, {("w0", "w2"), ("w1", "w2")}), "no host's word names another alone"
    assert "w2 announces no room to w1 (TCP window 0)" in links["w1", "w2"]
    assert judged(no_room, w2="10.0.0.0 10.0.0.1") == ({}, {}), "ranks that do not read what came"
    alone = halted_by([("w1", [("10.0.0.2", False)], [])], OWNERS, 3)
    assert alone == ({}, {}), "what the peer has read is not known"


STALLED = """
import socket, time
from doctor.smoke.programs.agent.network import halted_connections, tcp_sockets
import os
server = socket.create_server(("127.0.0.1", 0))
sender = socket.create_connection(server.getsockname())
receiver, _ = server.accept()
sender.setblocking(False)
PREPARE
try:
    while True:
        sender.send(bytes(65536))
except BlockingIOError:
    pass
time.sleep(1.5)
unread = sorted(set(peer[0] for _, _, _, peer, _, _, unread in tcp_sockets([os.getpid()]) if unread))
print(halted_connections([os.getpid()]), unread)
"""

RULE = "table inet t {{ chain c {{ type filter hook {} priority 0; meta length > 1000 drop; }}; }}"
LARGE_DROPPED = f"import subprocess; subprocess.run(['nft', '{RULE}'], check=True)"


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        ("", "[('127.0.0.1', False)] ['127.0.0.1']"),
        (LARGE_DROPPED.format("output"), "[('127.0.0.1', True)] []"),
        (LARGE_DROPPED.format("input"), "[] []"),
    ],
    ids=["a peer that does not read", "refused here", "lost on its way"],
)
def test_what_the_kernel_tells_of_a_connection_that_sends_nothing(prepare: str, expected: str) -> None:
    script = 'ip link set lo up && exec "$0" -c "$1"'
    command = ["unshare", "--net", "sh", "-c", script, sys.executable, STALLED.replace("PREPARE", prepare)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_every_address_of_an_interface_is_reported() -> None:
    script = 'ip addr add 192.0.2.7/24 dev lo && ip addr add 192.0.2.8/24 dev lo && exec "$0" -c '
    script += "'from doctor.smoke.programs.agent.network import *; print(*interface_addresses()[\"lo\"])'"
    command = ["unshare", "--net", "sh", "-c", script, sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["192.0.2.7", "192.0.2.8"]


def test_two_hosts_of_two_do_not_tell_which() -> None:
    responses = {"w0": [("10.0.0.1", 4000, "dropped", 0.6)], "w1": [("10.0.0.0", 4000, "dropped", 0.6)]}
    assert failed_links(responses, OWNERS) == ((("w0", "w1"), ("w1", "w0")), (), ())


def test_two_links_of_one_host_are_links() -> None:
    cut = {("w1", "w2"), ("w2", "w1"), ("w2", "w3"), ("w3", "w2")}
    links, hosts, parts = failed_links(probes(cut), OWNERS)
    assert (set(links), hosts, parts) == (cut, (), ())


def test_a_fleet_that_is_cut_in_two_names_no_host() -> None:
    cut = {(one, two) for one, two in permutations(HOSTS, 2) if (one < "w2") != (two < "w2")}
    links, hosts, parts = failed_links(probes(cut), OWNERS)
    assert (set(links), hosts) == (cut, ())
    assert parts == (("w0", "w1"), ("w2", "w3"))


def test_refused_is_an_answer() -> None:
    assert failed_links(probes({("w1", "w2")}, "refused"), OWNERS) == ((), (), ())
    assert failed_links(probes({("w1", "w2")}, "no-route"), OWNERS) == ((("w1", "w2"),), (), ())


def test_small_packets_pass_and_large_ones_do_not() -> None:
    lines = sentences({("w1", "w2"): (21000, 4)}, (), (), probed=True)
    assert lines[0] == "w1 to w2: 21000 bytes unacknowledged, sent again 4 times"
    assert "MTU" in lines[1]
    small = sentences({("w1", "w2"): (21000, 4), ("w2", "w1"): (48, 2)}, (), (), probed=True)
    assert "MTU" not in small[-1] and "a rule that follows connections" in small[-1]
    assert len(sentences({("w1", "w2"): (21000, 4)}, (), (), probed=False)) == 1
    assert len(sentences({}, (), (), probed=True)) == 0


def test_a_cut_host_in_words() -> None:
    lines = sentences({}, (("w1", "w2"),), ("w2",), probed=True)
    assert lines == ("w1 to w2: a new connection gets no answer", "w2: no other host gets an answer from it")


def test_the_main_threads_stack_and_the_loader_workers() -> None:
    text = (
        "Thread 0x01 (most recent call first):\n  <no Python frame>\n\n"
        'Current thread 0x02 (most recent call first):\n  File "worker/rank.py", line 3 in run_rank\n'
        "\nloader worker 77, in futex_wait:\n"
        'Current thread 0x03 (most recent call first):\n  File "user.py", line 9 in __getitem__\n'
    )
    assert main_thread_stack(text).splitlines() == [
        "Current thread 0x02 (most recent call first):",
        '  File "worker/rank.py", line 3 in run_rank',
        "loader worker 77, in futex_wait:",
        "Current thread 0x03 (most recent call first):",
        '  File "user.py", line 9 in __getitem__',
    ]


def test_a_stack_is_bounded_and_plain() -> None:
    assert len(main_thread_stack("Current thread\n" + "  \x1b[31mred\n" * 10_000)) <= 4000
    assert "\x1b" not in main_thread_stack("Current thread\n  \x1b[31mred\n")
    assert main_thread_stack("") == ""


CONNECTED = {
    host: [(0, f"10.0.0.{number}", 4000, 0, 0) for number in range(4) if f"w{number}" != host] for host in HOSTS
}
"""Every host has connections with all others."""


def refusing(cut: set[tuple[str, str]], result: str = "EHOSTUNREACH", **sockets: Any) -> dict[str, str]:
    return refusing_hosts(probes(cut, result), {**CONNECTED, **sockets}, OWNERS)


def test_a_host_whose_own_kernel_sends_nothing_to_its_peer_says_so() -> None:
    assert refusing({("w1", "w2")}) == {
        "w1": "w1 itself refuses to send to 10.0.0.2: a route says that it is unreachable"
    }
    assert refusing({("w1", "w2"), ("w1", "w3")}, "EINVAL").keys() == {"w1"}
    assert refusing({("w1", "w2"), ("w2", "w1")}).keys() == {"w1", "w2"}  # each of itself


def test_silence_or_a_message_of_another_one_is_no_word_of_its_own_kernel() -> None:
    for result in ("dropped", "no-route", "untried", "ENOSUCHERROR", "refused", "ok"):
        assert not refusing({("w1", "w2")}, result)


def test_an_address_that_most_hosts_have_no_way_to_is_no_fault_of_theirs() -> None:
    """A routing daemon withdraws the routes to a host that is lost, everywhere."""
    assert not refusing({("w0", "w2"), ("w1", "w2"), ("w3", "w2")})
    assert not refusing({("w0", "w2"), ("w1", "w2")})
    assert refusing({("w1", "w2")}).keys() == {"w1"}


def test_an_address_that_a_host_never_had_a_connection_with_may_be_of_another_network() -> None:
    assert not refusing({("w1", "w2")}, w1=[(0, "10.9.9.2", 4000, 0, 0)])


def test_what_could_not_be_tried_is_neither_an_answer_nor_a_broken_link() -> None:
    assert failed_links(probes({("w1", "w2")}, "untried"), OWNERS) == ((), (), ())
    assert failed_links(probes({("w1", "w2")}, "EINVAL"), OWNERS) == ((("w1", "w2"),), (), ())
    assert [is_answer(result) for result in ("ok", "refused", "untried", "EINVAL")] == [True, True, False, False]


@pytest.mark.parametrize("count", [3, 4, 5, 8])
def test_one_struck_host_never_leads_to_an_innocent_one_alone(count: int) -> None:
    """Whichever of its links stand still or answer in that moment, and whichever hosts answer the controller."""
    hosts = {f"w{number}": [f"10.0.0.{number}"] for number in range(count)}
    owners, pairs = AddressOwners(hosts), list(permutations(hosts, 2))
    named = Counter[bool]()
    for seed in range(1500):
        dice = random.Random(seed)
        struck, share, answering = (
            dice.choice([*hosts]),
            dice.choice([0.1, 0.3, 0.6, 1.0]),
            dice.choice([0.5, 0.9, 1.0]),
        )
        of_it = [pair for pair in pairs if struck in pair]
        stuck = {pair for pair in of_it if dice.random() < share}
        lost = {pair for pair in of_it if dice.random() < share}
        trying = [host for host in hosts if dice.random() < answering]
        responses = {
            host: [(hosts[to][0], 1, "dropped" if (host, to) in lost else "ok", 0.1) for to in hosts if to != host]
            for host in trying
        }
        failed, _, parts = failed_links(responses, owners)
        assert not parts or len(trying) < count  # a fleet is cut where too little of it was seen
        failure = Failure("network", (), (), links=failed or tuple(sorted(stuck)))
        if failure.links:
            blamed = blamed_hosts(SmokeRun(SmokePlan("gloo", (), ())), failure)
            assert struck in blamed and len(blamed) < 3
            named[blamed == (struck,)] += 1
    assert named[True] > named[False] / 4


def test_each_error_that_connect_gives_at_once_has_its_words() -> None:
    """The hosts name the number, and the controller says what it means: two lists, which cannot import each other."""
    assert {errno.errorcode[number] for number in REFUSED_HERE} == REFUSALS.keys()


@pytest.mark.parametrize("fulls", [(3, 3), (3, 5)], ids=["room", "full"])
def test_a_connection_that_the_own_table_of_neighbours_had_no_room_for_says_nothing_of_the_other_host(
    monkeypatch: pytest.MonkeyPatch, fulls: tuple[int, int]
) -> None:
    counts = iter(fulls)
    monkeypatch.setattr(connecting, "neighbour_table", lambda: (1024, next(counts)))
    with socket.socket() as server, socket.socket() as waiting:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting.connect(server.getsockname())  # the one that its queue has room for: the next gets no answer
        ((_, _, result, _),) = probe_connections([server.getsockname()], 0.05)
    assert result == ("dropped" if fulls == (3, 3) else "untried")


def test_the_kernel_tells_how_many_neighbours_it_had_no_room_for() -> None:
    most, refused = neighbour_table()
    assert most > 0 and refused >= 0
