from ipaddress import ip_address, ip_interface
from typing import Any

import msgspec
import pytest

from doctor import Finding, Skip
from doctor.engine.fact import Unreadable
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, HccnConf
from tests.checks.containers import place
from tests.checks.device_network import a2, run_check, watching, written

DEVICE_ADDRESSES = a2()["h1"]
GATEWAY = "29.1.0.1"


def list_findings(conf: HccnConf | None, **facts: Any) -> list[Finding]:
    given_facts = {
        "addresses": DEVICE_ADDRESSES,
        "gateways": DeviceGateways(by_npu=dict.fromkeys(range(8), ip_address(GATEWAY))),
        "detect": watching(GATEWAY),
    }
    return run_check("hccn_conf_differs", conf=conf, **{**given_facts, **facts})


def full(**changes: dict[str, str]) -> HccnConf:
    """The right file, with the settings of some NPUs (``npu3=...``) changed; an empty one is left out."""
    by_npu = dict(written(DEVICE_ADDRESSES, gateway=GATEWAY, netdetect=GATEWAY).by_npu)
    for name, settings in changes.items():
        npu = int(name.removeprefix("npu"))
        by_npu[npu] = {key: value for key, value in {**by_npu[npu], **settings}.items() if value}
    return HccnConf(by_npu=by_npu)


def test_file_and_npus_agree() -> None:
    assert list_findings(full()) == []


def test_another_address_in_the_file() -> None:
    [finding] = list_findings(full(npu3={"address": "29.1.0.99"}))
    assert str(finding) == "NPU 3 uses address: 29.1.0.13; /etc/hccn.conf has address: 29.1.0.99"


def test_an_npu_that_the_file_does_not_know() -> None:
    [finding] = list_findings(
        full(npu3={"address": "", "netmask": "", "gateway": "", "netdetect": ""}), gateways=None, detect=None
    )
    assert finding.values["observed"] == {"address": "29.1.0.13"}
    assert finding.values["expected"] == {"address": "none"}


def test_an_address_that_only_the_file_has() -> None:
    device_addresses = DeviceAddresses(
        by_npu={n: interface for n, interface in DEVICE_ADDRESSES.by_npu.items() if n != 3}, unset=(3,)
    )
    [finding] = list_findings(full(), addresses=device_addresses)
    assert finding.values["observed"] == {"address": "none"}
    assert finding.values["expected"] == {"address": "29.1.0.13"}


@pytest.mark.parametrize(
    ("key", "value"), [("netmask", "255.0.0.0"), ("gateway", "29.1.0.2"), ("netdetect", "29.1.0.2")]
)
def test_every_setting_is_compared(key: str, value: str) -> None:
    [finding] = list_findings(full(npu5={key: value}))
    assert (finding.values["npu"], finding.values["expected"]) == (5, {key: value})


@pytest.mark.parametrize(
    ("used", "says"), [("255.255.255.0", "If the file is right"), ("255.255.0.0", "in use and in the file")]
)
def test_the_netmask_of_the_other_npus_decides(used: str, says: str) -> None:
    """A recovery from a wrong file would take the NPU out of its segment."""
    by_npu = {**DEVICE_ADDRESSES.by_npu, 3: ip_interface(f"{DEVICE_ADDRESSES.by_npu[3].ip}/{used}")}
    addresses = msgspec.structs.replace(DEVICE_ADDRESSES, by_npu=by_npu)
    [finding] = list_findings(full(npu3={"netmask": "255.255.252.0"}), addresses=addresses)
    assert says in finding.values["recover"]


def test_a_gateway_that_only_the_file_has_otherwise_is_not_recovered() -> None:
    [finding] = list_findings(full(npu3={"gateway": "29.1.0.99"}))
    assert finding.values["recover"] == f"The other NPUs have gateway {GATEWAY}, in use and in the file."
    assert f"-gateway -s gateway {GATEWAY}" in finding.values["keep"]


