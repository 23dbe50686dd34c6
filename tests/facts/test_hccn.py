"""hccn_tool's answers, as it prints them, and what is made of them."""

from __future__ import annotations

import json
import math
import os
import subprocess
from datetime import datetime
from ipaddress import IPv4Address, IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.engine.evaluate import read_fact
from doctor.engine.fact import Absent, Fact, Output, PerHost, Unreadable, Visit
from doctor.engine.record import HostRecord
from doctor.facts.hccn.device_addresses import (
    DetectAddresses,
    DeviceAddresses,
    DeviceGateways,
    HccnConf,
    Vnic,
    VnicAddresses,
)
from doctor.facts.hccn.link_state import (
    DeviceFec,
    DeviceHealth,
    DeviceLinks,
    DeviceMtu,
    DeviceSpeed,
    LinkHistory,
    LinkRecord,
    UbPorts,
)
from doctor.facts.hccn.neighbour import Neighbour, Neighbours
from doctor.facts.hccn.optics import OpticalModule, Optics
from doctor.facts.hccn.pings import HccsPings, Ping
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.hccn.traffic import DeviceTrafficClasses, TlsSwitches
from doctor.facts.reported_value import OpticalReading

PER_NPU: list[type[Fact]] = [
    DetectAddresses,
    DeviceAddresses,
    DeviceFec,
    DeviceGateways,
    DeviceHealth,
    DeviceLinks,
    DeviceMtu,
    DeviceSpeed,
    LinkHistory,
    Neighbours,
    Optics,
    TlsSwitches,
    VnicAddresses,
]

UNSET = "Get ipconf failed, because no ip was preset there!\n"
SIX = "-- inet6 --\n"
BUSY = "hccn_tool is busy, please try again.\n"


def learned(fact: type[Fact], *outputs: Output) -> Any:
    """The fact, from one output an NPU."""
    by_key = {str(npu): output for npu, output in enumerate(outputs)}
    return read_fact(HostRecord(Visit(), {fact.__name__: by_key}), fact)


def printed(text: str) -> Output:
    return Output(out=text)


def failed(code: int, err: str = "", out: str = "") -> Output:
    return Output(code=code, out=out, err=err)


def test_an_address_and_its_mask() -> None:
    fact = learned(DeviceAddresses, printed("ipaddr:29.1.112.213\nnetmask:255.255.0.0\n"))
    assert fact == DeviceAddresses(by_npu={0: IPv4Interface("29.1.112.213/16")})


def test_no_address_is_an_answer_by_its_text_whatever_the_exit_code() -> None:
    outputs = [failed(code, out=UNSET + SIX + UNSET) for code in (13, 1, 0)]
    assert learned(DeviceAddresses, *outputs) == DeviceAddresses(by_npu={}, unset=(0, 1, 2))


def test_exit_code_13_alone_is_no_answer() -> None:
    """It also means that the product does not support the command."""
    fact = learned(DeviceAddresses, failed(13, out="Command execute failed!\n" + SIX + "Command execute failed!\n"))
    assert fact == Unreadable("Command execute failed!")


@pytest.mark.parametrize("six", ["Get unknown option!\n", "Get invalid parameters!\n", "Command execute failed!\n"])
def test_a_tool_that_knows_no_ipv6_does_not_hide_that_there_is_no_ipv4(six: str) -> None:
    assert learned(DeviceAddresses, failed(1, out=UNSET + SIX + six)).unset == (0,)


def test_ipv6_where_there_is_no_ipv4() -> None:
    six = "ipv6_address:2001:db8::7\nprefix_length:64\n"
    fact = learned(DeviceAddresses, printed(UNSET + SIX + six), printed(UNSET + SIX + six.replace("2001:db8", "fe80")))
    assert fact.by_npu == {0: IPv6Interface("2001:db8::7/64")}
    assert fact.unset == (1,), "a link-local address is none that HCCL can use"


def test_busy_while_asked_for_ipv6_is_not_unset() -> None:
    fact = learned(DeviceAddresses, failed(11, out=UNSET + SIX + BUSY), printed("ipaddr:10.0.0.1\nnetmask:255.0.0.0"))
    assert fact.unset == ()
    assert "busy" in fact.unread["NPU 0"]


