import pytest

from doctor.facts.names import HostNames, NameResolution
from tests.checks.run_check import advice, messages, run_check, skipped

WELL = [HostNames(own="n1", names={"n1": NameResolution(("10.0.0.1", "fd00::1"))}, fleet=2)]


def meaning(*addresses: str) -> list[HostNames]:
    return [HostNames(own="n2", names={"n2": NameResolution(addresses)}, fleet=2)]


def test_an_address_that_others_reach_is_well() -> None:
    assert messages(run_check("host-name-is-loopback", {"a": WELL, "b": meaning("192.168.0.7")})) == []


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.1.1", "::1"])
def test_loopback_in_every_spelling(address: str) -> None:
    outcome = run_check("host-name-is-loopback", {"a": WELL, "b": meaning(address)})
    assert messages(outcome) == [("b", f"its own name n2 resolves to {address}")]


def test_a_name_with_two_lines_is_loopback_all_the_same() -> None:
    """The resolver puts loopback first."""
    outcome = run_check("host-name-is-loopback", {"a": WELL, "b": meaning("10.0.0.2", "127.0.1.1")})
    assert [finding.values["address"] for finding in outcome.findings] == ["127.0.1.1"]


def test_the_advice_names_the_line_to_change() -> None:
    outcome = run_check("host-name-is-loopback", {"a": WELL, "b": meaning("127.0.1.1")})
    assert "echo <hosts entry> >> /etc/hosts" in advice("host-name-is-loopback", outcome)


def test_a_single_host_is_skipped() -> None:
    outcome = run_check("host-name-is-loopback", {"b": meaning("127.0.1.1")})
    assert skipped(outcome) == {"only one host: its loopback address is enough"}
