"""The emulated Ascend tools say what the real ones say, to the letter, and hosts with NPUs look like such.

Texts that stand here in full are those of the fact sheet on Ascend (pasted from real hosts, or format strings of the
public driver source).
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.hosts.fleet import Fleet, merge
from tests.hosts.npu import HCCN_TOOL, cann_package, device_network, job_python, npu_fleet, npu_host

Completed = subprocess.CompletedProcess[str]
MakeFleet = Callable[..., Fleet]
HOST, OTHER = "sb0002", "sb0001"


def hccn(fleet: Fleet, *argv: str | int, host: str = HOST, **options: Any) -> Completed:
    return fleet.enter(host, [HCCN_TOOL, *map(str, argv)], check=False, **options)


def smi(fleet: Fleet, *argv: str | int, host: str = HOST) -> Completed:
    return fleet.enter(host, ["npu-smi", *map(str, argv)], check=False)


@contextlib.contextmanager
def state(fleet: Fleet, host: str = HOST, /, **files: str | None) -> Iterator[None]:
    """State files that are different for a while; "n3__link" is the file link of device 3, "drvmng" the host's."""
    share = fleet.directory / "share" / host
    places = {share.joinpath(*(key[1:].split("__") if "__" in key else [key])): text for key, text in files.items()}
    before = {path: path.read_text() if path.exists() else None for path in places}

    def write(texts: Any) -> None:
        for path, text in texts.items():
            if text is None:
                path.unlink(missing_ok=True)
            else:
                path.write_text(text if text.endswith("\n") else f"{text}\n")

    write(places)
    try:
        yield
    finally:
        write(before)


# ---- hccn_tool: queries

LINK_CHANGES = """\
Tue Aug  1 14:43:40 2022    LINK UP
Tue Aug  1 14:43:40 2022    LINK DOWN
Tue Aug  1 14:43:26 2022    LINK UP
"""
LLDP = """\
Chassis ID TLV
        MAC: 00:00:5e:00:53:01
Port ID TLV
        Ifname: 400GE1/1/20:2
System Description TLV
        Versatile Routing Platform Software
VRP (R) software, Version 8.211 (DX511 V200R021C10SPC600)

Huarong DX511

System Capabilities TLV
        Enabled capabilities: Bridge, Router
Management Address TLV
        IPv4: 26.0.0.1
Maximum Frame Size TLV
        9216
End of LLDPDU TLV
"""
TLS = """\
dev_id:0, tls switch[0](0:disable, 1:enable), tls preconfigured[1](0:non-preset, 1:preset), \
tls alarm time threshold[60]days
dev_id:0, [pub cert] info:
         issuer[/C=CN/ST=GD/O=HUAWEI/OU=2012/CN=2_1thCA]
         start_time[Wed Feb 19 03:19:21 2020 GMT]
         end_time[Sat Feb 16 03:19:21 2030 GMT]
         tls expiration status[0](0:normal, 1:near expiration, 2:has expired)
"""
VNIC = """\
vnic link status: UP
vnic ipaddr: 192.168.2.199
vnic netmask: 255.255.255.0
"""
ROUTE = """\
Routing table:
Destination     Gateway         Genmask         Flags Metric Ref    Use Iface
default         29.1.0.1        0.0.0.0         UG    0      0        0 eth3
29.1.0.0        *               255.255.0.0     U     0      0        0 eth3
127.0.0.1       *               255.255.255.255 UH    0      0        0 lo
192.168.1.0     *               255.255.255.0   U     0      0        0 end3v0
192.168.2.0     *               255.255.255.0   U     0      0        0 end3v0
"""


@pytest.mark.parametrize(
    ("argv", "files", "text"),
    [
        ("3 -ip -g", {"n3__ip": "29.1.112.213"}, "ipaddr:29.1.112.213\nnetmask:255.255.0.0\n"),
        ("3 -ip -inet6 -g", {"n3__ip6": "fd00::1"}, "ipv6_address:fd00::1\nprefix_length:64\n"),
        ("0 -gateway -g", {"n0__gateway": "11.12.165.1"}, "default gateway:11.12.165.1, Iface:eth0\n"),
        ("0 -netdetect -g", {"n0__netdetect": "11.12.165.1"}, "netdetect addr: 11.12.165.1\n"),
        ("0 -netdetect -g", {"n0__say.netdetect": "netdetect address: 1.2.3.4"}, "netdetect address: 1.2.3.4\n"),
        ("3 -route -g", {}, ROUTE),
        ("0 -vnic -g", {}, VNIC),
        ("0 -vnic -g", {"n0__vnic_link": "DOWN"}, VNIC.replace("UP", "DOWN")),
        ("0 -mac -g", {"n0__mac": "78:2d:ad:12:34:56"}, "mac addr: 78:2d:ad:12:34:56\n"),
        ("0 -mtu -g", {"n0__mtu": "1500"}, "mtu:1500\n"),
        ("0 -link -g", {}, "link status: UP\n"),
        ("0 -link -g", {"n0__link": "DOWN"}, "link status: DOWN\n"),
        ("0 -net_health -g", {}, "net health status: Success\n"),
        ("0 -net_health -g", {"n0__link": "DOWN"}, "net health status: Fault\n"),
        ("0 -net_health -g", {"n0__netdetect": None}, "net health status: Init\n"),
        ("0 -net_health -g", {"n0__unreachable": "29.1.0.1"}, "net health status: Unreachable\n"),
        ("0 -net_health -g", {"n0__net_health": "Socket fail"}, "net health status: Socket fail\n"),
        ("0 -net_health -g", {"n0__net_health": "Socket failed"}, "net health status: Socket failed\n"),
        ("7 -lldp -g", {"n7__ifname": "400GE1/1/20:2"}, LLDP),
        ("7 -lldp -g", {"n7__lldp": "empty"}, ""),
        ("7 -lldp -g", {"n7__lldp": "odd\ntext"}, "odd\ntext\n"),
        ("0 -speed -g", {"n0__speed": "100000"}, "Speed: 100000 Mb/s\n"),
        ("0 -speed -g", {"n0__link": "DOWN"}, "Speed: Unknown!\n"),
        ("0 -duplex -g", {}, "Duplex: Full\n"),
        ("0 -fec -g", {}, "fec mode: rs FEC mode\n"),
        ("0 -fec -g", {"n0__fec": "no"}, "fec mode: no FEC mode\n"),
        ("0 -cfg status", {"n0__cfg_status": "FAIL"}, "config status:FAIL\n"),
        ("0 -process -g", {}, "device hccp process: not exist\n"),
        ("0 -process -g", {"n0__process": "exist"}, "device hccp process: exist\n"),
        ("0 -tls -g", {}, TLS),
        ("0 -tls -g", {"n0__tls": "1"}, TLS.replace("tls switch[0]", "tls switch[1]")),
    ],
)  # fmt: skip
def test_what_queries_print(fleet_a2: Fleet, argv: str, files: dict[str, str | None], text: str) -> None:
    with state(fleet_a2, **files):
        completed = hccn(fleet_a2, "-i", *argv.split())
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, text, "")


