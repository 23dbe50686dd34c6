"""What may be written down about a host elsewhere: what it has itself, and somebody else confirms."""

from __future__ import annotations

import msgspec
import pytest

from doctor.engine.fact import Output, ProbeAnswer, Unreadable
from doctor.facts.address_proofs import AddressProofs
from doctor.facts.agreed_addresses import agreed_addresses, hosts_file_lines
from doctor.facts.hardware_addresses import HardwareAddresses
from doctor.facts.names import HostNames, NameResolution
from doctor.facts.network import HostAddresses, InterfaceAddress
from doctor.facts.visit import Reachability

HOSTS = ("a", "b", "c")
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}


def names(**changes: dict[str, str]) -> dict[str, HostNames]:
    """What each host resolves; ``changes`` by host."""
    return {
        host: HostNames(
            own=host,
            names={
                name: NameResolution((address,)) if address else NameResolution(error="unknown")
                for name, address in {**ADDRESSES, **changes.get(host, {})}.items()
            },
            fleet=3,
        )
        for host in HOSTS
    }


def held(*texts: str) -> HostAddresses:
    """Interfaces with ``ADDRESS/PREFIX``."""
    pairs = (text.split("/") for text in ("127.0.0.1/8", *texts))
    return HostAddresses(interfaces=tuple(InterfaceAddress("eth0", address, int(bits)) for address, bits in pairs))


TRUE = {host: held(f"{address}/24") for host, address in ADDRESSES.items()}
REACHED = {host: Reachability(failure="", text="", hint="", address=address) for host, address in ADDRESSES.items()}
UNKNOWN = {host: Reachability(failure="", text="", hint="") for host in HOSTS}


def test_a_name_gets_the_address_that_its_host_has() -> None:
    assert hosts_file_lines(["c"], names(a={"c": ""}), TRUE, UNKNOWN) == ["10.0.0.3 c"]


def test_no_single_host_decides_what_a_name_means() -> None:
    """The only one that knows the name says an address that its host does not have."""
    lying = names(a={"c": ""}, b={"c": "10.66.6.6"}, c={"c": "127.0.1.1"})
    assert hosts_file_lines(["c"], lying, TRUE, UNKNOWN) == []
    assert hosts_file_lines(["c"], lying, TRUE, REACHED) == ["10.0.0.3 c"]
    own_word = names(a={"c": ""}, b={"c": ""}, c={"c": "10.66.6.6"})
    assert hosts_file_lines(["c"], own_word, {**TRUE, "c": held("10.66.6.6/24")}, UNKNOWN) == []
    assert hosts_file_lines(["c"], own_word, {**TRUE, "c": held("10.66.6.6/24")}, REACHED) == []


def test_a_name_of_no_host_or_of_two_gets_no_line() -> None:
    assert hosts_file_lines(["pypi.org"], names(a={"pypi.org": "10.0.0.3"}), TRUE, REACHED) == []
    domains = {f"c.{domain}": names()["c"] for domain in ("x", "y")}
    held_by = {host: held("10.0.0.3/24") for host in domains}
    reached = dict.fromkeys(domains, REACHED["c"])
    assert hosts_file_lines(["c"], domains, held_by, reached) == []
    assert hosts_file_lines(["c"], {"c.x": domains["c.x"]}, held_by, reached) == ["10.0.0.3 c"]


def test_what_a_host_calls_itself_makes_it_the_owner_of_no_name() -> None:
    """A host could take the name of MASTER_ADDR, and with it the store of the job."""

    def calling_itself(own_name: str) -> dict[str, HostNames]:
        host_names = names()
        resolved = {**host_names["b"].names, own_name: NameResolution(("10.0.0.2",))}
        return {**host_names, "b": msgspec.structs.replace(host_names["b"], own=own_name, names=resolved)}

    liar = calling_itself("trainmaster")
    assert hosts_file_lines(["trainmaster"], liar, TRUE, REACHED) == []
    assert hosts_file_lines(["trainmaster"], liar, TRUE, REACHED, file_names=liar["a"]) == []
    assert hosts_file_lines(["trainmaster"], liar, TRUE, REACHED, file_names=liar["b"]) == ["10.0.0.2 trainmaster"]
    assert hosts_file_lines(["c"], calling_itself("c"), TRUE, REACHED) == ["10.0.0.3 c"]


def test_two_addresses_that_are_confirmed_leave_it_open() -> None:
    more = {**TRUE, "c": held("10.0.0.3/24", "10.0.1.3/24")}
    assert hosts_file_lines(["c"], names(a={"c": ""}, b={"c": "10.0.1.3"}), more, UNKNOWN) == ["10.0.1.3 c"]
    both = names(a={"c": "10.0.0.3"}, b={"c": "10.0.1.3"})
    assert hosts_file_lines(["c"], both, more, UNKNOWN) == []
    assert hosts_file_lines(["c"], both, more, REACHED) == ["10.0.0.3 c"]


