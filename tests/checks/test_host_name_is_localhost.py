import pytest

from doctor.facts.names import HostNames, NameResolution
from tests.checks.run_check import advice, messages, run_check, skipped

NAME = "host-name-is-localhost"
WELL = [HostNames(own="n1", names={"n1": NameResolution(("10.0.0.1",))}, fleet=2)]


def called(name: str) -> list[HostNames]:
    return [HostNames(own=name, names={name: NameResolution(("127.0.0.1",))}, fleet=2)]


@pytest.mark.parametrize("name", ["localhost", "localhost.localdomain", "Localhost"])
def test_a_host_called_localhost(name: str) -> None:
    outcome = run_check(NAME, {"a": WELL, "b": called(name)})
    assert messages(outcome) == [("b", f"the host is called {name}")]
    assert "hostname b && echo b > /etc/hostname" in advice(NAME, outcome)
    assert "sed" not in advice(NAME, outcome)


def test_the_lines_of_localhost_are_left_alone() -> None:
    """The check for other loopback names would take localhost out of /etc/hosts."""
    outcome = run_check("host-name-is-loopback", {"a": WELL, "b": called("localhost")})
    assert messages(outcome) == []


@pytest.mark.parametrize("name", ["localhost1", "local", "my-localhost"])
def test_other_names(name: str) -> None:
    assert messages(run_check(NAME, {"a": WELL, "b": called(name)})) == []


def test_a_single_host_is_skipped() -> None:
    assert skipped(run_check(NAME, {"b": called("localhost")})) == {"only one host: no other host resolves its name"}