def test_link_history(fleet_a2: Fleet) -> None:
    with state(fleet_a2, n0__link_changes=LINK_CHANGES):
        now, count, head, *records = hccn(fleet_a2, "-i", 0, "-link_stat", "-g").stdout.splitlines()
    assert now.startswith("[devid 0]current time        : ")
    assert count == "[devid 0]link up count       : 2"
    assert head == "[devid 0]link change records :"
    assert records == [f"[devid 0]    {line}" for line in LINK_CHANGES.splitlines()]


def test_fibre_to_another_npu(fleet_a2: Fleet) -> None:
    with state(fleet_a2, n0__lldp="fibre"):
        lines = hccn(fleet_a2, "-i", 0, "-lldp", "-g").stdout.splitlines()
    assert lines[lines.index("System Description TLV") + 1].strip() == "AscendNPU"


def test_every_device_hangs_on_a_switch_port_of_its_own(fleet_a2: Fleet) -> None:
    outputs = [hccn(fleet_a2, "-i", npu, "-lldp", "-g", host=host).stdout for host in (HOST, OTHER) for npu in range(8)]
    assert len({line for text in outputs for line in text.splitlines() if "Ifname" in line}) == 16


def test_optical_module(fleet_a2: Fleet) -> None:
    good = hccn(fleet_a2, "-i", 0, "-optical", "-g").stdout.splitlines()
    assert good[:3] == ["optical info:", "present              : present", "temperature          : 47 C"]
    assert "RxPower Low Thres    : 0.1445 mW" in good
    assert "high power enable reg: enabled" in good
    with state(fleet_a2, n0__optical="Rx Power0=0.0001 mW\nRx Los Flag=0xff\npresent=not present"):
        bad = hccn(fleet_a2, "-i", 0, "-optical", "-g").stdout.splitlines()
    assert [line for line in bad if line not in good] == [
        "present              : not present",
        "Rx Power0            : 0.0001 mW",
        "Rx Los Flag          : 0xff",
    ]


def test_counters(fleet_a2: Fleet) -> None:
    with state(fleet_a2, n0__stat="roce_rx_err_pkt_num:7"):
        lines = hccn(fleet_a2, "-i", 0, "-stat", "-g").stdout.splitlines()
    assert lines[:4] == [
        "packet statistics:", "mac_tx_mac_pause_num:0", "mac_rx_mac_pause_num:0", "mac_tx_pfc_pkt_num:0",
    ]  # fmt: skip
    assert "roce_rx_err_pkt_num:7" in lines
    assert "nic_tx_all_pkg_num:122404" in lines


# ---- hccn_tool: errors

NO_GATEWAY = "Get gateway failed, because no gateway was preset there!\n"
INVALID = "The ip address you configured is invalid!\n"
CONFLICT = "The ip address configured is conflicted!\n"
BAD_TYPE = 'Get invalid major cmd type. The valid major cmd type should be "-a" or "-i".\n'
MORE = "Enter [ hccn_tool -h ] for more details.\n"
NO_CONF = "The hccn.conf can't access, cmd execute failed! pls check the conf file or cmd run permission.\n"


@pytest.mark.parametrize(
    ("argv", "files", "status", "out", "err"),
    [
        ("", {}, 2, "", "Get invalid major cmd number. Please check your input.\n" + MORE),
        ("-x 0 -ip -g", {}, 1, "", BAD_TYPE + MORE),
        ("-i 0 -nonsense -g", {}, 3, "", "Get invalid major cmd.\n" + MORE),
        ("-i 8 -ip -g", {}, 4, "", "Get invalid device id.\n"),
        ("-i 100 -ip -g", {}, 4, "", "Get invalid device id.\n"),
        ("-i x -ip -g", {}, 4, "", "Get invalid device id.\n"),
        ("-i 0 -ip -g", {"n0__gone": ""}, 4, "", "The device is not exist!\n"),
        ("-i 0 -ip -g", {"n0__ip": None}, 13, "", "Get ipconf failed, because no ip was preset there!\n"),
        ("-i 0 -gateway -g", {"n0__gateway": None}, 2, "", NO_GATEWAY),
        ("-i 0 -net_health -g", {"n0__fail": "net_health 3 err Get device health status failed!"}, 3, "",
         "Get device health status failed!\n"),
        ("-i 0 -link -g", {"n0__fail": "* 1 err Command execute failed!"}, 1, "", "Command execute failed!\n"),
        ("-i 0 -optical -g", {"n0__optical": "absent"}, 20, "Optical module is not present.\n", ""),
        ("-i 0 -optical -g", {"n0__optical": "unreachable"}, 15, "", "Control link unreachable.\n"),
        ("-i 0 -fec -g", {"n0__unsupported": "fec lldp"}, 13, "The command is not supported on this product.\n", ""),
        ("-i 0 -hccs_ping -g address 192.0.2.199", {}, 13, "The command is not supported on this product.\n", ""),
        ("-i 0 -tls -g", {"n0__tls": "no_cert"}, 14, "", "No certificate found, please set certs firstly!\n"),
        ("-i 0 -ip -s address 29.1.0.300 netmask 255.255.0.0", {}, 6, "", INVALID),
        ("-i 0 -ip -s address 29.1.0.9 netmask 255.0.255.0", {}, 6, "", INVALID),
        ("-i 0 -ip -s address 29.1.0.0 netmask 255.255.0.0", {}, 6, "", INVALID),
        ("-i 0 -ip -s address 29.1.255.255 netmask 255.255.0.0", {}, 6, "", INVALID),
        ("-i 0 -ip -s address 29.1.102.201 netmask 255.255.0.0", {}, 7, "", CONFLICT),
        ("-i 0 -gateway -s gateway 10.0.0.1", {}, 8, "",
         "The segment of configured gateway doesn't match that of the configured ip adress!\n"),
        ("-i 0 -gateway -s gateway 10.0.0.1", {"n0__ip": None}, 26, "",
         "Unable to configure gateway, because ip is not configured!\n"),
        ("-i 0 -ping -g address 29.1.0", {}, 6, "", INVALID),
        ("-i 0 -link -g", {"busy": "1"}, 11, "hccn_tool is busy, please try again.\n", ""),
    ],
)  # fmt: skip
def test_errors(fleet_a2: Fleet, argv: str, files: dict[str, Any], status: int, out: str, err: str) -> None:
    with state(fleet_a2, **files):
        completed = hccn(fleet_a2, *argv.split())
    assert (completed.returncode, completed.stdout, completed.stderr) == (status, out, err)


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        ("-i 0 -ip -g now", 4, "The total count of input parameters is wrong!\n"),
        ("-i 0 -ip -x", 3, "Get unknown option!\n"),
        ("-i 0 -ping -g address 29.1.0.1 pkt big", 1, "Get invalid parameters!\n"),
    ],
)
def test_wrong_arguments_bring_help(fleet_a2: Fleet, argv: str, status: int, text: str) -> None:
    completed = hccn(fleet_a2, *argv.split())
    assert (completed.returncode, completed.stderr) == (status, text)
    assert completed.stdout == f"[ hccn_tool -i devid {argv.split()[2]} ] needs the following parameters:\n"


