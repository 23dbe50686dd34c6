"""NPUs that are missing, ill, held by somebody, or out of reach; they are emulated (`tests.hosts`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.faults import Prepared, Row

NPU = "/run/npu"
PCI = "/sys/bus/pci/devices"


def ordinary_user(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """Logs in as a user who is a member of the driver's group on every host."""
    for host in fleet.hosts:
        fleet.change(host, users={"ann": {"groups": ["HwHiAiUser"]}})
    return Prepared(["--user", "ann"])


HIDDEN_CHECKS = ("device-ip-conflict", "shm-too-small", "listen-queue-short")
"""What a card that has dropped out changes: its own address, and the number of ranks."""
APART = {
    "npu-missing": HIDDEN_CHECKS,
    "npu-count-differs": HIDDEN_CHECKS,
    # Each product has its own rated speed, and only NPUs of one product are compared and reach each other.
    "product-mixed": ("npu-topology-differs", "optics-out-of-range", "device-speed-low", "device-unreachable"),
}


DIAGNOSIS = """
mkdir -p /var/log/ascend_check
cat >/var/log/ascend_check/environment_check_before.txt <<'END'
{"DiagnosisItems": [{"group_name": "Hardware", "group_results": "FAIL", "sub_items": [{"item_info": [
"d2h bandwidth diagnosis failed on device 0 with bandwidth 28.201079722538424 / 30"]}]}]}
END
"""


def npu_row(
    check: str, fault: str, fleet: str = "a2", also: Sequence[str] = (), clause: str = "", **values: Any
) -> Row:
    return Row(
        check,
        fault,
        fleet=fleet,
        clause=clause,
        values=values,
        also=also,
        apart=APART.get(check, ()),
    )


SWITCH = """
mkdir -p /var/log/mindx-dl/devicePlugin
cat >/var/log/mindx-dl/devicePlugin/devicePlugin.log <<'END'
[WARN]     2026/01/10 03:31:38.643290 17      deviceswitch/ascend_switch.go:174    switch subscribe got fault:\
AlarmId: 0x08520003, FaultID: na, AssembledFaultCode: [0x08520003,na,npu,na], PeerPortDevice: 1, PeerPortId: 3, \
SwitchChipId: 2, SwitchPortId: 5, Assertion: 1, AlarmRaisedTime: 0, faultCode:[0x08520003,na,npu,na]
END
"""


BEHIND_A_PORT = f"""
port={PCI}/0000:c0:02.0
mkdir -p $port; echo 16 >$port/max_link_width; echo 16.0 GT/s PCIe >$port/max_link_speed
npu=$port/0000:c2:00.0; mkdir $npu; cp {PCI}/0000:c2:00.0/* $npu/
rm -r {PCI}/0000:c2:00.0; ln -s $npu {PCI}/0000:c2:00.0
"""
"""The second NPU as sysfs has it: a link to its place below the port."""