@pytest.mark.parametrize(
    "text",
    [
        "ipaddr:29.1.112.213\n",
        "ipaddr:29.1.112.999\nnetmask:255.255.0.0\n",
        "ipaddr:29.1.112.213\nnetmask:255.0.255.0\n",
        "ipaddr:29.1.112.213\nnetmask:0.0.0.255\n",
        "ipaddr:29.1.112.213\nnetmask:16\n",
        "ipaddr:29.1.112.213\nipaddr:29.1.112.214\nnetmask:255.255.0.0\n",
        "",
    ],
)
def test_half_an_address_is_none(text: str) -> None:
    assert type(learned(DeviceAddresses, printed(text))) is Unreadable


def test_one_dead_npu_does_not_hide_the_others() -> None:
    dead = Output(ended="timeout", seconds=5)
    fact = learned(DeviceLinks, printed("link status: UP\n"), dead, printed("link status: DOWN\n"))
    assert fact.by_npu == {0: "UP", 2: "DOWN"}
    assert fact.unread == {"NPU 1": "no answer in 5 s"}


def test_tries_that_found_the_tool_busy_are_forgotten() -> None:
    assert learned(DeviceLinks, printed(BUSY + BUSY + "link status: UP\n")).by_npu == {0: "UP"}


def test_warnings_of_the_loader_are_no_answer() -> None:
    """glibc's for each program, where LD_PRELOAD names what is not there."""
    table = "    dscp      tc\n" + "".join(f"{dscp:8} {dscp // 8:7}\n" for dscp in range(64))
    loader = "ERROR: ld.so: object '/opt/libx.so' from LD_PRELOAD cannot be preloaded: ignored.\n"
    plain, warned = (learned(DeviceTrafficClasses, Output(out=table, err=err)) for err in ("", loader))
    assert warned.by_npu == plain.by_npu and not warned.unread


def test_a_tool_that_stays_busy_is_unread() -> None:
    assert learned(DeviceLinks, failed(11, out=BUSY * 4)) == Unreadable(
        "hccn_tool stayed busy: another program holds its lock"
    )


def test_a_good_line_with_a_bad_exit_code_is_not_believed() -> None:
    assert type(learned(DeviceLinks, failed(1, out="link status: UP\n"))) is Unreadable


def test_of_npus_that_lack_a_thing_and_one_that_gave_no_answer_the_latter_is_the_reason() -> None:
    """It was unknown for "only NPUs of the 950 family have UB ports"."""
    other = printed("no NPU of the 950 family\n")
    timed_out = Output(ended="timeout", code=None)
    assert type(learned(UbPorts, other, other)) is Absent
    why = learned(UbPorts, other, timed_out)
    assert type(why) is Unreadable and "950" not in str(why)


def test_a_common_reason_is_reported_once() -> None:
    refused = failed(12, "permission denied: pls check this cmd run permission.\n")
    why = learned(TlsSwitches, refused, refused)
    assert type(why) is Unreadable
    assert str(why) == "hccn_tool answers this only to root: log in as root, or add --sudo"


def test_different_reasons_are_counted() -> None:
    why = learned(DeviceLinks, Output(ended="timeout", seconds=5), failed(1, "Command execute failed!"))
    assert str(why) == "NPU 0: no answer in 5 s (and 1 more)"


def test_what_the_product_does_not_have_is_absent() -> None:
    refused = failed(13, "The command is not supported on this product.\n")
    assert type(learned(DeviceFec, refused, refused)) is Absent
    assert type(learned(DeviceFec, refused, failed(1, "Command execute failed!"))) is Unreadable


def test_a_host_without_the_tool_has_no_such_fact() -> None:
    output = Output(ended="absent", err="hccn_tool is not installed")
    for fact in PER_NPU:
        why = read_fact(HostRecord(Visit(), {fact.__name__: {"": output}}), fact)
        assert type(why) is Absent
        assert str(why) == "hccn_tool is not installed"


