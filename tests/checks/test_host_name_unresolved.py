from doctor.facts.names import HostNames, NameResolution
from tests.checks.run_check import messages, run_check, skipped

LOST = NameResolution(error="Name or service not known")


def host(own_name: str, **names: NameResolution) -> list[HostNames]:
    return [HostNames(own=own_name, names={own_name: NameResolution(("10.0.0.9",)), **names}, fleet=2)]


A, B = NameResolution(("10.0.0.1",)), NameResolution(("10.0.0.2",))


def test_names_that_all_hosts_know_are_well() -> None:
    assert messages(run_check("host-name-unresolved", {"a": host("a", a=A, b=B), "b": host("b", a=A, b=B)})) == []


def test_the_host_that_lacks_a_name_is_blamed() -> None:
    outcome = run_check("host-name-unresolved", {"a": host("a", a=A, b=LOST), "b": host("b", a=A, b=B)})
    assert messages(outcome) == [("a", "cannot resolve b: Name or service not known")]


def test_a_name_that_a_host_gives_itself_must_be_known() -> None:
    outcome = run_check("host-name-unresolved", {"a": host("a", a=LOST, b=LOST), "b": host("b", a=LOST, b=LOST)})
    assert [(finding.hosts, finding.values["count"]) for finding in outcome.findings] == [(("a",), 2), (("b",), 2)]


def test_an_alias_of_the_ssh_configuration_is_no_name() -> None:
    outcome = run_check(
        "host-name-unresolved", {"w1": host("n1", w1=LOST, w2=LOST), "w2": host("n2", w1=LOST, w2=LOST)}
    )
    assert messages(outcome) == []


def test_many_names_are_counted() -> None:
    hosts = [f"n{number}" for number in range(9)]
    blind = host("x", **dict.fromkeys(hosts, LOST))
    seeing = host("y", **dict.fromkeys(hosts, A))
    (finding,) = run_check("host-name-unresolved", {"a": blind, "b": seeing}).findings
    assert finding.values["count"] == 9
    assert "more" in str(finding)


def test_a_single_host_is_skipped() -> None:
    assert skipped(run_check("host-name-unresolved", {"a": host("a", a=LOST)}))