def test_without_a_configuration_file_nothing_can_be_set(fleet_a2: Fleet) -> None:
    with fleet_a2.broken(HOST, "rm /etc/hccn.conf"):
        completed = hccn(fleet_a2, "-i", 0, "-netdetect", "-s", "address", "29.1.0.2")
        assert (completed.returncode, completed.stdout, completed.stderr) == (29, "", NO_CONF)
        for scope in ["-a"], ["-i", 0]:
            completed = hccn(fleet_a2, *scope, "-cfg", "recovery")
            assert (completed.returncode, completed.stderr) == (29, NO_CONF)
            assert completed.stdout == "Recovery failed. Check '/var/log/hccn_tool/hccn_config.log' for details.\n"


def test_settings_that_cannot_be_kept(fleet_a2: Fleet) -> None:
    with fleet_a2.broken(HOST, full_disk=True):
        completed = hccn(fleet_a2, "-i", 0, "-netdetect", "-s", "address", "29.1.0.2")
        assert completed.returncode == 4
        assert completed.stderr == (
            "Write configurations to config file failed. User configurations cannot be persisted! "
            "pls check cmd run permission.\n"
        )
        assert "29.1.0.2" not in fleet_a2.read(HOST, "/etc/hccn.conf")
        assert hccn(fleet_a2, "-i", 0, "-netdetect", "-g").stdout == "netdetect addr: 29.1.0.2\n"


def test_what_needs_root(fleet_a2: Fleet) -> None:
    users = {"ann": {"groups": ["HwHiAiUser"]}, "bob": {"uid": 2002}}
    with fleet_a2.broken(HOST, users=users):

        def ask(user: str, command: str) -> Completed:
            return fleet_a2.enter(HOST, ["runuser", "-u", user, "--", *command.split()], check=False)

        for command in (
            f"{HCCN_TOOL} -i 0 -tls -g",
            f"{HCCN_TOOL} -i 0 -ip -s address 29.1.9.9 netmask 255.255.0.0",
            f"{HCCN_TOOL} -i 0 -cfg recovery",
        ):
            completed = ask("ann", command)
            assert (completed.returncode, completed.stdout) == (12, "")
            assert completed.stderr == "permission denied: pls check this cmd run permission.\n"
        assert ask("ann", f"{HCCN_TOOL} -i 0 -link -g").stdout == "link status: UP\n"
        assert ask("ann", "npu-smi info -l").returncode == 0
        assert ask("bob", f"{HCCN_TOOL} -i 0 -link -g").stderr == "Get invalid device id.\n"
        refused = ask("bob", "npu-smi info")
        assert refused.returncode == 187
        assert refused.stdout == (
            "DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n"
        )
        assert "hccn_tool -i 0 -link -g\n" in fleet_a2.read(HOST, "/run/npu/calls")


# ---- hccn_tool: one at a time


def test_busy_for_some_calls(fleet_a2: Fleet) -> None:
    with state(fleet_a2, busy="2", n1__busy="1"):
        assert [hccn(fleet_a2, "-i", 1, "-link", "-g").returncode for _ in range(4)] == [11, 11, 11, 0]


def test_a_call_keeps_others_out_until_it_ends(fleet_a2: Fleet) -> None:
    with state(fleet_a2, n0__sleep="infinity"):
        # Again and again: the look at the lock below holds it for a moment, which makes the call busy itself.
        hang = f"setsid sh -c 'until {HCCN_TOOL} -i 0 -link -g; do :; done' >/dev/null 2>&1 & echo $!"
        pid = fleet_a2.enter(HOST, hang).stdout.strip()
        fleet_a2.enter(HOST, "while flock -n /run/npu/lock true; do :; done")
        completed = hccn(fleet_a2, "-i", 5, "-link", "-g")
        assert (completed.returncode, completed.stdout) == (11, "hccn_tool is busy, please try again.\n")
        fleet_a2.enter(HOST, ["kill", "-9", "--", f"-{pid}"])
        fleet_a2.enter(HOST, ["flock", "/run/npu/lock", "true"])
        assert hccn(fleet_a2, "-i", 5, "-link", "-g").returncode == 0


# ---- hccn_tool: reaching other devices


def ping(fleet: Fleet, target: str, *more: str | int, device: int = 3) -> Completed:
    return hccn(fleet, "-i", device, "-ping", "-g", "address", target, *more)


def test_ping(fleet_a2: Fleet) -> None:
    with state(fleet_a2, OTHER, n5__ip="29.1.137.205"):
        completed = ping(fleet_a2, "29.1.137.205")
        assert (completed.returncode, completed.stderr) == (0, "")
        assert completed.stdout == (
            "device 3 PING 29.1.137.205\n"
            "recv seq=0,time=1.418000ms\n"
            "recv seq=1,time=0.034000ms\n"
            "recv seq=2,time=0.040000ms\n"
            "3 packets transmitted, 3 received, 0.00% packet loss\n"
        )
        with state(fleet_a2, n3__loss="29.1.137.205 1"):
            completed = ping(fleet_a2, "29.1.137.205", "pkt", 4000)
        assert (completed.returncode, completed.stderr) == (1, "Command execute failed!\n")
        assert completed.stdout == (
            "device 3 PING 29.1.137.205\n"
            "recv time out seq=0\n"
            "recv seq=1,time=0.034000ms\n"
            "recv seq=2,time=0.040000ms\n"
            "3 packets transmitted, 2 received, 33.33% packet loss\n"
        )