def test_sudo_that_asks_for_a_password_is_said() -> None:
    refused = Output(ended="error", err="sudo -n --: sudo: a password is required")
    why = read_fact(HostRecord(Visit(), {"TlsSwitches": {"": refused}}), TlsSwitches)
    assert type(why) is Unreadable
    assert "password" in str(why)


@pytest.mark.parametrize("text", ["default gateway:11.12.165.1, Iface:eth0\n", "default gateway: 11.12.165.1\n"])
def test_a_gateway_with_and_without_its_interface(text: str) -> None:
    assert learned(DeviceGateways, printed(text)).by_npu == {0: IPv4Address("11.12.165.1")}


def test_no_gateway() -> None:
    unset = failed(2, "Get gateway failed, because no gateway was preset there!\n")
    assert learned(DeviceGateways, unset) == DeviceGateways(by_npu={}, unset=(0,))


def test_detect_addresses_in_both_spellings() -> None:
    fact = learned(
        DetectAddresses,
        printed("netdetect addr: 11.12.165.1\n"),
        printed("netdetect address: 11.12.165.2\n"),
        printed("netdetect addr: 0.0.0.0\n"),
    )
    assert fact.by_npu == {0: IPv4Address("11.12.165.1"), 1: IPv4Address("11.12.165.2")}
    assert fact.unset == (2,)


def test_a_vnic() -> None:
    text = "vnic link status: UP\nvnic ipaddr: 192.168.2.199\nvnic netmask: 255.255.255.0\n"
    assert learned(VnicAddresses, printed(text)).by_npu == {0: Vnic("UP", IPv4Interface("192.168.2.199/24"))}


@pytest.mark.parametrize(
    "word", ["Success", "Init", "Socket fail", "Receive timeout", "Unreachable", "Time exceeded", "Fault"]
)
def test_the_words_for_health(word: str) -> None:
    assert learned(DeviceHealth, printed(f"net health status: {word}\n")).by_npu == {0: word}


def test_older_tools_say_socket_failed() -> None:
    assert learned(DeviceHealth, printed("net health status: Socket failed\n")).by_npu == {0: "Socket fail"}


@pytest.mark.parametrize("word", ["Unknown", "Splendid", ""])
def test_health_that_the_tool_does_not_know_is_unread(word: str) -> None:
    assert type(learned(DeviceHealth, printed(f"net health status: {word}\n"))) is Unreadable


HISTORY = """[devid 0]current time        : Tue Oct 28 21:46:46 2025
[devid 0]link up count       : 2
[devid 0]link down count     : 1
[devid 0]link change records :
[devid 0]    Sun Oct  5 10:13:51 2025    LINK UP
[devid 0]    Sun Oct  5 10:13:50 2025    LINK DOWN
[devid 0]    Sun Oct  5 10:13:35 2025    LINK UP
"""


@pytest.mark.parametrize("text", [HISTORY, HISTORY.replace("devid", "device"), HISTORY.replace("\n", "\r\n")])
def test_a_link_history(text: str) -> None:
    day = datetime(2025, 10, 5)
    changes = (
        (day.replace(hour=10, minute=13, second=51), "UP"),
        (day.replace(hour=10, minute=13, second=50), "DOWN"),
        (day.replace(hour=10, minute=13, second=35), "UP"),
    )
    assert learned(LinkHistory, printed(text)).by_npu == {0: LinkRecord(datetime(2025, 10, 28, 21, 46, 46), changes)}


def test_a_change_that_cannot_be_read_is_not_left_out() -> None:
    assert type(learned(LinkHistory, printed(HISTORY.replace("Sun Oct  5 10:13:50", "Sun Oct")))) is Unreadable


def test_a_history_without_changes() -> None:
    text = "[devid 3]current time        : Tue Oct 28 21:46:46 2025\n[devid 3]link change records : NA\n"
    assert learned(LinkHistory, printed(text)).by_npu[0].changes == ()


def test_speed_with_and_without_a_space() -> None:
    fact = learned(
        DeviceSpeed, printed("Speed: 100000 Mb/s\n"), printed("Speed: 200000Mb/s\n"), printed("Speed: Unknown!\n")
    )
    assert fact == DeviceSpeed(by_npu={0: 100000, 1: 200000}, unknown=(2,))


