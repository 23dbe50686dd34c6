from doctor.facts.names import HostNames, NameResolution
from doctor.facts.network import HostAddresses, InterfaceAddress
from tests.checks.run_check import messages, run_check, skipped


def sees(own_name: str, *addresses: str) -> list[HostNames]:
    return [
        HostNames(
            own=own_name, names={own_name: NameResolution(("127.0.1.1",)), "n1": NameResolution(addresses)}, fleet=2
        )
    ]


def test_names_that_resolve_alike_pass() -> None:
    assert messages(run_check("host-name-ambiguous", {"a": sees("a", "10.0.0.1"), "b": sees("b", "10.0.0.1")})) == []


def test_the_host_with_another_address_is_blamed() -> None:
    hosts = {"a": sees("a", "10.0.0.1"), "b": sees("b", "10.9.9.9"), "c": sees("c", "10.0.0.1")}
    assert messages(run_check("host-name-ambiguous", hosts)) == [("b", "n1 resolves to 10.9.9.9; expected 10.0.0.1")]


def test_what_no_second_witness_confirms_is_entered_nowhere() -> None:
    """The addresses of the hosts themselves are not known here: a majority may be wrong about one of them."""
    hosts = {"a": sees("a", "10.0.0.1"), "b": sees("b", "10.9.9.9"), "c": sees("c", "10.0.0.1")}
    (finding,) = run_check("host-name-ambiguous", hosts).findings
    assert finding.values["correction"] == "vi /etc/hosts"


def test_an_address_in_common_is_enough() -> None:
    """A host may name all of its own addresses where others know one."""
    hosts = {"a": sees("a", "10.0.0.1", "172.17.0.1"), "b": sees("b", "10.0.0.1"), "c": sees("c", "10.0.0.1")}
    assert messages(run_check("host-name-ambiguous", hosts)) == []


def has(*addresses: str) -> HostAddresses:
    return HostAddresses(tuple(InterfaceAddress("eth0", address, 24) for address in addresses))


def test_two_addresses_of_one_host_are_the_same_host() -> None:
    """A host knows its own name by IPv6, and the others know it by IPv4; that an address is another host's is found."""
    hosts = {
        "a": [*sees("a", "fd00::1"), has("10.0.0.1", "fd00::1")],
        "b": [*sees("b", "10.0.0.1"), has("10.0.0.2")],
        "c": [*sees("c", "10.0.0.1"), has("10.0.0.3")],
    }
    assert messages(run_check("host-name-ambiguous", hosts)) == []
    hosts["a"] = [*sees("a", "10.0.0.2"), has("10.0.0.1", "fd00::1")]
    assert messages(run_check("host-name-ambiguous", hosts)) == [("a", "n1 resolves to 10.0.0.2; expected 10.0.0.1")]


def test_an_address_that_several_hosts_have_is_of_none() -> None:
    hosts = {
        "a": [*sees("a", "172.17.0.1"), has("10.0.0.1", "172.17.0.1")],
        "b": [*sees("b", "10.0.0.1"), has("172.17.0.1")],
    }
    assert sorted(host for host, _ in messages(run_check("host-name-ambiguous", hosts))) == ["a", "b"]


def test_loopback_is_left_to_its_own_check() -> None:
    assert messages(run_check("host-name-ambiguous", {"a": sees("a", "127.0.1.1"), "b": sees("b", "10.0.0.1")})) == []


def test_a_tie_blames_both() -> None:
    outcome = run_check("host-name-ambiguous", {"a": sees("a", "10.0.0.1"), "b": sees("b", "10.0.0.2")})
    assert [host for host, _ in messages(outcome)] == ["a", "b"]
    assert "no majority" in outcome.findings[0].values["expected"]


def test_a_single_host_is_skipped() -> None:
    assert skipped(run_check("host-name-ambiguous", {"a": sees("a", "10.0.0.1")}))