@pytest.mark.parametrize(
    ("here", "present"),
    [
        ({"n3__link": "DOWN"}, {}),
        ({"n3__ip": None}, {}),
        ({"n3__unreachable": "29.1.101.203"}, {}),
        ({"unreachable": "*"}, {}),
        ({"n3__gateway": None, "n3__netmask": "255.255.255.0"}, {}),
        ({}, {"n3__link": "DOWN"}),
        ({}, {"n3__gone": ""}),
        ({}, {"n3__ip": "29.1.101.99"}),
        ({}, {"n3__unreachable": "29.1.102.203"}),
        ({}, {"n3__gateway": None, "n3__netmask": "255.255.255.0"}),
    ],
)
def test_pings_that_get_lost(fleet_a2: Fleet, here: dict[str, Any], present: dict[str, Any]) -> None:
    assert ping(fleet_a2, "29.1.101.203").returncode == 0
    with state(fleet_a2, HOST, **here), state(fleet_a2, OTHER, **present):
        completed = ping(fleet_a2, "29.1.101.203")
        assert ping(fleet_a2, "29.1.101.204", device=4).returncode == ("unreachable" in here)
    assert completed.returncode == 1
    assert completed.stdout.splitlines()[-1] == "3 packets transmitted, 0 received, 100.00% packet loss"


@pytest.mark.hosts
@pytest.mark.parametrize("family", ["a1", "a2"])
def test_healthy_devices_reach_their_peers(request: pytest.FixtureRequest, family: str) -> None:
    fleet: Fleet = request.getfixturevalue(f"fleet_{family}")
    for device in 0, 7:
        for index in range(4):
            target = device_network("A1" if family == "a1" else "A2", index, device)["ip"]
            assert ping(fleet, target, device=device).returncode == 0
        assert hccn(fleet, "-i", device, "-net_health", "-g").stdout == "net health status: Success\n"


def test_dies_of_one_npu_do_not_see_each_other(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2, npu_fleet("A3", 2, roce=True))
    addresses = [device_network("A3", 1, die)["ip"] for die in range(4)]
    assert [ping(fleet, address, device=0).returncode for address in addresses] == [0, 1, 0, 0]
    assert ping(fleet, device_network("A3", 0, 1)["ip"], device=0).returncode == 0
    assert hccn(fleet, "-i", 15, "-net_health", "-g").stdout == "net health status: Success\n"
    fleet.down()


HCCS_PING = """\
device 3 PING 192.0.2.199

This pkt ping success!
recv seq 0, time = 25.250us, L1 plane check result = 0x0

This pkt ping success!
recv seq 1, time = 20.110us, L1 plane check result = 0x0

This pkt ping success!
recv seq 2, time = 22.680us, L1 plane check result = 0x0

3 packets transmitted, 3 received, 0.00% packets loss
max time 25.250us
min time 20.110us
average time 22.680us
TP95 time 25.250us
Cmd executed successfully!
"""


def test_hccs_ping(fleet_a3: Fleet) -> None:
    for target in ("address", "192.0.2.199"), ("sdid", str(0)):
        completed = hccn(fleet_a3, "-i", 3, "-hccs_ping", "-g", *target)
        assert (completed.returncode, completed.stdout, completed.stderr) == (0, HCCS_PING, "")
    with state(fleet_a3, n3__l1_plane="0x1"):
        completed = hccn(fleet_a3, "-i", 3, "-hccs_ping", "-g", "address", "192.0.2.199", "cnt", 1)
    assert "L1 plane check result = 0x1\n" in completed.stdout
    assert "1 packets transmitted, 1 received, 0.00% packets loss\n" in completed.stdout


@pytest.mark.parametrize(
    ("here", "present"),
    [
        ({}, {"n5__vnic_link": "DOWN"}),
        ({}, {"n5__gone": ""}),
        ({}, {"super_pod_id": "7"}),
        ({}, {"server_index": "9"}),
        ({"n3__hccs_unreachable": "192.0.3.194"}, {}),
        ({}, {"hccs_unreachable": "*"}),
    ],
)
def test_a_lost_hccs_ping_still_says_success(fleet_a3: Fleet, here: dict[str, Any], present: dict[str, Any]) -> None:
    with state(fleet_a3, HOST, **here), state(fleet_a3, OTHER, **present):
        completed = hccn(fleet_a3, "-i", 3, "-hccs_ping", "-g", "address", "192.0.3.194")
    assert completed.returncode == 0
    assert "This pkt check recv msg fail!\nrecv seq 2, time = 0.000us" in completed.stdout
    assert "3 packets transmitted, 0 received, 100.00% packets loss\n" in completed.stdout
    assert completed.stdout.endswith("Cmd executed successfully!\n")


@pytest.mark.parametrize("target", ["10.0.0.1", "192.60.2.199", "192.0.2.198", "192.0.4.199"])
def test_hccs_ping_takes_only_hccs_addresses(fleet_a3: Fleet, target: str) -> None:
    completed = hccn(fleet_a3, "-i", 3, "-hccs_ping", "-g", "address", target)
    assert (completed.returncode, completed.stderr) == (6, "The ip address you configured is invalid!\n")


def test_a_healthy_super_pod_needs_no_device_addresses(fleet_a3: Fleet) -> None:
    completed = hccn(fleet_a3, "-i", 15, "-ip", "-g")
    assert (completed.returncode, completed.stderr) == (13, "Get ipconf failed, because no ip was preset there!\n")
    assert hccn(fleet_a3, "-i", 15, "-link", "-g").stdout == "link status: DOWN\n"
    assert "vnic ipaddr: 192.1.3.184\n" in hccn(fleet_a3, "-i", 15, "-vnic", "-g").stdout


# ---- hccn_tool: settings