def test_mtu() -> None:
    assert learned(DeviceMtu, printed("mtu:4200\n")).by_npu == {0: 4200}


def test_error_correction() -> None:
    fact = learned(DeviceFec, printed("fec mode: rs FEC mode\n"), printed("fec mode: no FEC mode\n"))
    assert fact.by_npu == {0: "rs", 1: "no"}
    assert type(learned(DeviceFec, printed("fec mode: \n"))) is Unreadable


SWITCH = """Chassis ID TLV
        MAC: A0:B1:c2:d3:e4:f5
Port ID TLV
        Ifname: 400GE1/1/20:2
Time to Live TLV
        120
System Name TLV
        leaf-1
System Description TLV
        Versatile Routing Platform Software
VRP (R) software, Version 8.211 (DX511 V200R021C10SPC600)

Huarong DX511

System Capabilities TLV
        Enabled capabilities: Bridge, Router
Management Address TLV
        IPv4: 26.1.2.3
Maximum Frame Size TLV
        9216
End of LLDPDU TLV
"""
FIBRE = """Chassis ID TLV
        MAC: fc:18:03:57:0b:30
Port ID TLV
        MAC: fc:18:03:57:0b:30
System Name TLV
        other
System Description TLV
        AscendNPU Linux 5.10
Management Address TLV
        IPv4: 172.16.36.101
End of LLDPDU TLV
"""


def test_a_switch_as_neighbour() -> None:
    expected = Neighbour("switch", "a0:b1:c2:d3:e4:f5", "400GE1/1/20:2", "leaf-1", "26.1.2.3")
    assert learned(Neighbours, printed(SWITCH)).by_npu == {0: expected}


def test_another_npu_as_neighbour() -> None:
    mac = "fc:18:03:57:0b:30"
    assert learned(Neighbours, printed(FIBRE)).by_npu == {0: Neighbour("npu", mac, mac, "other", "172.16.36.101")}


def test_a_neighbour_that_does_not_say_what_it_is() -> None:
    text = "Chassis ID TLV\n\tMAC: a0:b1:c2:d3:e4:f5\nPort ID TLV\n\tIfname: Eth1/7\nEnd of LLDPDU TLV\n"
    assert learned(Neighbours, printed(text)).by_npu == {0: Neighbour("unknown", "a0:b1:c2:d3:e4:f5", "Eth1/7")}


def test_no_neighbour() -> None:
    assert learned(Neighbours, printed("\n")) == Neighbours(by_npu={}, without_neighbour=(0,))


TLS = """dev_id:0, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset), tls alarm time threshold[60]days
dev_id:0, [pub cert] info:
         issuer[/C=CN/ST=GD/O=HUAWEI/OU=2012/CN=2_1thCA]
         start_time[Wed Feb 19 03:19:21 2020 GMT]
         end_time[Sat Feb 16 03:19:21 2030 GMT]
"""  # noqa: E501


def test_tls() -> None:
    fact = learned(
        TlsSwitches,
        printed(TLS),
        printed(TLS.replace("switch[0]", "switch[1]")),
        printed(TLS + "dev_id:0, tls expiration status[2](0:normal, 1:near expiration, 2:has expired)\n"),
        failed(14, "No certificate found, please set certs firstly!\n"),
    )
    assert fact == TlsSwitches(by_npu={0: False, 1: True, 2: False}, expired=(2,))


STATUS = "         tls expiration status[{0}](0:normal, 1:near expiration, 2:has expired)\n"
CRL = """dev_id:0, [crl] info:
         issuer[/C=CN/O=xxx/CN=xxx RSA PSS Sub CA]
         end_time[Mon Mar  2 03:10:27 2026 GMT]
"""
"""As of Ascend_950_HCCN_Tool in docs/en of hicann/driver: each certificate has its status."""


