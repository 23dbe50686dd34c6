import pytest

from doctor.facts.names import NO_ANSWER, HostNames, NameResolution
from doctor.facts.visit import Reachability
from tests.checks.ports import known_as
from tests.checks.run_check import messages, run_check, skipped

LOST = NameResolution(error="Name or service not known")
LATE = NameResolution(error=NO_ANSWER)


def host(own_name: str, **names: NameResolution) -> list[HostNames]:
    return [HostNames(own=own_name, names={own_name: NameResolution(("10.0.0.9",)), **names}, fleet=2)]


A, B = NameResolution(("10.0.0.1",)), NameResolution(("10.0.0.2",))


def test_names_that_all_hosts_know_are_well() -> None:
    assert messages(run_check("host-name-unresolved", {"a": host("a", a=A, b=B), "b": host("b", a=A, b=B)})) == []


def test_the_host_that_lacks_a_name_is_blamed() -> None:
    outcome = run_check("host-name-unresolved", {"a": host("a", a=A, b=LOST), "b": host("b", a=A, b=B)})
    assert messages(outcome) == [("a", "cannot resolve b: Name or service not known")]
    assert outcome.findings[0].values["taken"] == ""  # its own name is known: Gloo does not take loopback


def test_a_name_that_a_host_gives_itself_must_be_known() -> None:
    outcome = run_check("host-name-unresolved", {"a": host("a", a=LOST, b=LOST), "b": host("b", a=LOST, b=LOST)})
    assert [(finding.hosts, finding.values["count"]) for finding in outcome.findings] == [(("a",), 2), (("b",), 2)]
    assert [finding.values["taken"] for finding in outcome.findings] == ["127.0.0.1", "127.0.0.1"]


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


def test_a_name_server_that_is_slow_accuses_nobody() -> None:
    """It has answered for another name; one that answers for none, or for one that it does not know, is a finding."""
    others = {"b": host("b", a=A, b=B, c=A), "c": host("c", a=A, b=B, c=A)}
    outcome = run_check("host-name-unresolved", {"a": host("a", b=B, c=LATE), **others})
    assert "a had no answer for c in 8 s" in str(outcome.unknown) and not outcome.findings
    outcome = run_check("host-name-unresolved", {"a": host("a", b=LATE, c=LATE), **others})
    assert messages(outcome) == [("a", f"cannot resolve b and c: {NO_ANSWER}")]
    outcome = run_check("host-name-unresolved", {"a": host("a", b=LOST, c=LATE, d=A), **others})
    assert [finding.hosts for finding in outcome.findings] == [("a",)]


def test_a_single_host_is_skipped() -> None:
    assert skipped(run_check("host-name-unresolved", {"a": host("a", a=LOST)}))


def test_hosts_that_are_known_by_addresses_are_skipped() -> None:
    """As the pods of an AscendJob or a RayCluster, which have no names for each other."""
    own = {name: [HostNames(own=name, names={name: A}, fleet=0)] for name in ("w-x7k2p", "w-abcde")}
    assert skipped(run_check("host-name-unresolved", own))


def pods(resolution: NameResolution, *absent: str) -> dict[str, list[HostNames]]:
    """Three pods of a service, which look each other up by its names."""
    names = [f"train-{number}" for number in range(3)]
    known = {f"{name}.train": LOST if name in absent else resolution for name in names}
    return {name: host(name, **known) for name in names}


def test_names_that_no_pod_can_resolve_are_those_of_a_service_that_does_not_publish_them() -> None:
    outcome = run_check("host-name-unresolved", pods(LOST))
    assert [(finding.hosts, finding.values["first"]) for finding in outcome.findings] == [
        ((name,), "train-0.train") for name in ("train-0", "train-1", "train-2")
    ]


def test_the_name_of_the_one_pod_that_is_not_ready_is_missed_by_all() -> None:
    outcome = run_check("host-name-unresolved", pods(A, "train-1"))
    assert {finding.values["count"] for finding in outcome.findings} == {1}
    assert len(outcome.findings) == 3


@pytest.mark.parametrize("suffix", ["", "-x7k2p"])
def test_pods_with_the_network_of_their_nodes_are_called_as_these_are(suffix: str) -> None:
    """Without dnsPolicy ClusterFirstWithHostNet they ask the name servers of the nodes, which know no service."""
    fleet = {
        f"train-{number}{suffix}": host(f"node{number}", **{"train-0.train": LOST, "train-1.train": LOST})
        for number in range(2)
    }
    outcome = run_check("host-name-unresolved", fleet)
    assert {finding.values["count"] for finding in outcome.findings} == {2}
    assert len(outcome.findings) == 2


def test_the_name_of_a_pod_that_was_not_reached_is_not_judged() -> None:
    """Its container does not run yet: nothing says that its name will not be there by then."""
    fleet = pods(A, "train-1")
    del fleet["train-1"]
    assert messages(run_check("host-name-unresolved", fleet)) == []


def test_full_names_made_up_for_the_announcement_are_not_judged() -> None:
    """`resolve_names` asks for the first host in this host's own domain, in which it need not be."""
    hosts = {
        name: [HostNames(name, {name: A, f"{name}.b.example": B, "a.b.example": LOST}, 2, f"{name}.b.example")]
        for name in ("a", "b")
    }
    hosts["a"][0].names["a.b.example"] = LOST
    assert messages(run_check("host-name-unresolved", hosts)) == []


def test_an_alias_with_a_domain_is_no_name_of_a_service() -> None:
    fleet = {name: host(name.partition(".")[0], **{"n1.x": LOST, "n2.x": LOST}) for name in ("n1.x", "n2.x")}
    assert messages(run_check("host-name-unresolved", fleet)) == []


def test_the_line_for_the_name_that_a_host_gives_itself_has_its_address() -> None:
    renamed = [
        HostNames(own="gpu-17", names={"gpu-17": LOST, "a": A, "b": B}, fleet=2),
        known_as("b", "10.0.0.2")[1],
        Reachability("", "", "", address="10.0.0.2"),
    ]
    outcome = run_check("host-name-unresolved", {"a": host("a", a=A, b=B), "b": renamed})
    assert outcome.findings[0].values["hosts_command"] == r"printf '%s\n' '10.0.0.2 gpu-17' >> /etc/hosts"