def test_settings_reach_the_device_and_the_file(fleet_a2: Fleet) -> None:
    with fleet_a2.broken(HOST):
        for argv in (
            "-i 3 -ip -s address 29.2.0.9 netmask 255.255.255.0",
            "-i 3 -gateway -s gateway 29.2.0.1",
            "-i 3 -netdetect -s address 29.2.0.1",
            "-i 3 -tls -s enable 1",
        ):
            completed = hccn(fleet_a2, *argv.split())
            assert (completed.returncode, completed.stdout, completed.stderr) == (0, "Cmd executed successfully!\n", "")
        assert hccn(fleet_a2, "-i", 3, "-ip", "-g").stdout == "ipaddr:29.2.0.9\nnetmask:255.255.255.0\n"
        assert hccn(fleet_a2, "-i", 3, "-gateway", "-g").stdout == "default gateway:29.2.0.1, Iface:eth3\n"
        assert hccn(fleet_a2, "-i", 3, "-netdetect", "-g").stdout == "netdetect addr: 29.2.0.1\n"
        assert "tls switch[1]" in hccn(fleet_a2, "-i", 3, "-tls", "-g").stdout
        assert [line for line in fleet_a2.read(HOST, "/etc/hccn.conf").splitlines() if "_3=" in line] == [
            "address_3=29.2.0.9",
            "netmask_3=255.255.255.0",
            "netdetect_3=29.2.0.1",
            "send_arp_status_3=1",
            "gateway_3=29.2.0.1",
            "tls_enable_3=1",
        ]


def test_an_address_elsewhere_takes_the_gateway_away(fleet_a2: Fleet) -> None:
    with fleet_a2.broken(HOST):
        hccn(fleet_a2, "-i", 3, "-ip", "-s", "address", "29.2.0.9", "netmask", "255.255.255.0")
        assert hccn(fleet_a2, "-i", 3, "-gateway", "-g").returncode == 2
        assert "gateway_3=" not in fleet_a2.read(HOST, "/etc/hccn.conf")


@pytest.mark.parametrize("mend", ["-link -s up", "-cfg recovery"])
def test_a_port_that_was_taken_down(fleet_a2: Fleet, mend: str) -> None:
    with fleet_a2.broken(HOST):
        completed = hccn(fleet_a2, "-i", 3, "-link", "-s", "down", input="n\n")
        assert completed.returncode != 0
        assert hccn(fleet_a2, "-i", 3, "-link", "-g").stdout == "link status: UP\n"
        assert hccn(fleet_a2, "-i", 3, "-link", "-s", "down", input="y\n").returncode == 0
        assert hccn(fleet_a2, "-i", 3, "-link", "-g").stdout == "link status: DOWN\n"
        assert hccn(fleet_a2, "-i", 3, "-net_health", "-g").stdout == "net health status: Fault\n"
        assert hccn(fleet_a2, "-i", 3, *mend.split()).stdout == "Cmd executed successfully!\n"
        assert hccn(fleet_a2, "-i", 3, "-link", "-g").stdout == "link status: UP\n"
        assert hccn(fleet_a2, "-i", 3, "-net_health", "-g").stdout == "net health status: Success\n"


@pytest.mark.parametrize("scope", ["-a", "-i 3"])
def test_recovery_brings_the_device_to_what_the_file_says(fleet_a2: Fleet, scope: str) -> None:
    lost = "rm /run/npu/3/ip /run/npu/3/gateway; echo 1.2.3.4 >/run/npu/3/netdetect; echo FAIL >/run/npu/3/cfg_status"
    with fleet_a2.broken(HOST, lost):
        completed = hccn(fleet_a2, *scope.split(), "-cfg", "recovery")
        assert (completed.returncode, completed.stdout) == (0, "Cmd executed successfully!\n")
        assert hccn(fleet_a2, "-i", 3, "-ip", "-g").stdout == "ipaddr:29.1.102.203\nnetmask:255.255.0.0\n"
        assert hccn(fleet_a2, "-i", 3, "-cfg", "status").stdout == "config status:SUCCESS\n"
        assert hccn(fleet_a2, "-i", 3, "-net_health", "-g").stdout == "net health status: Success\n"


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("family", "address", "refused"),
    [
        ("A1", "192.168.1.8", True),
        ("A2", "192.168.1.8", True),
        ("A3", "192.168.1.8", True),
        ("A1", "192.168.2.8", True),
        ("A2", "192.168.2.8", True),
        ("A3", "192.168.2.8", True),
        ("A1", "192.168.4.8", True),
        ("A2", "192.168.4.8", False),
        ("A3", "192.55.0.8", True),
        ("A2", "192.55.0.8", False),
        ("A2", "192.168.2.199", True),
        ("A2", "10.9.9.9", False),
    ],
)
def test_addresses_that_the_driver_refuses(
    request: pytest.FixtureRequest, family: str, address: str, refused: bool
) -> None:
    fleet: Fleet = request.getfixturevalue(f"fleet_{family.lower()}")
    with fleet.broken(HOST):
        completed = hccn(fleet, "-i", 0, "-ip", "-s", "address", address, "netmask", "255.255.255.0")
    assert completed.returncode == (7 if refused else 0)
    assert completed.stderr == ("The ip address configured is conflicted!\n" if refused else "")


def test_a3_outside_a_super_pod_refuses_less(fleet_a3: Fleet) -> None:
    with fleet_a3.broken(HOST, "rm /run/npu/super_pod_id"):
        addresses = ["192.168.2.8", "192.168.8.8", "192.55.0.8"]
        took = [hccn(fleet_a3, "-i", 0, "-ip", "-s", "address", a, "netmask", "255.255.255.0") for a in addresses]
    assert [completed.returncode for completed in took] == [7, 0, 0]


def test_the_mtu_can_be_set_and_is_kept(fleet_a2: Fleet) -> None:
    with fleet_a2.broken(HOST, "echo 1500 >/run/npu/0/mtu"):
        assert hccn(fleet_a2, "-i", 0, "-mtu", "-s", "size", "many").returncode != 0
        assert hccn(fleet_a2, "-i", 0, "-mtu", "-s", "size", "4200").returncode == 0
        assert hccn(fleet_a2, "-i", 0, "-mtu", "-g").stdout == "mtu:4200\n"
        assert "mtu_0=4200" in fleet_a2.enter(HOST, "cat /etc/hccn.conf").stdout


def test_on_a3_only_the_other_die_is_compared(fleet_a3: Fleet) -> None:
    with fleet_a3.broken(HOST):
        took = [
            hccn(fleet_a3, "-i", device, "-ip", "-s", "address", "10.0.0.1", "netmask", "255.255.0.0").returncode
            for device in (0, 1, 2)
        ]
    assert took == [0, 7, 0]


def test_fec_can_be_set_on_a1_only(fleet_a1: Fleet, fleet_a2: Fleet) -> None:
    with fleet_a1.broken(HOST, "echo no >/run/npu/0/fec"):
        assert hccn(fleet_a1, "-i", 0, "-fec", "-s", "encoding", "rs").returncode == 0
        assert hccn(fleet_a1, "-i", 0, "-fec", "-g").stdout == "fec mode: rs FEC mode\n"
    assert hccn(fleet_a2, "-i", 0, "-fec", "-s", "encoding", "rs").returncode == 13