@pytest.mark.parametrize(
    "text",
    [
        TLS + STATUS.format(0) + CRL,  # the status of the last one is cut off
        TLS + STATUS.format(0) + CRL.partition("end_time")[0],
        TLS.partition("end_time")[0],
    ],
)
def test_a_certificate_that_is_cut_off(text: str) -> None:
    assert isinstance(learned(TlsSwitches, printed(text)), Unreadable)
    both = learned(TlsSwitches, printed(TLS + STATUS.format(0) + CRL + STATUS.format(2)))
    assert both.expired == (0,)


OPTICAL = """optical info:
present              : present
temperature          : 47 C
high power enable reg: enabled
vendor name          : Hisense
Vcc                  : 3262.90 mV
Tx Power0            : 1.4035 mW
Rx Power0            : 1.0189 mW
Vcc High Thres       : 3465.00 mV
Vcc Low Thres        : 3135.00 mV
Temp High Thres      : 70 C
Temp Low Thres       : 0 C
TxPower High Thres   : 3.5481 mW
TxPower Low Thres    : 0.2818 mW
RxPower High Thres   : 3.5481 mW
RxPower Low Thres    : 0.1445 mW
Tx Bias0             : 7.9360 mA
Tx Los Flag          : 0x0
Rx Los Flag          : 0xff
Tx LoL Flag          : 0x0
Rx LoL Flag          : 0xff
Host SNR Lane0       : not supported
Media SNR Lane0      : 23.1211 dB
"""
MODULE = OpticalModule(
    readings={
        "temperature": OpticalReading(47, 0, 70, "C"),
        "Vcc": OpticalReading(3262.9, 3135, 3465, "mV"),
        "Tx Power0": OpticalReading(1.4035, 0.2818, 3.5481, "mW"),
        "Rx Power0": OpticalReading(1.0189, 0.1445, 3.5481, "mW"),
        "Media SNR Lane0": OpticalReading(23.1211, 18, math.inf, "dB"),
    },
    flags={"Tx Los": 0, "Rx Los": 255, "Tx LoL": 0, "Rx LoL": 255},
    vendor="Hisense",
    product="Hisense",
)


def test_an_optical_module() -> None:
    assert learned(Optics, printed(OPTICAL)).by_npu == {0: MODULE}


def test_modules_that_are_not_there_or_do_not_answer() -> None:
    fact = learned(
        Optics,
        printed(OPTICAL.replace(": present", ": not present")),
        failed(20, "Optical module is not present.\n"),
        failed(15, "Control link unreachable.\n"),
    )
    assert fact == Optics(by_npu={2: OpticalModule(reachable=False)}, empty=(0, 1))


def test_an_older_module_has_power_without_lanes() -> None:
    readings = learned(Optics, printed(OPTICAL.replace("Power0", "Power"))).by_npu[0].readings
    assert readings["Rx Power"].value == 1.0189


COPPER = """optical info:
present              : present
temperature          : not supported
vendor name          : Amphenol
Vcc                  : NA
Tx Power             : NA
Rx Power             : NA
Vcc High Thres       : NA
Tx Los Flag          : NA
"""


def test_a_copper_cable_has_nothing_to_measure() -> None:
    """The words of tool.c, lines 1425 and 1539, of github.com/hicann/driver."""
    fact = learned(Optics, printed(COPPER))
    assert fact == Optics(by_npu={0: OpticalModule(vendor="Amphenol", product="Amphenol")})


def test_a_reading_that_fails_leaves_the_others() -> None:
    fact = learned(Optics, printed(OPTICAL.replace(": 47 C", ": get failed").replace("1.0189", "0.0001")))
    assert fact.by_npu[0].readings["Rx Power0"].value == 0.0001
    assert fact.unread == {"NPU 0": "hccn_tool could not read temperature of the module"}


def test_the_tool_of_the_950_family_has_other_commands() -> None:
    other = failed(1, "Please specify a valid mode.\nUsage\n")
    assert type(learned(DeviceLinks, other)) is Absent


@pytest.mark.parametrize("text", ["present              : present\n", OPTICAL.replace("1.0189 mW", "lots")])
def test_a_module_that_cannot_be_read_is_not_a_healthy_one(text: str) -> None:
    assert type(learned(Optics, printed(text))) is Unreadable


