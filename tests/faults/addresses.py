"""Faults of the NPUs' addresses, put into the state that the emulated hccn_tool answers from."""

from __future__ import annotations

from typing import Any

from tests.faults import Row

CONF = "/etc/hccn.conf"


def npu_row(check: str, title: str, npu: int, script: str, **more: Any) -> Row:
    """A row whose script runs in the state directory of one NPU, which is put back as it was."""
    home, kept = f"/run/npu/{npu}", f"/run/kept-{check}"
    return Row(
        check,
        f"# {title}\ncp -a {home} {kept}\ncd {home}\n{script}",
        f"rm -rf {home}\nmv {kept} {home}",
        **more,
    )


def file_row(check: str, title: str, script: str, **more: Any) -> Row:
    """A row that changes /etc/hccn.conf."""
    return Row(check, f"# {title}\ncp -a {CONF} /run/kept-{check}\n{script}", f"mv /run/kept-{check} {CONF}", **more)


ROWS: list[Row] = [
    npu_row(
        "device-ip-conflict",
        "the address of another host's NPU",
        5,
        "echo 29.1.101.203 >ip",
        blamed=(0, 1),
        values={"ip": "29.1.101.203"},
        also=("hccn-conf-differs",),
    ),
    npu_row(
        "device-ip-conflict",
        "the address of another NPU of this host",
        5,
        "cat ../6/ip >ip",
        values={"ip": "29.1.102.206"},
        also=("hccn-conf-differs",),
    ),
    npu_row(
        "device-ip-conflict",
        "an address twice on A1",
        0,
        "echo 10.0.0.1 >ip",
        fleet="a1",
        blamed=(0, 1),
        values={"ip": "10.0.0.1"},
        also=("device-net-unhealthy", "hccn-conf-differs"),
    ),
    npu_row(
        "device-ip-unset",
        "no address",
        3,
        "rm ip netmask",
        values={"npus": [3]},
        also=("device-net-unhealthy", "hccn-conf-differs"),
    ),
    npu_row(
        "device-ip-unset",
        "no address on A1",
        7,
        "rm ip netmask",
        fleet="a1",
        values={"npus": [7]},
        also=("device-net-unhealthy", "hccn-conf-differs"),
    ),
    Row(
        "device-ip-unset",
        "# a second super pod, and no addresses\necho 1 >/run/npu/super_pod_id",
        "echo 0 >/run/npu/super_pod_id",
        fleet="a3",
        blamed=(0, 1, 2, 3),
        values={"npus": list(range(16))},
        healthy_first=False,
        also=("device-link-down",),
        apart=("*",),
    ),
    npu_row(
        "device-ip-segment-wrong",
        "an address out of the plan",
        3,
        "echo 10.9.9.9 >ip",
        values={"npus": [3], "observed": "10.9.0.0/16", "expected": "29.1.0.0/16"},
        also=("gateway-outside-segment", "hccn-conf-differs"),
    ),
    npu_row(
        "device-ip-segment-wrong",
        "the segment of another position on A1",
        5,
        "echo 10.0.2.99 >ip",
        fleet="a1",
        values={"npus": [5], "observed": "10.0.2.0/24", "expected": "10.0.1.0/24"},
        also=("device-net-unhealthy", "device-unreachable", "hccn-conf-differs"),
    ),
    npu_row(
        "device-ip-refused",
        "the segment of the virtual ports",
        3,
        "echo 192.168.2.77 >ip\necho 255.255.255.0 >netmask",
        clause="reserves",
        values={"npu": 3, "observed": "192.168.2.77", "segment": "192.168.2.0/24"},
        also=("device-ip-segment-wrong", "gateway-outside-segment", "hccn-conf-differs"),
    ),
    file_row(
        "device-ip-refused",
        "the file asks for such a segment",
        f"sed -i 's/^address_3=.*/address_3=192.168.1.77/' {CONF}",
        values={"npu": 3, "observed": "192.168.1.77", "what": "address in /etc/hccn.conf"},
        also=("hccn-conf-differs",),
    ),
    npu_row(
        "device-ip-refused",
        "an HCCS address on the RoCE port of an A3 host",
        3,
        "echo 192.1.3.99 >ip\necho 255.255.255.0 >netmask",
        fleet="a3",
        values={"npu": 3, "segment": "192.0.0.0/8"},
        healthy_first=False,
        also=("detect-address-unset", "hccn-conf-differs"),
    ),
    npu_row(
        "device-netmask-differs",
        "a narrower netmask",
        6,
        "echo 255.255.255.0 >netmask",
        values={"npus": [6], "observed": 24, "expected": 16},
        also=("gateway-outside-segment", "hccn-conf-differs"),
    ),
    npu_row(
        "device-ip-families-mixed",
        "IPv6 among IPv4",
        7,
        "rm ip netmask\necho 2001:db8::3 >ip6\necho 64 >prefix",
        clause="All device IPs are of one address family, IPv4 or IPv6",
        values={"npus": [7], "observed": "IPv6", "expected": "IPv4"},
        also=("device-net-unhealthy", "device-unreachable", "gateway-outside-segment"),
    ),
    file_row(
        "hccn-conf-differs",
        "another address in the file",
        f"sed -i 's/^address_0=.*/address_0=29.1.102.99/' {CONF}",
        clause="addresses",
        values={"npu": 0, "observed": {"address": "29.1.102.200"}, "expected": {"address": "29.1.102.99"}},
    ),
    file_row(
        "hccn-conf-differs", "the file is gone", f"rm {CONF}", values={"npus": list(range(8))}, apart=("npu-missing",)
    ),
    npu_row(
        "detect-address-unset",
        "nothing is watched",
        4,
        "rm netdetect",
        values={"npus": [4]},
        also=("hccn-conf-differs",),
    ),
    npu_row(
        "detect-address-is-self",
        "watches itself",
        1,
        "cat ip >netdetect",
        values={"npu": 1, "observed": "29.1.102.201"},
        also=("hccn-conf-differs",),
    ),
    npu_row(
        "gateway-outside-segment",
        "a gateway in another segment",
        0,
        "echo 29.2.0.1 >gateway",
        values={"npu": 0, "observed": "29.2.0.1", "segment": "29.1.0.0/16"},
        also=("device-net-unhealthy", "hccn-conf-differs"),
    ),
]
