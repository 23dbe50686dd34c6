import pytest

from doctor.facts.names import HostNames, NameResolution
from tests.checks.looked import advice, judged, said, skipped

NAME = "host-name-is-localhost"
WELL = [HostNames(own="n1", names={"n1": NameResolution(("10.0.0.1",))}, fleet=2)]


def called(name: str) -> list[HostNames]:
    return [HostNames(own=name, names={name: NameResolution(("127.0.0.1",))}, fleet=2)]


@pytest.mark.parametrize("name", ["localhost", "localhost.localdomain", "Localhost"])
def test_a_host_called_localhost(name: str) -> None:
    outcome = judged(NAME, {"a": WELL, "b": called(name)})
    assert said(outcome) == [("b", f"the host is called {name}")]
    assert "hostnamectl set-hostname" in advice(NAME, outcome)
    assert "sed" not in advice(NAME, outcome)


def test_the_lines_of_localhost_are_left_alone() -> None:
    """The check for other loopback names would take localhost out of /etc/hosts."""
    outcome = judged("host-name-is-loopback", {"a": WELL, "b": called("localhost")})
    assert said(outcome) == []


@pytest.mark.parametrize("name", ["localhost1", "local", "my-localhost"])
def test_other_names(name: str) -> None:
    assert said(judged(NAME, {"a": WELL, "b": called(name)})) == []


def test_a_single_host_is_skipped() -> None:
    assert skipped(judged(NAME, {"b": called("localhost")})) == {"only one host: no other host resolves its name"}
