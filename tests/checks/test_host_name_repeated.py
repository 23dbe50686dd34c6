import msgspec

from doctor.facts.names import HostNames, NameResolution
from tests.checks.run_check import job, messages, run_check, skipped


def called(name: str) -> list[HostNames]:
    return [HostNames(own=name, names={name: NameResolution(("10.0.0.1",))}, fleet=3)]


def test_names_of_their_own_are_well() -> None:
    assert messages(run_check("host-name-repeated", {"a": called("n1"), "b": called("n2")})) == []


def test_hosts_with_one_name_are_all_blamed() -> None:
    outcome = run_check("host-name-repeated", {"a": called("localhost"), "b": called("n2"), "c": called("LocalHost")})
    assert messages(outcome) == [("a c", "2 hosts have the host name localhost")]
    assert outcome.findings[0].values["name"] == "localhost"


def test_a_single_host_is_skipped() -> None:
    assert skipped(run_check("host-name-repeated", {"a": called("n1")}))


def test_the_host_whose_name_another_has_is_told_to_take_its_own_again() -> None:
    (finding,) = run_check("host-name-repeated", {"a": called("a"), "b": called("a"), "c": called("c")}).findings
    assert "on b: `hostname b && echo b > /etc/hostname`" in finding.values["remedy"]
    (finding,) = run_check("host-name-repeated", {"10.0.0.1": called("a"), "10.0.0.2": called("a")}).findings
    assert finding.values["remedy"] == ""


def test_two_names_of_one_machine_are_said_once_and_no_name_is_to_be_changed() -> None:
    (one,), (other,), (third,) = called("vm"), called("vm"), called("n3")
    same, another = msgspec.structs.replace(one, machine="a1"), msgspec.structs.replace(other, machine="b2")
    outcome = run_check("host-name-repeated", {"localhost": [same], "10.0.0.1": [same], "n3": [third]})
    assert messages(outcome) == [
        ("localhost 10.0.0.1", "localhost and 10.0.0.1 are one machine, vm: the list of hosts names it 2 times")
    ]
    assert "hostnamectl" not in outcome.findings[0].values["remedy"]
    outcome = run_check("host-name-repeated", {"a": [same], "b": [another]})
    assert messages(outcome) == [("a b", "2 hosts have the host name vm")], "two containers, or a copied image"
    outcome = run_check("host-name-repeated", {"a": [one], "b": [other]})
    assert messages(outcome) == [("a b", "2 hosts have the host name vm")], "a run of before: not known"


def test_a_job_of_torch_that_goes_by_no_name_lives() -> None:
    hosts = {"a": called("a"), "b": called("a")}
    environ = {"MASTER_ADDR": "10.0.0.1", "GLOO_SOCKET_IFNAME": "eth0"}
    assert run_check("host-name-repeated", hosts, job(**environ)).found_severity.value == "warning"
    for change in ({"MASTER_ADDR": ""}, {"GLOO_SOCKET_IFNAME": ""}, {"MS_ROLE": "MS_WORKER"}):
        assert run_check("host-name-repeated", hosts, job(**{**environ, **change})).found_severity.value == "error"
    for given in ({"launchers": ("openmpi",)}, {"launchers": ("torchrun",), "store_by_name": True}):
        launch = msgspec.structs.replace(job(**environ), **given)
        assert run_check("host-name-repeated", hosts, launch).found_severity.value == "error"