def test_a_firewall_is_opened_to_confirmed_addresses_alone() -> None:
    everybody = set(ADDRESSES.values())
    assert agreed_addresses(names(), TRUE, REACHED) == everybody
    assert agreed_addresses(names(), TRUE, UNKNOWN) == everybody
    claims = {**TRUE, "c": held("10.0.0.3/24", "10.0.0.66/24", "10.0.0.77/32", "10.9.9.9/25")}
    assert agreed_addresses(names(), claims, REACHED) == everybody
    nobody = names(**{host: dict.fromkeys(HOSTS, "") for host in HOSTS})
    assert agreed_addresses(nobody, {**TRUE, "c": held("10.0.0.66/24")}, REACHED) == {"10.0.0.1", "10.0.0.2"}
    assert agreed_addresses(nobody, {**TRUE, "c": held("10.0.0.66/24")}, UNKNOWN) == set()


SECOND = {host: held(f"{address}/24", f"172.16.0.{at}/16") for at, (host, address) in enumerate(ADDRESSES.items(), 1)}
CARDS = {host: f"02:00:00:00:00:0{at}" for at, host in enumerate(HOSTS, 1)}


def neighbours(**learned: dict[str, str]) -> dict[str, HardwareAddresses]:
    """What the kernel of each host has learned: hardware addresses by address."""
    return {host: HardwareAddresses(local=(CARDS[host],), neighbours=learned.get(host, {})) for host in HOSTS}


def test_in_a_second_network_another_host_must_have_found_the_address_at_the_hosts_card() -> None:
    """ "My only address there is 172.16.66.66": nobody else says so, and a stranger's firewall rule comes of it."""
    first = set(ADDRESSES.values())
    on_one_card = {
        "a": {"10.0.0.2": CARDS["b"], "172.16.0.2": CARDS["b"], "10.0.0.3": CARDS["c"], "172.16.0.3": CARDS["c"]},
        "c": {"10.0.0.1": CARDS["a"], "172.16.0.1": CARDS["a"]},
    }
    every = first | {"172.16.0.1", "172.16.0.2", "172.16.0.3"}
    assert agreed_addresses(names(), SECOND, REACHED) == first
    assert agreed_addresses(names(), SECOND, REACHED, neighbours(**on_one_card)) == every
    assert agreed_addresses(names(), SECOND, REACHED, neighbours(), proofs(a={"172.16.0.2": "b"})) == first | {
        "172.16.0.2"
    }
    liar = {**SECOND, "c": held("10.0.0.3/24", "172.16.66.66/16")}
    known = {"10.0.0.3": CARDS["c"]}
    stranger = "02:00:00:00:00:99"
    claims = {"c": HardwareAddresses((stranger, CARDS["c"]), {"172.16.66.66": CARDS["c"]})}
    router = {"172.16.66.66": CARDS["c"], "10.0.0.3": CARDS["c"], "10.0.0.2": CARDS["c"]}
    for witness in (
        neighbours(c={"172.16.66.66": CARDS["c"]}),
        neighbours(a={**known, "172.16.66.66": stranger}),
        {**neighbours(a={**known, "172.16.66.66": stranger}), **claims},
        neighbours(a=router),
        {**neighbours(a={"172.16.66.66": CARDS["b"]}), "c": HardwareAddresses((CARDS["b"], CARDS["c"]), {})},
    ):
        assert agreed_addresses(names(), liar, REACHED, witness) == first
    for proof in (proofs(c={"172.16.66.66": "c"}), proofs(a={"172.16.66.66": "b"}), two_holders("172.16.66.66")):
        assert agreed_addresses(names(), liar, REACHED, neighbours(), proof) == first


def proofs(**answered: dict[str, str]) -> dict[str, AddressProofs]:
    """Who has answered each host, by address."""
    return {host: AddressProofs(proven=answered.get(host, {})) for host in HOSTS}


def two_holders(address: str) -> dict[str, AddressProofs]:
    return proofs(a={address: "c"}, b={address: "a"})


def test_a_name_that_only_the_host_itself_uses_is_no_witness() -> None:
    """The fleet resolves MASTER_ADDR to a stranger; a host that takes both, name and address, gains nothing."""
    master = {host: {"trainmaster": "10.0.0.66"} for host in HOSTS}
    host_names = {host: msgspec.structs.replace(value, own="trainmaster") for host, value in names(**master).items()}
    assert agreed_addresses(host_names, {**TRUE, "c": held("10.0.0.3/24", "10.0.0.66/24")}, REACHED) == set(
        ADDRESSES.values()
    )


@pytest.mark.parametrize("evil", ["fe80::1%x\n10.6.6.6 pypi.org", "fe80::1%eth0", "10.0.0.1\n", "::1%", " 10.0.0.1"])
def test_a_scope_or_a_line_break_is_no_address(evil: str) -> None:
    def answer(data: object) -> ProbeAnswer:
        return ProbeAnswer({"": Output(out=msgspec.json.encode(data).decode())})

    with pytest.raises((Unreadable, ValueError)):
        HostNames.read(answer({"own": "a", "names": {"a": {"addresses": [evil]}}, "fleet": 1}))
    with pytest.raises((Unreadable, ValueError)):
        HostAddresses.read(answer([["eth0", evil, 24]]))


@pytest.mark.parametrize("evil", ["a b", "a\nb", "\x1b[2J", "a" * 300])
def test_what_is_no_host_name_is_not_read(evil: str) -> None:
    data = {"own": "a", "names": {"a": {"error": "x"}, evil: {"addresses": ["10.0.0.1"]}}, "fleet": 1}
    with pytest.raises(Unreadable):
        HostNames.read(ProbeAnswer({"": Output(out=msgspec.json.encode(data).decode())}))