def conf(text: str) -> Any:
    return read_fact(HostRecord(Visit(), {"HccnConf": {"/etc/hccn.conf": printed(text)}}), HccnConf)


def test_hccn_conf() -> None:
    fact = conf("# written by hccn_tool\naddress_0=29.1.137.205\nnetmask_0=255.255.0.0\naddress_10 = 29.1.1.1\nx=y\n")
    assert fact.by_npu == {0: {"address": "29.1.137.205", "netmask": "255.255.0.0"}, 10: {"address": "29.1.1.1"}}
    assert fact.unread == {}


def test_lines_of_hccn_conf_that_are_not_settings() -> None:
    assert list(conf("address_0=10.0.0.1\nhello\naddress_0=10.0.0.2\n").unread) == [
        "/etc/hccn.conf line 2",
        "/etc/hccn.conf line 3",
    ]


def test_no_hccn_conf() -> None:
    none = Output(ended="absent", err="/etc/hccn.conf does not exist")
    why = read_fact(HostRecord(Visit(), {"HccnConf": {"/etc/hccn.conf": none}}), HccnConf)
    assert type(why) is Absent


def test_sudo_that_fails_is_not_a_missing_file() -> None:
    refused = Output(ended="error", err="sudo -n --: sudo: a password is required")
    why = read_fact(HostRecord(Visit(), {"HccnConf": {"": refused}}), HccnConf)
    assert type(why) is Unreadable
    assert "password" in str(why)


SPOD = """	SDID                           : 37748736
	Super Pod Size                 : 384
	Super Pod ID                   : 0
	Server Index                   : 9
"""


def test_a_super_pod() -> None:
    fact = read_fact(HostRecord(Visit(), {SuperPodId.__name__: {"": printed(SPOD)}}), SuperPodId)
    assert fact == SuperPodId(id=0, server_index=9, size=384)


def test_products_without_super_pods() -> None:
    refused = failed(217, out="This device does not support querying spod-info.\n")
    older = failed(215, out="Error parameter of -t\nUsage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]\n")
    in_vm = failed(1, out="This command cannot be executed on a VM or container.\n")
    for output, kind in ((refused, Absent), (older, Absent), (in_vm, Unreadable)):
        assert type(read_fact(HostRecord(Visit(), {SuperPodId.__name__: {"": output}}), SuperPodId)) is kind


PING = """device 3 PING 192.1.2.199

This pkt ping success!
recv seq 0, time = 25.250us, L1 plane check result = 0x0

This pkt ping success!
recv seq 1, time = 20.110us, L1 plane check result = 0x0

2 packets transmitted, 2 received, 0.00% packets loss
max time 25.250us
Cmd executed successfully!
"""


def pinged(*texts: str) -> Any:
    output = json.dumps([[3, f"192.1.2.{number}", text] for number, text in enumerate(texts)])
    return read_fact(HostRecord(Visit(), {"HccsPings": {"": Output(out=output)}}), HccsPings)


def test_an_hccs_ping() -> None:
    assert pinged(PING).pings == (Ping(3, "192.1.2.0", 2, 2, ()),)


def test_an_hccs_ping_that_lost_all_packets_and_ended_well() -> None:
    assert pinged(PING.replace("2 received", "0 received")).pings == (Ping(3, "192.1.2.0", 2, 0, ()),)


def test_an_hccs_ping_on_another_plane() -> None:
    text = PING.replace("result = 0x0", "result = 0x4", 1)
    assert pinged(text).pings[0].planes == ("0x4",)


def test_an_hccs_ping_without_a_count_is_unread() -> None:
    fact = pinged(PING, "not run: the time limit was reached", "Command execute failed!\n", "")
    assert len(fact.pings) == 1
    assert list(fact.unread.values()) == [
        "not run: the time limit was reached",
        "Command execute failed!",
        "hccn_tool printed nothing",
    ]


def test_hccs_pings_as_an_ordinary_user() -> None:
    why = pinged("permission denied: pls check this cmd run permission.\n")
    assert type(why) is Unreadable
    assert "root" in str(why)


