"""Which hardware addresses answer for the addresses of other hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from doctor.engine.fact import Output, PerHost, ProbeAnswer, Unreadable
from doctor.facts.hardware_addresses import (
    MAX_NEIGHBOURS,
    HardwareAddresses,
    cards_seen_elsewhere,
    find_hardware_addresses,
)
from doctor.facts.interfaces import Interfaces
from doctor.facts.visit import Reachability
from tests.checks.network import interfaces
from tests.facts.answers import answered
from tests.facts.garbage import JSON, as_answer, runs_on_python_3_6, value_of

CARD, OTHER = "02:fc:00:00:00:01", "02:fc:00:00:00:02"


def test_the_answer_is_read() -> None:
    fact = answered(HardwareAddresses, {"local": [CARD], "neighbours": {"10.0.0.2": OTHER}})
    assert fact == HardwareAddresses(local=(CARD,), neighbours={"10.0.0.2": OTHER})


@given(JSON)
def test_an_answer_that_makes_no_sense_is_unreadable(value: Any) -> None:
    value_of(HardwareAddresses, as_answer(value))


@pytest.mark.parametrize(
    ("own_names", "neighbours"),
    [
        (["x"], {}),
        ([CARD + "\n"], {}),
        ([], {"10.0.0.2": "02"}),
        ([], {"h1": CARD}),
        ([], {f"10.0.{at >> 8}.{at & 255}": CARD for at in range(MAX_NEIGHBOURS + 1)}),
    ],
)
def test_what_is_no_address_is_not_read(own_names: list[str], neighbours: dict[str, str]) -> None:
    with pytest.raises((Unreadable, ValueError)):
        HardwareAddresses.read(ProbeAnswer({"": Output(out=as_answer({"local": own_names, "neighbours": neighbours}))}))


def test_the_function_runs_on_old_python() -> None:
    assert runs_on_python_3_6(find_hardware_addresses)


def test_a_host_is_sent_nowhere_but_into_its_own_networks() -> None:
    """What another host says of itself sends no packet anywhere else; what SSH did not reach, the list knows."""
    fleet = {"a": interfaces(eth0="10.0.0.1/24"), "b": interfaces(eth0="10.0.0.2/24", eth1="192.0.2.7/24")}
    silent = {"c": "10.0.0.3", "d": "192.0.2.9", "e": ""}
    visits = {host: Reachability("dropped", "", "", address) for host, address in silent.items()}
    plan = HardwareAddresses.plan({Interfaces: PerHost(fleet), Reachability: PerHost(visits)})
    assert plan == {
        "a": {"targets": ["10.0.0.2", "10.0.0.3"], "seconds": 1.0},
        "b": {"targets": ["10.0.0.3", "192.0.2.9", "10.0.0.1"], "seconds": 1.0},
    }


def test_the_witness_is_another_host_and_the_card_has_one_owner() -> None:
    learned = HardwareAddresses(local=(CARD,), neighbours={"10.0.0.2": OTHER})
    owner, nobody = HardwareAddresses((OTHER,), {"10.0.0.9": OTHER}), HardwareAddresses((), {})
    assert cards_seen_elsewhere({"a": learned, "b": owner}) == {"b": {OTHER: {"10.0.0.2": {"a"}}}}
    assert cards_seen_elsewhere({"a": learned, "b": nobody}) == {}
    assert cards_seen_elsewhere({"a": learned, "b": owner, "c": HardwareAddresses((OTHER,), {})}) == {}


ARP_IS_LOST = (
    "nft 'add table netdev t; add chain netdev t c { type filter hook egress device near priority 0; }; "
    "add rule netdev t c ether daddr ff:ff:ff:ff:ff:ff ether type arp drop'"
)


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("known", "prepared", "found", "unanswered"),
    [
        ("", "true", {"10.7.7.2": OTHER}, ["10.7.7.3"]),
        (f"lladdr {OTHER} nud reachable", ARP_IS_LOST, {}, ["10.7.7.2", "10.7.7.3"]),
        (f"lladdr {OTHER} nud permanent", ARP_IS_LOST, {"10.7.7.2": OTHER}, ["10.7.7.3"]),
    ],
    ids=["an old answer is not believed", "what it sends to all is lost", "the kernel was told"],
)
def test_two_network_namespaces_find_each_other(
    known: str, prepared: str, found: dict[str, str], unanswered: list[str]
) -> None:
    """The kernel's own tables, over a pair of virtual cards; an address that nobody has is not found."""
    script = Path(__file__).with_name("hardware_addresses.sh")
    task = {"targets": ["10.7.7.2", "10.7.7.3", "fd07::2"], "seconds": 1.0}
    code = (
        "import json; from doctor.facts.hardware_addresses import find_hardware_addresses as find\n"
        f"print(json.dumps(find({{'asked': 'x', 'x': {task!r}}})))"
    )
    inside = ["sh", str(script), "sh", "-c", f'{prepared}; exec "$@"', "sh", sys.executable, "-c", code]
    environ = {**os.environ, **({"known": known} if known else {})}
    done = subprocess.run(["unshare", "-n", *inside], capture_output=True, timeout=60, check=True, env=environ)
    fact = msgspec.json.decode(done.stdout, type=HardwareAddresses)
    assert fact == HardwareAddresses((CARD,), {**found, "fd07::2": OTHER}, unanswered=tuple(unanswered))
