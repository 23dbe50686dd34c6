"""Faults of the NPUs' network ports and what they are joined to, put into the state of the emulated hccn_tool."""

from __future__ import annotations

from tests.faults import Row
from tests.faults.addresses import npu_row

FLAPS = """\
now=$(date +%s)
for age in 60 120 180 240 300 360; do
  case $state in DOWN) state=UP ;; *) state=DOWN ;; esac
  echo "$(date -d "@$((now - age))" "+%a %b %e %T %Y")    LINK $state"
done >link_changes"""

ROWS: list[Row] = [
    npu_row("device-link-down", "link down", 1, "echo DOWN >link", values={"npus": [1]}, also=("device-unreachable",)),
    npu_row(
        "device-link-down",
        "link down on A1",
        3,
        "echo DOWN >link",
        fleet="a1",
        values={"npus": [3]},
        also=("device-net-unhealthy", "device-unreachable"),
    ),
    npu_row(
        "device-net-unhealthy",
        "an address to watch that does not answer",
        6,
        "echo 29.1.0.99 >netdetect",
        values={"npu": 6, "observed": "Unreachable", "watched": "29.1.0.99"},
        also=("hccn-conf-differs",),
    ),
    npu_row(
        "device-net-unhealthy",
        "the word of older tools",
        2,
        "echo Socket failed >net_health",
        host=2,
        fleet="a1",
        values={"npu": 2, "observed": "Socket fail"},
    ),
    npu_row("lldp-empty", "no neighbour", 0, "echo empty >lldp", values={"npus": [0]}),
    npu_row("neighbour-is-direct-fibre", "a fibre to another NPU", 4, "echo fibre >lldp", values={"npu": 4}),
    npu_row(
        "switch-port-shared",
        "two NPUs on one switch port",
        3,
        "echo 400GE1/2/5:1 >ifname",
        values={"port": "400GE1/2/5:1", "observed": 2},
        apart=("npu-missing", "neighbour-is-direct-fibre"),  # of the NPU that is on the port already
    ),
    npu_row(
        "tls-switch-differs", "TLS on", 6, "echo 1 >tls", values={"npus": [6], "observed": "on", "expected": "off"}
    ),
    npu_row(
        "tls-switch-differs",
        "an expired certificate",
        6,
        "echo 1 >tls\necho 2 >tls_expiry",
        values={"npus": [6]},
        also=("tls-certificate-expired",),
    ),
    npu_row(
        "tls-certificate-expired",
        "an expired certificate, and no look at the switches",
        6,
        "echo 1 >tls\necho 2 >tls_expiry",
        values={"npu": 6},
        options=("--select", "tls-certificate-expired"),
    ),
    npu_row(
        "link-flapping",
        "a link that flaps",
        7,
        FLAPS,
        clause="No NPU's link went up and down repeatedly in the last 24 hours",
        values={"npu": 7, "observed": 6},
    ),
    npu_row("fec-off", "no error correction", 2, "echo no >fec", values={"npus": [2]}),
    npu_row(
        "optics-out-of-range",
        "weak light on one lane",
        3,
        "echo 'Rx Power2=0.0100 mW' >optical",
        clause="works within its own limits",
        values={"npu": 3, "observed": {"Rx Power2": 0.01}},
        host=0,
    ),
    npu_row(
        "optics-out-of-range",
        "lost lock",
        3,
        "echo 'Rx LoL Flag=0xff' >optical",
        values={"npu": 3, "observed": {"Rx LoL": "0xff"}},
    ),
    npu_row(
        "optics-out-of-range",
        "no module",
        3,
        "echo absent >optical",
        clause="is present",
        host=2,
        values={"npus": [3], "count": 31},
        apart=("npu-missing",),  # its module would be missing from the count
    ),
    npu_row(
        "optics-out-of-range",
        "a module that does not answer",
        3,
        "echo unreachable >optical",
        clause="answers",
        host=3,
        values={"npu": 3},
    ),
    npu_row(
        "device-mtu-differs",
        "another MTU",
        4,
        "echo 1500 >mtu",
        values={"npus": [4], "observed": 1500, "expected": 4096},
    ),
    npu_row(
        "device-packets-bad",
        "an error counter that grows",
        3,
        "echo roce_rx_err_pkt_num >stat_grows",
        clause="errors",
        values={"npu": 3},
    ),
    npu_row(
        "device-traffic-class-differs",
        "another traffic class",
        3,
        "echo 0 >dscp",
        values={"npus": [3], "observed": "0-63:0"},
    ),
    npu_row(
        "device-pfc-differs",
        "no lossless priority",
        3,
        "echo 0 0 0 0 0 0 0 0 >pfc",
        values={"npus": [3], "observed": "00000000"},
    ),
    npu_row(
        "device-speed-low",
        "half speed",
        0,
        "echo 100000 >speed",
        values={"npus": [0], "observed": "100", "expected": "200"},
    ),
    npu_row(
        "vnic-link-down",
        "a virtual port down",
        3,
        "echo DOWN >vnic_link",
        clause="The virtual port of every A3 NPU, which carries the HCCS traffic, is up",
        fleet="a3",
        values={"npus": [3]},
        also=("hccs-unreachable",),
    ),
    npu_row(
        "hccs-unreachable",
        "an NPU that no HCCS packet reaches",
        3,
        "echo '*' >hccs_unreachable",
        fleet="a3",
        values={"npu": 3, "address": "192.1.3.196", "lost": 3},
    ),
    npu_row(
        "ub-port-down",
        "a UB port without a link",
        3,
        "echo 5 >ub_down",
        clause="Every UB port of an NPU of the 950 family has a link, where its peers have one",
        fleet="a5",
        values={"npu": 3, "ports": ["0/5"], "die": "0", "port": "5"},
    ),
]