def test_a_part_that_is_not_emulated_says_so(fleet_a2: Fleet) -> None:
    completed = hccn(fleet_a2, "-i", 0, "-traceroute", "-g")
    assert (completed.returncode, completed.stdout) == (99, "")
    assert "emulated" in completed.stderr


# ---- npu-smi

A2_TABLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 23.0.rc2                 Version: 23.0.rc2                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B1               | OK            | 88.4        46                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          4175 / 65536         |
+===========================+===============+====================================================+
"""
A1_ROWS = """\
| 0     910B                | OK            | 70.0        34                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           1197 / 13553      1365 / 32768         |
"""
A3_TABLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.0.rc1                 Version: 25.0.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     Ascend910           | OK            | 160.7       45                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3103 / 65536         |
+------------------------------------------------------------------------------------------------+
| 0     Ascend910           | OK            | -           45                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2886 / 65536         |
+===========================+===============+====================================================+
| 1     Ascend910           | OK            | 167.2       44                0    / 0             |
| 0     2                   | 0000:99:00.0  | 0           0    / 0          3089 / 65536         |
"""
A3_END = """\
| 7     Ascend910           | OK            | -           48                0    / 0             |
| 1     15                  | 0000:83:00.0  | 0           0    / 0          2883 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
+===========================+===============+====================================================+
"""


def test_table_of_a2(fleet_a2: Fleet) -> None:
    with state(fleet_a2, driver="23.0.rc2", n0__temp="46"):
        completed = smi(fleet_a2, "info")
    assert completed.returncode == 0
    assert completed.stdout.startswith(A2_TABLE)
    assert len({len(line) for line in completed.stdout.splitlines()}) == 1


def test_table_of_a1(fleet_a1: Fleet) -> None:
    with state(fleet_a1, n0__temp="34"):
        assert A1_ROWS in smi(fleet_a1, "info").stdout


def test_table_of_a3(fleet_a3: Fleet) -> None:
    numbers = {"n0__temp": "45", "n1__temp": "45", "n1__hbm_used": "2886", "n2__power": "167.2", "n2__temp": "44"}
    numbers |= {"n2__hbm_used": "3089", "n15__temp": "48", "n15__hbm_used": "2883"}
    with state(fleet_a3, driver="25.0.rc1", **numbers):
        output = smi(fleet_a3, "info").stdout
    assert output.startswith(A3_TABLE)
    assert A3_END in output
    assert output.count("No running processes found in NPU") == 8


def test_processes_on_npus(fleet_a2: Fleet, fleet_a3: Fleet) -> None:
    with state(fleet_a2, n2__processes="1333928 - 37709", n3__hbm_used="61609"):
        output = smi(fleet_a2, "info").stdout
    assert (
        "| 2       0                 | 1333928       |                          | 37709                   |\n" in output
    )
    assert "No running processes found in NPU 2" not in output
    assert " 61609/ 65536 " in output  # glued to the slash, as on real hosts
    with state(
        fleet_a3, n0__processes="3325989 python3 50128\n3330598 python3 132", n1__processes="3328327 vllm 50119"
    ):
        output = smi(fleet_a3, "info").stdout
    assert [
        line.split()[1:3] + line.split()[4:5] for line in output.splitlines() if "python3" in line or "vllm" in line
    ] == [
        ["0", "0", "3325989"],
        ["0", "0", "3330598"],
        ["0", "1", "3328327"],
    ]


def test_driver_that_is_not_complete(fleet_a2: Fleet) -> None:
    with fleet_a2.broken(HOST, "sed -i '/Driver_Install_Status/d' /etc/ascend_install.info"):
        assert smi(fleet_a2, "info").stdout.endswith(
            "\n[WARNING]The driver package may not be completely installed, "
            "which may cause function abnormal. Please reinstall it.\n"
        )
    assert "WARNING" not in smi(fleet_a2, "info").stdout


def columns(*arguments: str) -> str:
    return "\t" + " ".join(f"{word:<30}" for word in arguments[:-1]) + f" {arguments[-1]}\n"


def test_mapping(fleet_a1: Fleet, fleet_a2: Fleet, fleet_a3: Fleet) -> None:
    with state(fleet_a1, chip="910A"):
        output = smi(fleet_a1, "info", "-m").stdout
    assert output.startswith(
        "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
        "\t0                              0                              0                              Ascend 910A\n"
        "\t1 "
    )
    with state(fleet_a2, chip="910B4"):
        output = smi(fleet_a2, "info", "-m").stdout
    head = columns("NPU ID", "Chip ID", "Chip Logic ID", "Chip Name")
    assert output.startswith(head + columns("0", "0", "0", "Ascend 910B4") + columns("0", "1", "-", "Mcu"))
    output = smi(fleet_a3, "info", "-m").stdout
    head = columns("NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name")
    rows = columns("0", "0", "0", "0", "Ascend910") + columns("0", "1", "1", "1", "Ascend910")
    assert output.startswith(
        head + rows + columns("0", "2", "-", "-", "Mcu") + columns("1", "0", "2", "2", "Ascend910")
    )


def test_list(fleet_a2: Fleet, fleet_a3: Fleet) -> None:
    card = "\tNPU ID                         : {}\n\tChip Count                     : {}\n\n"
    head = "\tTotal Count                    : 8\n\n"
    assert smi(fleet_a2, "info", "-l").stdout == head + "".join(card.format(i, 1) for i in range(8))
    assert smi(fleet_a3, "info", "-l").stdout == head + "".join(card.format(i, 2) for i in range(8))


def test_board(fleet_a1: Fleet) -> None:
    with state(fleet_a1, driver="23.0.5", firmware="7.1.0.7.220", n0__bus="0000:61:00.0", chip="910A"):
        assert smi(fleet_a1, "info", "-t", "board", "-i", 0).stdout == (
            "\tNPU ID                         : 0\n"
            "\tSoftware Version               : 23.0.5\n"
            "\tFirmware Version               : 7.1.0.7.220\n"
            "\tCompatibility                  : OK\n"
            "\tBoard ID                       : 0x02\n"
            "\tPCB ID                         : A\n"
            "\tBOM ID                         : 1\n"
            "\tPCIe Bus Info                  : 0000:61:00.0\n"
            "\tSlot ID                        : 0\n"
            "\tClass ID                       : NA\n"
            "\tPCI Vendor ID                  : 0x19E5\n"
            "\tPCI Device ID                  : 0xD801\n"
            "\tSubsystem Vendor ID            : 0x0200\n"
            "\tSubsystem Device ID            : 0x0100\n"
            "\tChip Count                     : 1\n"
        )
        chip = smi(fleet_a1, "info", "-t", "board", "-i", 0, "-c", 0).stdout
    assert chip.startswith(
        "\tNPU ID                         : 0\n"
        "\tChip ID                        : 0\n"
        "\tChip Type                      : Ascend\n"
        "\tChip Name                      : 910A\n"
        "\tChip Version                   : V1\n"
        "\tBoard ID                       : 0x02\n"
    )
    assert chip.endswith(
        "\tPCIe Bus Info                  : 0000:61:00.0\n\tFirmware Version               : 7.1.0.7.220\n"
    )