ROWS: list[Row] = [
    Row(
        "npu-switch-fault",
        SWITCH.replace("\\\n", ""),
        fleet="a3",
        values={"code": "[0x08520003,na,npu,na]", "chip": "2", "port": "5", "observed": "replace"},
        healthy_first=False,
    ),
    npu_row("ascend-dmi-failed", DIAGNOSIS, group="Hardware", expected="PASS"),
    npu_row(
        "npu-tools-missing",
        "rm /usr/local/Ascend/driver/tools/hccn_tool",
        clause="on training products, hccn_tool",
        missing=["hccn_tool"],
        npus=8,
    ),
    npu_row(
        "npu-tools-missing",
        "rm /usr/local/bin/npu-smi",
        clause="Every host with NPUs has the driver's tools: npu-smi and,",
        fleet="a1",
        missing=["npu-smi"],
    ),
    npu_row("npu-count-differs", "rm /dev/davinci7", observed=7, expected=8, count=3, total=4, also=("npu-missing",)),
    npu_row(
        "npu-missing",
        f"rm /dev/davinci5; touch {NPU}/5/gone",
        clause="has a device file",
        npus=[5],
        expected="8 device files",
        also=("npu-count-differs",),
    ),
    npu_row("npu-missing", f"touch {NPU}/12/gone", fleet="a3", observed="15 NPUs listed", npus=[12]),
    npu_row(
        "npu-missing",
        f"rm /dev/davinci2; touch {NPU}/2/gone; for d in {PCI}/*; do case $(cat $d/device) in\n"
        f"0xd802) mount -t tmpfs none $d; break ;; esac; done",
        npus=[2],
        on_bus=7,
        also=("npu-count-differs",),
    ),
    npu_row("npu-unhealthy", f"echo Warning >{NPU}/3/health", npu=3, observed="Warning"),
    npu_row(
        "npu-unhealthy",
        f"echo Alarm >{NPU}/6/health; echo 80E18402 >{NPU}/6/health_codes",
        clause="its health is OK",
        npu=6,
        codes=["80E18402"],
        remedy="take the NPU out of service and report it to the vendor",
    ),
    npu_row(
        "npu-unhealthy",
        f"echo 8F180200 >{NPU}/7/health_codes",
        npu=7,
        codes=["8F180200"],
        observed="OK",
    ),
    Row(
        "npu-unhealthy",
        f"touch {NPU}/4/silent",
        clause="answers",
        values={"npu": 4, "observed": 'Failed to query "health" result.'},
        apart=("*",),
    ),
    Row("npu-unhealthy", f"touch {NPU}/3/unshown", values={"npu": 3, "observed": "not in the table"}, apart=("*",)),
    npu_row(
        "npu-health-warning",
        f"echo Warning >{NPU}/2/health; echo 80E20207 >{NPU}/2/health_codes",
        card=2,
        observed=["80E20207"],
    ),
    npu_row("npu-unhealthy", f"echo Critical >{NPU}/9/health", fleet="a3", npu=9, card=4, chip=1),
    npu_row(
        "hccs-unhealthy",
        f"echo NOK >{NPU}/5/hccs",
        clause="Every NPU chip reports that its HCCS links are healthy",
        card=5,
        chip=0,
        observed="NOK",
    ),
    npu_row(
        "hccs-unhealthy",
        f"echo 2 >{NPU}/6/hccs_lanes",
        clause="with all their lanes",
        card=6,
        link=2,
        observed=2,
        expected=4,
    ),
    npu_row(
        "hccs-unhealthy",
        f"echo 4100 >{NPU}/6/hccs_errors",
        clause="has few damaged packets",
        card=6,
        link=2,
        observed=4100,
        expected="0",
    ),
    npu_row(
        "npu-clock-throttled",
        f"echo 95 >{NPU}/2/aicore; echo 800 >{NPU}/2/running",
        card=2,
        observed=800,
        expected="1800 MHz",
    ),
    npu_row("npu-memory-held", f"echo 30000 >{NPU}/2/hbm_used", npu=2, observed="30000 MB"),
    npu_row("npu-temperature-high", f"echo 88 >{NPU}/1/temp", npu=1, observed=88),
    npu_row("npu-frequency-differs", f"echo 1500 >{NPU}/0/freq", npus=[0], observed=1500, expected=1800),
    npu_row("npu-pcie-errors", f"echo 12 >{NPU}/7/pcie", card=7, observed=12),
    Row(
        "pcie-link-degraded",
        BEHIND_A_PORT + "echo 8 >$npu/current_link_width\n",
        values={"slot": "0000:c2:00.0", "observed": "x8 at 16.0 GT/s", "expected": "x16 at 16.0 GT/s"},
        apart=("*",),
        clause="the lanes",
    ),
    npu_row(
        "pcie-link-degraded",
        f"cd {PCI}/0000:c2:00.0; echo 63 | tee current_link_width >max_link_width; echo Unknown >current_link_speed",
        clause="answers over PCIe",
        slot="0000:c2:00.0",
        kind="the NPU",
    ),
    npu_row("npu-topology-differs", f"echo 0-5 SYS >{NPU}/topo", pair="0, 5", observed="SYS", expected="HCCS"),
    npu_row(
        "hccl-rootinfo-stale",
        """echo '{"version": "2.0", "topo_file_path": "/none.json"}' >/etc/hccl_rootinfo.json""",
        observed="/none.json",
    ),
    npu_row("npu-driver-not-loaded", f"touch {NPU}/drvmng", clause="answers npu-smi", expected="npu-smi starts"),
    npu_row(
        "npu-driver-not-loaded",
        "rm /dev/davinci*",
        clause="is loaded",
        fleet="a1",
        observed="dcmi module initialize failed. ret is -8005",
        also=("npu-count-differs",),
    ),
    npu_row("npu-driver-not-loaded", f"touch {NPU}/occupied"),
    Row(
        "npu-user-not-in-group",
        "sed -i '/^HwHiAiUser:/s/ann//' /etc/group",
        values={"user": "ann", "group": "HwHiAiUser", "first": "/dev/davinci0", "mode": "660"},
        prepare=ordinary_user,
    ),
    npu_row(
        "npu-busy",
        f"setsid sleep 300 </dev/davinci6 >/dev/null 2>&1 & echo $! sleep 3400 >{NPU}/6/processes",
        npu=6,
        name="sleep",
        megabytes=3400,
        user="root",
    ),
    npu_row("npu-busy", f"echo 4242 - 58601 >{NPU}/15/processes", fleet="a3", npu=15, pid=4242, user="not known"),
    npu_row("npu-hbm-low", f"echo 61440 >{NPU}/1/hbm_total", npu=1, observed="61440 MB"),
    npu_row(
        "npu-memory-errors",
        f"echo 'HBM Double Bit Error Count=3' >{NPU}/4/ecc",
        clause="No NPU has uncorrected memory errors",
        card=4,
        observed=3,
    ),
    npu_row("npu-memory-errors", f"echo 'HBM Double Bit Error Count=2' >{NPU}/13/ecc", fleet="a3", card=6, observed=2),
    npu_row(
        "product-mixed",
        f"for d in {PCI}/*; do case $(cat $d/device) in 0xd802) echo 0xd801 >$d/device ;; esac; done",
        observed="A1",
        expected="A2",
    ),
]