def test_hosts_ping_within_their_super_pod() -> None:
    vnics = PerHost(
        {f"h{n}": VnicAddresses(by_npu={0: Vnic("UP", IPv4Interface(f"192.{n}.2.199/24"))}) for n in range(4)}
    )
    pods = PerHost({f"h{n}": SuperPodId(id=n % 2, server_index=n, size=2) for n in range(4)})
    plan = HccsPings.plan({VnicAddresses: vnics, SuperPodId: pods})
    assert {host: [call[:2] for call in task["calls"]] for host, task in plan.items()} == {
        "h0": [(0, "192.2.2.199")],
        "h2": [(0, "192.0.2.199")],
        "h1": [(0, "192.3.2.199")],
        "h3": [(0, "192.1.2.199")],
    }


def test_there_is_nothing_to_ping_without_super_pods() -> None:
    assert HccsPings.plan({VnicAddresses: PerHost({}), SuperPodId: PerHost({})}) == {}


# What runs on a host, with a tool that answers what it is told to.

FAKE = """#!/bin/sh
echo "$@" >>"$HERE/calls"
read -r left <"$HERE/busy"
if [ "$left" -gt 0 ]; then
  echo $((left - 1)) >"$HERE/busy"
  echo 'hccn_tool is busy, please try again.'
  exit 11
fi
case $* in
*inet6*) echo 'ipv6_address:2001:db8::7'; echo prefix_length:64 ;;
*) echo 'Get ipconf failed, because no ip was preset there!' >&2; exit 13 ;;
esac
"""


def run_busy_tool(home: Path, fact: type[Fact], busy: int) -> Output:
    """What the fact's command comes to for NPU 3 where the tool is busy that many times."""
    (home / "hccn_tool").write_text(FAKE)
    (home / "hccn_tool").chmod(0o755)
    (home / "busy").write_text(f"{busy}\n")
    command = ["/bin/sh", "-c", fact.probe.text, "sh", "3"]
    path = f"{home}:{os.environ['PATH']}"
    done = subprocess.run(command, env={"PATH": path, "HERE": str(home)}, capture_output=True, text=True, timeout=20)
    return Output(code=done.returncode, out=done.stdout, err=done.stderr)


def test_a_busy_tool_is_asked_again(tmp_path: Path) -> None:
    output = run_busy_tool(tmp_path, DeviceAddresses, busy=2)
    assert learned(DeviceAddresses, output).by_npu == {0: IPv6Interface("2001:db8::7/64")}
    v4, v6 = "-i 3 -ip -g", "-i 3 -ip -inet6 -g"
    assert (tmp_path / "calls").read_text().splitlines() == [v4, v4, v4, v6]


def test_a_tool_that_stays_busy_is_given_up(tmp_path: Path) -> None:
    output = run_busy_tool(tmp_path, DeviceLinks, busy=99)
    assert output.code == 11
    assert len((tmp_path / "calls").read_text().splitlines()) == 6
    assert "busy" in str(learned(DeviceLinks, output))


def test_the_exit_code_of_the_tool_is_the_commands(tmp_path: Path) -> None:
    output = run_busy_tool(tmp_path, DeviceGateways, busy=0)
    assert (output.code, output.out) == (13, "")
    assert "no ip was preset" in output.err


# Whatever a tool prints: a value, Absent or Unreadable; and noise is never a healthy value.

OUTPUTS = st.builds(
    Output,
    out=st.binary(max_size=200).map(lambda data: data.decode("utf-8", "replace")),
    err=st.binary(max_size=80).map(lambda data: data.decode("utf-8", "replace")),
    code=st.sampled_from([0, 0, 0, 1, 2, 11, 13, 14, 15, 20, 187, -9]),
    ended=st.sampled_from(["exited", "exited", "exited", "timeout", "error", "absent"]),
)


@pytest.mark.parametrize("fact", PER_NPU, ids=lambda fact: str(fact.__name__))
@given(output=OUTPUTS)
def test_noise_is_unread(fact: type[Fact], output: Output) -> None:
    why = learned(fact, output)
    silent = fact is Neighbours and not f"{output.out}{output.err}".strip()
    assert type(why) is Unreadable or silent, why