def test_health_usages_ecc_common(fleet_a1: Fleet, fleet_a2: Fleet) -> None:
    assert smi(fleet_a2, "info", "-t", "health", "-i", 0, "-c", 0).stdout == (
        "\tHealth Status                  : OK\n"
        "\tError Code                     : NA\n"
        "\tError Information              : NA\n"
    )
    with state(fleet_a2, n0__health="Alarm", n0__health_codes="80E01801", n0__ecc="HBM Double Bit Error Count=3"):
        assert "| Alarm         |" in smi(fleet_a2, "info").stdout
        assert "80E01801" in smi(fleet_a2, "info", "-t", "health", "-i", 0, "-c", 0).stdout
        ecc = smi(fleet_a2, "info", "-t", "ecc", "-i", 0).stdout
    assert "\tHBM Double Bit Error Count               : 3\n" in ecc
    assert "\tHBM Double Bit Isolated Pages Count      : 0\n" in ecc
    assert smi(fleet_a1, "info", "-t", "usages", "-i", 0).stdout.startswith(
        "\tNPU ID                         : 0\n"
        "\tChip Count                     : 1\n"
        "\n"
        "\tDDR Capacity(MB)               : 13553\n"
    )
    usages = smi(fleet_a2, "info", "-t", "usages", "-i", 0).stdout
    assert "\tHBM Capacity(MB)               : 65536\n\tHBM Usage Rate(%)              : 6\n" in usages
    assert "\tDDR Capacity(MB)               : 0\n" in usages
    with state(fleet_a2, n1__power="93.4", n1__temp="46"):
        common = smi(fleet_a2, "info", "-t", "common", "-i", 1).stdout
    for line in (
        "\tAicore Freq(MHZ)               : 1800\n",
        "\tAicore curFreq(MHZ)            : 800\n",
        "\tTemperature(C)                 : 46\n",
        "\tNPU Real-time Power(W)         : 93.4\n",
    ):
        assert line in common


@pytest.mark.parametrize(("card", "chip", "sdid"), [(0, 0, 37748736), (3, 1, 38600711)])
def test_super_pod(fleet_a3: Fleet, card: int, chip: int, sdid: int) -> None:
    with state(fleet_a3, server_index="9"):
        assert smi(fleet_a3, "info", "-t", "spod-info", "-i", card, "-c", chip).stdout == (
            f"\tSDID                           : {sdid}\n"
            "\tSuper Pod Size                 : 384\n"
            "\tSuper Pod ID                   : 0\n"
            "\tServer Index                   : 9\n"
        )


USAGE = "Usage: npu-smi info <watch|proc|-h|-m|-l|-t type> [Options...]"


@pytest.mark.parametrize(
    ("argv", "files", "status", "text"),
    [
        ("info", {"drvmng": ""}, 187,
         "DrvMngGetConsoleLogLevel failed. (ret=4)\ndcmi module initialize failed. ret is -8005\n"),
        ("info -m", {"occupied": ""}, 172,
         "dcmi model initialized failed, because the device is used. ret is -8020\n"),
        ("info -t board -i 9", {}, 215, f"Invalid card id.\nError parameter of -i\n{USAGE}\n"),
        ("info -t spod-info -i 0 -c 0", {}, 217, "This device does not support querying spod-info.\n"),
        ("inform", {}, 215, "Command or option is not found.\n"),
        ("info -l", {f"n{device}__gone": "" for device in range(8)}, 0, "There is no NPU card on this server.\n"),
    ],
)  # fmt: skip
def test_failures_of_npu_smi(fleet_a2: Fleet, argv: str, files: dict[str, str], status: int, text: str) -> None:
    with state(fleet_a2, **files):
        completed = smi(fleet_a2, *argv.split())
    assert (completed.returncode, completed.stderr) == (status, "")
    assert completed.stdout.startswith(text)


def test_a_card_that_dropped_off(fleet_a2: Fleet) -> None:
    with state(fleet_a2, n3__gone=""):
        assert "Invalid card id.\n" in smi(fleet_a2, "info", "-t", "health", "-i", 3).stdout
        output = smi(fleet_a2, "info", "-m").stdout
        assert columns("4", "0", "3", "Ascend 910B1") in output
        assert output.count("Ascend 910B1") == 7
        assert "Total Count                    : 7\n" in smi(fleet_a2, "info", "-l").stdout
        assert "| 3     910B1 " not in smi(fleet_a2, "info").stdout


# ---- the rest of a host with NPUs


@pytest.mark.hosts
@pytest.mark.parametrize(("family", "count", "pci"), [("a1", 8, "0xd801"), ("a2", 8, "0xd802"), ("a3", 16, "0xd803")])
def test_devices_and_files(request: pytest.FixtureRequest, family: str, count: int, pci: str) -> None:
    fleet: Fleet = request.getfixturevalue(f"fleet_{family}")
    devices = fleet.enter(HOST, "stat -c '%n %A %U %G' /dev/davinci* /dev/*_svm /dev/*_hdc").stdout.splitlines()
    assert len(devices) == count + 3
    assert {line.partition(" ")[2] for line in devices} == {"crw-rw---- HwHiAiUser HwHiAiUser"}
    completed = fleet.enter(
        HOST, "grep -l 0x19e5 /sys/bus/pci/devices/*/vendor | wc -l; cat /sys/bus/pci/devices/*/device"
    )
    assert completed.stdout.split()[0] == str(count)
    assert completed.stdout.split().count(pci) == count
    version = fleet.read(HOST, "/usr/local/Ascend/driver/version.info").splitlines()
    assert version[:2] == ["Version=25.5.2", "ascendhal_version=7.35.23"]
    assert "compatible_version_fw=[7.0.0,8.9.9]" in version
    assert fleet.read(HOST, "/usr/local/Ascend/firmware/version.info").startswith("Version=7.1.0.11.220\n")
    assert "Driver_Install_Status=complete\n" in fleet.read(HOST, "/etc/ascend_install.info")
    assert fleet.ssh(HOST, "command -v npu-smi hccn_tool").stdout == "/usr/local/bin/npu-smi\n"


