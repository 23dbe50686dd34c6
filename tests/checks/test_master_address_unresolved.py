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