@pytest.mark.parametrize("fact", PER_NPU, ids=lambda fact: str(fact.__name__))
@given(output=OUTPUTS)
def test_noise_from_one_npu_leaves_the_host_not_wholly_judged(fact: type[Fact], output: Output) -> None:
    good = {
        DetectAddresses: "netdetect addr: 10.0.0.1",
        DeviceAddresses: "ipaddr:10.0.0.1\nnetmask:255.0.0.0",
        DeviceFec: "fec mode: rs FEC mode",
        DeviceGateways: "default gateway:10.0.0.1",
        DeviceHealth: "net health status: Success",
        DeviceLinks: "link status: UP",
        DeviceMtu: "mtu:1500",
        DeviceSpeed: "Speed: 200000 Mb/s",
        LinkHistory: HISTORY,
        Neighbours: SWITCH,
        Optics: OPTICAL,
        TlsSwitches: TLS,
        VnicAddresses: "vnic link status: UP\nvnic ipaddr: 192.168.2.199\nvnic netmask: 255.255.255.0",
    }[fact]
    value = learned(fact, printed(good), output)
    assert isinstance(value, fact)
    assert list(value.unread) == ["NPU 1"] or (fact is Neighbours and value.without_neighbour == (1,))


@given(text=st.binary(max_size=300).map(lambda data: data.decode("utf-8", "replace")))
def test_noise_in_hccn_conf_sets_nothing(text: str) -> None:
    fact = conf(text)
    assert type(fact) is Unreadable or fact.by_npu == {}


@given(output=OUTPUTS)
def test_noise_is_no_super_pod(output: Output) -> None:
    assert isinstance(read_fact(HostRecord(Visit(), {SuperPodId.__name__: {"": output}}), SuperPodId), Absent)


def file_lines(*outputs: str) -> list[Output]:
    """What a collector sends of NPUs in a container that was given /etc/hccn.conf, and not hccn_tool."""
    return [Output(ended="absent", err="hccn_tool is not installed", out=text) for text in outputs]


CONFIGURED = "address_{0}=29.1.0.1{0}\nnetmask_{0}=255.255.0.0\nnetdetect_{0}=29.1.0.1\ngateway_{0}=29.1.0.1\n"


def test_addresses_of_a_container_without_the_tool_are_those_of_the_file() -> None:
    outputs = file_lines(*(CONFIGURED.format(npu) for npu in (0, 1)))
    addresses = learned(DeviceAddresses, *outputs)
    assert addresses.by_npu == {0: IPv4Interface("29.1.0.10/16"), 1: IPv4Interface("29.1.0.11/16")}
    assert addresses.from_file and not addresses.unread
    for fact in (DeviceGateways, DetectAddresses):
        assert set(learned(fact, *outputs).by_npu.values()) == {IPv4Address("29.1.0.1")}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "sets nothing for it"),
        ("mtu_0=4096\n", "sets nothing for it"),
        ("udhcpc_enable_0=1\naddress_0=29.1.0.9\nnetmask_0=255.255.0.0\n", "leaves its address to DHCP"),
        ("address_0=29.1.0.900\nnetmask_0=255.255.0.0\n", "/etc/hccn.conf: "),
        ("address_0=\x1b[31m\nnetmask_0=255.255.0.0\n", "/etc/hccn.conf: "),
    ],
)
def test_what_the_file_does_not_hold_is_unknown_and_not_unset(text: str, why: str) -> None:
    addresses = learned(DeviceAddresses, *file_lines(text))
    assert isinstance(addresses, Unreadable) and why in str(addresses)


@pytest.mark.parametrize(
    "fact", [fact for fact in PER_NPU if fact not in (DeviceAddresses, DeviceGateways, DetectAddresses)]
)
def test_what_only_the_tool_shows_is_unknown_beside_the_file(fact: type[Fact]) -> None:
    why = learned(fact, *file_lines(CONFIGURED.format(0)))
    assert isinstance(why, Unreadable)
    assert str(why) == "hccn_tool is not here, and /etc/hccn.conf does not hold this"