def test_the_file_says_what_the_devices_run(fleet_a2: Fleet) -> None:
    assert fleet_a2.read(HOST, "/etc/hccn.conf").splitlines()[:6] == [
        "address_0=29.1.102.200",
        "netmask_0=255.255.0.0",
        "netdetect_0=29.1.0.1",
        "gateway_0=29.1.0.1",
        "send_arp_status_0=1",
        "address_1=29.1.102.201",
    ]


def test_healthy_addresses_follow_the_rules() -> None:
    for family, count in (("A1", 8), ("A2", 16), ("A3", 16)):
        plans = [device_network(family, host, npu) for host, npu in itertools.product(range(126), range(count))]  # type: ignore[arg-type]
        assert len({plan["ip"] for plan in plans}) == len(plans)
        for plan in plans:
            interface = ipaddress.ip_interface(f"{plan['ip']}/{plan['netmask']}")
            assert interface.ip not in (interface.network.network_address, interface.network.broadcast_address)
            assert ipaddress.ip_address(plan["netdetect"]) in interface.network
    planes = [ipaddress.ip_interface(device_network("A1", 3, npu)["ip"] + "/24").network for npu in range(8)]
    assert planes[:4] == planes[4:]
    assert len(set(planes)) == 4


def test_box16(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(1, {"sb0001": npu_host("A2", devices=16, processes={15: [(77, "python3", 900)]})})
    assert "Total Count                    : 16\n" in smi(fleet, "info", "-l", host="sb0001").stdout
    assert hccn(fleet, "-i", 15, "-link", "-g", host="sb0001").stdout == "link status: UP\n"
    assert "| 15      0                 | 77            | python3 " in smi(fleet, "info", host="sb0001").stdout
    fleet.down()


@pytest.mark.parametrize(
    ("version", "entry"), [("8.1.RC1", "ascend-toolkit/latest"), ("8.5.0", "cann"), ("9.1.0", "cann")]
)
def test_cann(fleet_a2: Fleet, version: str, entry: str) -> None:
    package = cann_package(version)
    with fleet_a2.broken(OTHER, "rm -rf /usr/local/Ascend/ascend-toolkit"):
        fleet_a2.change(OTHER, **package)
        info = fleet_a2.enter(OTHER, f"cat /usr/local/Ascend/{entry}/*-linux/ascend_toolkit_install.info").stdout
        assert f"package_name=Ascend-cann-toolkit\nversion={version}\n" in info
        cfg = fleet_a2.read(OTHER, f"/usr/local/Ascend/{entry}/version.cfg").splitlines()
        assert cfg[:2] == ["# version: 1.0", f"runtime_running_version=[7.6.0.1.220:{version}]"]
        env = f"/usr/local/Ascend/{'cann' if entry == 'cann' else 'ascend-toolkit'}/set_env.sh"
        assert fleet_a2.enter(OTHER, f". {env}; echo $ASCEND_HOME_PATH").stdout == f"/usr/local/Ascend/{entry}\n"
        without_key = f"sed -i /Path_Param/d /etc/ascend_install.info; set -e; . {env}; echo sourced"
        assert fleet_a2.enter(OTHER, without_key, check=False).stdout == ""


@pytest.fixture(scope="module")
def job(make_fleet: MakeFleet) -> Iterator[Fleet]:
    """Hosts whose job's interpreter is good, mismatched, and old enough not to load torch_npu by itself."""
    expected = [job_python(), job_python("2.6.0+cpu", "2.5.1", numpy="2.0.1"), job_python("2.4.0", "2.4.0.post2")]
    fleet = make_fleet(3, {f"sb{i + 1:04d}": merge(npu_host("A2", i), record) for i, record in enumerate(expected)})
    yield fleet
    fleet.down()


def job_says(fleet: Fleet, host: str, code: str, env: str = "") -> list[str]:
    completed = fleet.enter(host, f"{env} /opt/job/bin/python3 -c '{code}' 2>&1", check=False)
    return str(completed.stdout).splitlines()


def test_the_jobs_interpreter(job: Fleet) -> None:
    source = ". /usr/local/Ascend/ascend-toolkit/set_env.sh;"
    versions = "torch.__version__, torch_npu.__version__"
    show = f"import sys, torch, torch_npu; print(sys.prefix, {versions}, torch.npu.device_count())"
    assert job_says(job, "sb0001", show, source) == ["/opt/job 2.5.1 2.5.1 8"]
    assert job_says(job, "sb0001", show, source + "ASCEND_RT_VISIBLE_DEVICES=1,3,8")[-1].endswith(" 2")
    assert job_says(job, "sb0001", show, source + "ASCEND_RT_VISIBLE_DEVICES=3,1")[-1].endswith(" 0")
    dists = 'from importlib.metadata import version as v; print(v("torch"), v("torch_npu"), v("numpy"))'
    assert job_says(job, "sb0002", dists.replace("'", '"')) == ["2.6.0+cpu 2.5.1 2.0.1"]


def test_the_job_without_canns_environment(job: Fleet) -> None:
    absent = (
        "ImportError: libhccl.so: cannot open shared object file: No such file or directory. "
        "Please check that the cann package is installed. "
        "Please run 'source set_env.sh' in the CANN installation path."
    )
    lines = job_says(job, "sb0001", "import torch")
    assert absent in lines
    assert lines[-1] == (
        "RuntimeError: Failed to load the backend extension: torch_npu. "
        "You can disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0."
    )
    assert job_says(job, "sb0001", "import torch", "TORCH_DEVICE_BACKEND_AUTOLOAD=0") == []
    assert job_says(job, "sb0003", "import torch") == []
    assert job_says(job, "sb0003", "import torch_npu")[-1] == absent


def test_the_job_without_the_drivers_library(job: Fleet) -> None:
    with job.broken("sb0003", "rm /usr/local/Ascend/driver/lib64/driver/libascend_hal.so"):
        lines = job_says(job, "sb0003", "import torch_npu", ". /usr/local/Ascend/ascend-toolkit/set_env.sh;")
    assert lines[-1] == ("ImportError: libascend_hal.so: cannot open shared object file: No such file or directory")