def test_a_gateway_that_only_the_npu_has_otherwise_is_not_kept() -> None:
    used = {**dict.fromkeys(range(8), ip_address(GATEWAY)), 3: ip_address("29.1.0.99")}
    [finding] = list_findings(full(), gateways=DeviceGateways(by_npu=used))
    assert "-cfg recovery" in finding.values["recover"] and finding.values["keep"] == ""
    assert finding.values["others"] == f"The other NPUs have gateway {GATEWAY}, in use and in the file."


def test_npus_that_were_all_changed_alike_do_not_make_the_file_wrong() -> None:
    findings = list_findings(full(**{f"npu{npu}": {"netmask": "255.255.252.0"} for npu in DEVICE_ADDRESSES.by_npu}))
    assert len(findings) == len(DEVICE_ADDRESSES.by_npu)
    assert all("If the file is right" in finding.values["recover"] for finding in findings)
    assert all("If the NPU is right" in finding.values["keep"] for finding in findings)


def test_an_npu_that_could_not_be_read_is_not_said_to_differ() -> None:
    device_addresses = DeviceAddresses(
        by_npu={n: interface for n, interface in DEVICE_ADDRESSES.by_npu.items() if n != 3}, unread={"NPU 3": "busy"}
    )
    assert list_findings(full(), addresses=device_addresses) == []


def test_dhcp_owns_address_and_gateway() -> None:
    leased = {"address": "", "netmask": "", "gateway": "", "udhcpc_enable": "on"}
    assert list_findings(full(npu3=leased)) == []


def test_a_bond_has_an_address_of_its_own() -> None:
    assert list_findings(full(npu3={"address": "", "netmask": "", "gateway": "", "bond_address": "29.1.0.77"})) == []


def test_a_gateway_that_the_file_keeps_under_another_npu() -> None:
    conf = full(**{f"npu{npu}": {"gateway": ""} for npu in range(1, 8)})
    assert list_findings(conf) == []


def test_no_detect_address_is_written_as_nothing_or_as_zeros() -> None:
    none = DetectAddresses(by_npu={}, unset=tuple(range(8)))
    assert list_findings(written(DEVICE_ADDRESSES, gateway=GATEWAY), detect=none) == []
    assert list_findings(written(DEVICE_ADDRESSES, gateway=GATEWAY, netdetect="0.0.0.0"), detect=none) == []


def test_ipv6_is_not_compared() -> None:
    six = DeviceAddresses(by_npu={0: ip_interface("2001:db8::1/64")})
    assert list_findings(HccnConf(by_npu={}), addresses=six, gateways=None, detect=None) == []


def test_no_file() -> None:
    [finding] = list_findings(None)
    assert finding.values["npus"] == list(range(8))


def test_no_file_and_nothing_set() -> None:
    with pytest.raises(Skip):
        list_findings(None, addresses=DeviceAddresses(by_npu={}, unset=(0, 1)), gateways=None, detect=None)


def test_a_container_does_not_lose_its_hosts_file() -> None:
    with pytest.raises(Skip, match=r"the container was not given /etc/hccn\.conf"):
        list_findings(None, place=place(engine="docker"))


def test_a_file_that_is_not_there_cannot_be_right() -> None:
    [finding] = list_findings(None)
    assert finding.values["case"] == "Absent" and "recover" not in finding.values
    assert "-ip -s address 29.1.0.10" in finding.values["keep"] and "others" not in finding.values
    [other] = list_findings(full(npu3={"address": "29.1.0.99"}))
    assert "`hccn_tool -i 3 -cfg recovery`" in other.values["recover"] and not other.values["others"]


def test_the_file_is_not_compared_with_itself() -> None:
    addresses = DeviceAddresses(by_npu={0: ip_interface("29.1.0.1/16")}, from_file=True)
    with pytest.raises(Unreadable, match="what the NPUs use cannot be compared"):
        list_findings(HccnConf(by_npu={0: {"address": "29.1.0.1"}}), addresses=addresses)
