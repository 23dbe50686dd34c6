from doctor.facts.names import HostNames, NameResolution
from tests.checks.run_check import job, messages, run_check, skipped

SEES = [HostNames(own="a", names={"a": NameResolution(("10.0.0.1",)), "m": NameResolution(("10.0.0.5",))}, fleet=2)]
BLIND = [
    HostNames(
        own="b", names={"b": NameResolution(("10.0.0.2",)), "m": NameResolution(error="no answer in 8 s")}, fleet=2
    )
]


def test_a_name_that_all_hosts_know_is_well() -> None:
    assert messages(run_check("master-address-unresolved", {"a": SEES}, job(MASTER_ADDR="m"))) == []


def test_the_host_that_cannot_find_it_is_blamed() -> None:
    outcome = run_check("master-address-unresolved", {"a": SEES, "b": BLIND}, job(MASTER_ADDR="m"))
    assert messages(outcome) == [("b", "MASTER_ADDR m does not resolve: no answer in 8 s")]


def test_what_needs_no_look_up_is_not_judged() -> None:
    assert skipped(run_check("master-address-unresolved", {"b": BLIND})) == {"MASTER_ADDR is not given"}
    for address in ("10.0.0.5", "fd00::5"):
        outcome = run_check("master-address-unresolved", {"b": BLIND}, job(MASTER_ADDR=address))
        assert skipped(outcome) == {"MASTER_ADDR is an address, not a name"}


def test_a_name_that_nobody_asked_for_is_not_well() -> None:
    assert skipped(run_check("master-address-unresolved", {"a": SEES}, job(MASTER_ADDR="z"))) == {"z was not looked up"}


def test_a_misspelt_host_is_named() -> None:
    typed = NameResolution(error="Name or service not known")
    hosts = {name: [HostNames(own=name, names={"node01": typed}, fleet=2)] for name in ("node001", "node002")}
    outcome = run_check("master-address-unresolved", hosts, job(MASTER_ADDR="node01"))
    values = outcome.findings[0].values
    assert (values["expected"], values["option"]) == ("node001, a host of this run", "`export MASTER_ADDR=node001`")


def test_a_name_like_that_of_two_hosts_is_none_of_them() -> None:
    typed = NameResolution(error="Name or service not known")
    hosts = {name: [HostNames(own=name, names={"node": typed}, fleet=2)] for name in ("node1", "node2")}
    values = run_check("master-address-unresolved", hosts, job(MASTER_ADDR="node")).findings[0].values
    assert (values["expected"], values["option"]) == ("an address", "`export MASTER_ADDR=<address>`")
    assert values["hosts_command"] == "printf '%s\\n' '<address> node' >> /etc/hosts"
