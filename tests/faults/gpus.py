"""NVIDIA GPUs, RDMA adapters, and hosts with them: emulated (`tests.hosts.gpu`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.facts.ethernet_transcripts import AVAGO, MLX5_SMALL
from tests.faults import Prepared, Row
from tests.hosts.gpu import EMULATED

PCI = "/sys/bus/pci/devices"
RDMA = "/sys/class/infiniband"
GROWING = f"""
file={RDMA}/mlx5_0/ports/1/counters/symbol_error
setsid python3 -c "
import os, time
file, count = os.open('$file', os.O_WRONLY), 0
while True:
    count += 1
    os.pwrite(file, b'%08d' % count, 0)
    time.sleep(0.05)
" </dev/null >/dev/null 2>&1 &
until [ "$(cat $file)" -gt 1 ]; do sleep 0.02; done
"""
"""In place, so that nobody reads an empty file, and counting before anybody reads."""
MOUNT = """
mkdir -p /data; test -e /dev/fuse || mknod /dev/fuse c 10 229
setsid python3 -c "
import ctypes, os, time
file = os.open('/dev/fuse', os.O_RDWR)
options = 'fd=%d,rootmode=40000,user_id={user},group_id=0' % file
libc = ctypes.CDLL(None, use_errno=True)
failed = libc.mount(b'nas1:/data', b'/data', b'fuse.sshfs', 0, options.encode())
open('/run/mounted', 'w').write(str(ctypes.get_errno() if failed else 0))
time.sleep(300)
" </dev/null >/dev/null 2>&1 &
until test -s /run/mounted; do sleep 0.05; done
test "$(cat /run/mounted)" = 0
"""
"""A file system that no process serves: statfs of its own user waits for ever, of any other is answered at once."""
PYTHON = "/opt/job/bin/python"
SITE = "/opt/job/site"
ACS = f"""
d={PCI}/0000:15:01.0; mkdir $d; echo 0x8086 >$d/vendor; echo 0x060400 >$d/class
head -c 256 /dev/zero >$d/config
printf '\\015\\000\\001\\000\\000\\000\\035\\000' >>$d/config
"""
"""A bridge whose first extended capability is ACS, with SrcValid, ReqRedir, CmpltRedir and UpstreamFwd on."""
GPU = "/run/gpu"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running."
)
KERNEL = """
mkdir -p /run/kernel/rings
cc -shared -fPIC -o /run/kernel/answers.so -x c - <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int open64(const char *path, int flags, ...) {
    int (*real)(const char *, int, ...) = dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (!strcmp(path, "/proc/self/mounts") && !access("/run/kernel/mounts", R_OK)) path = "/run/kernel/mounts";
    return real(path, flags, mode);
}

int ioctl(int file, unsigned long request, ...) {
    int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
    va_list rest;
    va_start(rest, request);
    void *data = va_arg(rest, void *);
    va_end(rest);
    struct ifreq *interface = data;
    unsigned *values = request == 0x8946 ? (unsigned *)interface->ifr_data : 0;
    char path[64] = "/run/kernel/rings/";
    if (!values || values[0] != 0x10) return real(file, request, data);
    FILE *ring = fopen(strncat(path, interface->ifr_name, IFNAMSIZ), "r");
    if (!ring) return real(file, request, data);
    int read = fscanf(ring, "%u %u", &values[5], &values[1]);
    fclose(ring);
    return read == 2 ? 0 : -1;
}
END
printf '#!/bin/sh\nLD_PRELOAD=/run/kernel/answers.so exec /usr/bin/python3 "$@"\n' >/usr/local/sbin/python3
chmod 755 /usr/local/sbin/python3
"""
"""What a kernel with NFS and with network cards answers: its table of mounts, and the rings of an interface."""
DCGM = """
cat >/run/dcgm.json <<'END'
{"body": {"Overall Health": {"value": "Warning"}, "GPU": {"children": {"3": {"value": "Warning", "children": {"Errors":
{"children": {"PCIe system": {"value": "Warning", "overflow": ["9 PCIe replays per minute for GPU 3"]}}}}}}}}}
END
printf '#!/bin/sh\\ncat /run/dcgm.json\\n' >/usr/local/sbin/dcgmi; chmod +x /usr/local/sbin/dcgmi
"""
DCGM_DIAGNOSIS = """
cat >/run/diagnosis.json <<'END'
{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [{"name": "software", "results": [
{"entity_group": "GPU", "entity_group_id": 1, "entity_id": 2, "status": "Fail", "warnings": [{"error_category": 10,
"error_id": 84, "error_severity": 2, "warning": "GPU 2 had uncorrectable memory errors and row remapping failed."}]
}]}]}]}}
END
printf '#!/bin/sh\\n[ "$1" = diag ] && cat /run/diagnosis.json && exit 205\\necho "not enabled"; exit 1\\n' \\
    >/usr/local/sbin/dcgmi; chmod +x /usr/local/sbin/dcgmi
"""
IPMI = """
cat >/usr/local/sbin/ipmitool <<'END'
#!/bin/sh
[ "$2" = time ] && exec date '+%m/%d/%Y %H:%M:%S'
echo " 2d1 | $(date '+%m/%d/%Y | %H:%M:%S') | System Event BIOS Evt Sensor | OEM System boot event | Asserted"
echo " 2e6 | $(date '+%m/%d/%Y | %H:%M:%S') | Power Supply PS1 Status | Power Supply AC lost | Asserted"
END
chmod +x /usr/local/sbin/ipmitool
"""
GPUD = """
mkdir -p /run/gpud /var/lib/gpud; cd /run/gpud; mkdir -p v1
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key -out cert -subj /CN=gpud 2>/dev/null
cat >v1/states <<'END'
[{"component": "accelerator-nvidia-error-xid", "states": [{"name": "error_xid", "health": "Unhealthy",
"reason": "XID 48 (Double Bit ECC Error) detected", "suggested_actions": {"repair_actions": ["HARDWARE_INSPECTION"]}}]}]
END
setsid python3 -c "
import http.server, ssl
server = http.server.HTTPServer(('', 15132), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert', 'key')
server.socket = context.wrap_socket(server.socket, server_side=True)
open('ready', 'w').close()
server.serve_forever()
" </dev/null >/dev/null 2>&1 &
until test -e ready; do sleep 0.05; done
"""
UNLICENSED = "<vgpu_software_licensed_product><license_status>Unlicensed (Restricted)</license_status>"
NVIDIA_SMI = "/usr/local/sbin/nvidia-smi"


def gpu_row(check: str, fault: str, host: int = 1, also: Sequence[str] = (), clause: str = "", **values: Any) -> Row:
    """A fault of one of the four hosts with GPUs."""
    # Two hosts that lack a GPU, or links of some, leave no majority.
    apart = {"gpu-count-differs": ("gpu-missing",), "nvlink-down": ("gpu-missing", "gpu-topology-differs")}.get(
        check, ()
    )
    row = Row(check, fault, fleet="gpu", host=host, also=also, values=values, apart=apart, clause=clause)
    return replace(row, healthy_first=check not in OF_TOOLS)


OF_TOOLS = ("bmc-fault-logged", "dcgm-diagnosis-failed", "dcgm-unhealthy", "gpud-unhealthy")
"""Checks that do not apply to hosts without the tool, which the fault brings along."""


def failing(check: str, text: str, code: int, clause: str = "", **values: Any) -> Row:
    """A row in which nvidia-smi fails as a whole: what else is read from it is unknown."""
    script = f"printf '%s\\n' \"{text}\" >{GPU}/says; echo {code} >{GPU}/code"
    return Row(check, script, fleet="gpu", values=values, prepare=nothing, healthy_first=False, clause=clause)


def nothing(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """No preparation: the row runs alone, for its fault hides others."""
    return Prepared([])


def element(number: int, name: str, before: str, after: str) -> str:
    """Changes one element of a GPU's report."""
    return f"sed -i 's|<{name}>{before}</{name}>|<{name}>{after}</{name}>|' {GPU}/{number}.xml"


def logged(*messages: str, ago: int = 60, level: int = 4) -> str:
    """Puts messages into the kernel's log, as old as that."""
    lines = "; ".join(f'echo "{level},2,$at,-;{message}"' for message in messages)
    return (
        f"at=$(awk '{{printf \"%d\", ($1 > {ago} ? $1 - {ago} : 1) * 1000000}}' /proc/uptime)\n"
        f"{{ {lines}; }} >>/dev/kmsg"
    )


def process(number: int, pid: int, kind: str, name: str) -> str:
    """Puts a process on a GPU."""
    info = (
        f"<process_info><pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name>"
        f"<used_memory>1024 MiB</used_memory></process_info>"
    )
    return f"sed -i 's|<processes>|<processes>{info}|' {GPU}/{number}.xml"


def bind_over(text: str, path: str) -> str:
    """Shows a text in place of a file of /sys, to this host alone."""
    return f"echo '{text}' >/run/shown; cp /run/shown /run/shown.$$; mount --bind /run/shown.$$ {path}"


def packages(*names: str, remove: str = "") -> str:
    """Leaves what pip leaves of packages, for the job's interpreter."""
    removed = f"rm -r {SITE}/{remove}; " if remove else ""
    return removed + "; ".join(f"mkdir -p {SITE}/{name}.dist-info" for name in names)


def job(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """Gives every host an interpreter of the job, with the packages of torch and NCCL by name."""
    script = f'#!/bin/sh\nPYTHONPATH={SITE} exec python3 "$@"\n'
    for host in fleet.hosts:
        fleet.change(
            host,
            files={PYTHON: {"text": script, "mode": "755"}},
            setup=packages("nvidia_nccl_cu12-2.27.5", "torch-2.6.0+cu124"),
        )
    return Prepared(["--python", PYTHON])


def mounted(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """Mounts a network file system that answers, on every host."""
    for host in fleet.hosts:
        fleet.alter(host, f"grep -q ' /data ' /proc/mounts || {{ {MOUNT.format(user=4711)} }}")
    return Prepared([])


IMEX = """\
cat >/usr/local/sbin/nvidia-imex-ctl <<'END'
#!/bin/sh
echo 'Node #0   - 10.0.0.1    - READY                - Version: 570.172'
echo 'Node #1   - 10.0.0.2    - UNAVAILABLE          - Version: '
echo 'Domain State: DEGRADED'
END
chmod 755 /usr/local/sbin/nvidia-imex-ctl"""
"""The lines of the real tool, for a domain with a host that does not answer."""

RING = f"""{KERNEL}
echo 1024 8192 >/run/kernel/rings/eth100
mkdir -p /sys/class/net/eth100/statistics; cd /sys/class/net/eth100/statistics
echo 80000000 >rx_packets; echo 9120 >rx_missed_errors
"""
"""A card that has dropped packets, and an eighth of the receive buffers that it can have."""

OTHER = f"""
d={PCI}/0000:65:00.0; mkdir $d; echo 0x1002 >$d/vendor; echo 0x74a1 >$d/device; echo 0x120000 >$d/class
"""
"""An MI300X that no driver has taken."""

AMD_SMI = (EMULATED / "amd-smi").read_text()
AMD_HOST = f"""
mkdir -p /run/amd /run/amdgpu/drivers/amdgpu; cd /run/amd
asic='{{"market_name": "AMD Instinct MI300X"}}'; modes='{{"accelerator_partition": "SPX", "memory_partition": "NPS1"}}'
ecc='{{"total_correctable_count": 4, "total_uncorrectable_count": 0}}'; driver='{{"version": "6.10.5"}}'
list= errors= static= partition= topology= comma=
for n in 0 1 2 3; do
    slot=0000:6$((n + 5)):00.0; d={PCI}/$slot; mkdir -p $d; ln -sfn /run/amdgpu/drivers/amdgpu $d/driver
    echo 0x1002 >$d/vendor; echo 0x74a1 >$d/device; echo 0x120000 >$d/class
    list="$list$comma{{\\"gpu\\": $n, \\"bdf\\": \\"$slot\\", \\"uuid\\": \\"GPU-$n\\", \\"partition_id\\": 0}}"
    errors="$errors$comma{{\\"gpu\\": $n, \\"ecc\\": $ecc}}"
    static="$static$comma{{\\"gpu\\": $n, \\"asic\\": $asic, \\"driver\\": $driver}}"
    partition="$partition$comma{{\\"gpu\\": $n, \\"partition\\": $modes}}"
    links= mark=
    for m in 0 1 2 3; do
        links="$links$mark{{\\"gpu\\": $m, \\"link_status\\": \\"ENABLED\\", \\"link_type\\": \\"XGMI\\"}}"; mark=,
    done
    topology="$topology$comma{{\\"gpu\\": $n, \\"bdf\\": \\"$slot\\", \\"links\\": [$links]}}"; comma=,
done
mkdir -p /opt/rocm/.info; echo 6.3.1-48 >/opt/rocm/.info/version
echo "[$list]" >list; echo "[$topology]" >topology; echo "{{\\"gpu_data\\": [$errors]}}" >ecc
echo "{{\\"gpu_data\\": [$static]}}" >static; echo "{{\\"gpu_data\\": [$partition]}}" >partition
"""


TO_GPU_3 = '"gpu": 3, "link_status": "ENABLED", "link_type": "'


def amd(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """Gives every host an MI300X that amd-smi lists."""
    for host in fleet.hosts:
        fleet.change(host, path={"amd-smi": AMD_SMI}, setup=AMD_HOST)
    return Prepared([])


PORT_OF_MLXLINK = """\
State                              : Active
Speed                              : IB-NDR
FEC                                : Standard_RS-FEC - (544,514)
Status Opcode                      : 0
Recommendation                     : No issue was observed
Effective Physical BER             : 15E-255
Temperature [C]                    : 54 [-5..75]
Rx Power Current [dBm]             : 1.886,1.989,2.281,1.976 [-10.41..6]
Cable Technology                   : 850 nm VCSEL
"""


def modules(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """Gives every host an mlxlink, which prints of an adapter what lies in /run/mlxlink."""
    tool = '#!/bin/sh\ntest "$1 $3 $4" = "-d -m -c" && cat "/run/mlxlink/$2"\n'
    setup = "mkdir -p /run/mlxlink /run/drivers/mlx5_core\n" + "".join(
        f"mkdir -p {RDMA}/{name}/device; ln -sfn /run/drivers/mlx5_core {RDMA}/{name}/device/driver\n"
        f"cat >/run/mlxlink/{name} <<'END'\n{PORT_OF_MLXLINK}END\n"
        for name in ("mlx5_0", "mlx5_1")
    )
    for host in fleet.hosts:
        fleet.change(host, path={"mlxlink": tool}, setup=setup)
    return Prepared([])


def ethtool(fleet: Any, folder: Any, healthy: bool) -> Prepared:
    """Gives every host an ethtool, which prints of eth100 what lies in /run/ethtool."""
    tool = '#!/bin/sh\ntest "$2" = eth100 && cat "/run/ethtool/$1"\n'
    setup = f"""cd /sys/class/net/eth100; echo 1 >carrier; echo 100000 >speed
mkdir -p /run/ethtool; cd /run/ethtool
cat >-m <<'END'
{AVAGO}END
cat >-S <<'END'
{MLX5_SMALL.replace("386", "0")}END
"""
    for host in fleet.hosts:
        fleet.change(host, path={"ethtool": tool}, setup=setup)
    return Prepared([])


def amd_row(check: str, fault: str, also: Sequence[str] = (), **values: Any) -> Row:
    return Row(check, fault, fleet="gpu", values=values, prepare=amd, also=also, apart=("*",))


ROWS: list[Row] = [
    amd_row(
        "amd-gpu-ecc-errors",
        "sed -i 's/uncorrectable_count\": 0/uncorrectable_count\": 3/' /run/amd/ecc",
        gpu=0,
        bus="0000:65:00.0",
        observed=3,
    ),
    amd_row(
        "amd-gpu-link-lost",
        f"sed -i 's/{TO_GPU_3}XGMI/{TO_GPU_3}PCIE/g' /run/amd/topology",
        also=("amd-gpu-settings-differ",),
        gpu=3,
        peers=[0, 1, 2],
    ),
    amd_row(
        "rocm-driver-mismatch",
        "echo 5.6.0-67 >/opt/rocm/.info/version",
        driver="6.3",
        module="6.10.5",
        rocm="5.6.0-67",
        origin="/opt/rocm",
    ),
    amd_row(
        "amd-gpu-missing",
        f"cp -r {PCI}/0000:65:00.0 {PCI}/0000:85:00.0",
        slots=["the GPU at 0000:85:00.0"],
        observed=4,
        expected=5,
    ),
    amd_row(
        "amd-gpu-settings-differ",
        "sed -i s/SPX/CPX/g /run/amd/partition",
        setting="compute partition",
        observed="CPX",
        expected="SPX",
    ),
    Row(
        "accelerator-without-driver",
        OTHER,
        fleet="gpu",
        values={"slot": "0000:65:00.0", "vendor": "AMD"},
        healthy_first=False,  # the check does not apply to hosts without such a device
        apart=("*",),
    ),
    gpu_row("gpu-count-differs", f"rm {GPU}/3.xml; rm -r {PCI}/0000:03:00.0", observed=3, expected=4, count=3, total=4),
    gpu_row("gpu-missing", f"rm {GPU}/3.xml", host=2, also=("gpu-count-differs",), observed=3, expected=4),
    gpu_row(
        "gpu-driver-differs",
        f"sed -i s/550.54.15/535.129.03/ {GPU}/head",
        host=3,
        observed="535.129.03",
        expected="550.54.15",
    ),
    gpu_row("gpu-ecc-errors", element(2, "dram_uncorrectable", "0", "7"), gpu=2, observed=7),
    Row("gpu-tools-missing", f"rm {NVIDIA_SMI}", fleet="gpu", values={"gpus": 4}, prepare=nothing),
    Row(
        "gpu-driver-not-loaded",
        f"umount /proc/driver; echo '{NO_DRIVER}' >{GPU}/says; echo 9 >{GPU}/code",
        fleet="gpu",
        values={"gpus": 4},
        prepare=nothing,
    ),
    failing(
        "gpu-lost",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover this "
        "GPU",
        15,
        gpus=["the GPU at 0000:02:00.0"],
    ),
    Row(
        "gpu-lost",
        f"rm {GPU}/2.xml; rm -r {PCI}/0000:02:00.0; "
        + logged("NVRM: Xid (PCI:0000:02:00): 79, pid=1122, GPU has fallen off the bus."),
        fleet="gpu",
        also=("gpu-xid-logged", "gpu-count-differs"),
        values={"devices": ["0000:02:00"]},
        prepare=nothing,  # the numbers of the other GPUs change
    ),
    Row(
        "gpu-lost",
        f"rm {GPU}/2.xml; cd {PCI}/0000:02:00.0; echo 63 | tee current_link_width >max_link_width\n"
        "echo Unknown | tee current_link_speed >max_link_speed\n"
        + logged("NVRM: Xid (PCI:0000:02:00): 79, pid=1122, GPU has fallen off the bus."),
        fleet="gpu",
        also=("gpu-xid-logged", "gpu-count-differs", "pcie-link-degraded"),
        values={"devices": ["0000:02:00"]},
        prepare=nothing,
    ),
    Row(
        "gpu-lost",
        f"rm {GPU}/2.xml; " + logged("NVRM: Xid (PCI:0000:02:00): 79, pid=1122, GPU has fallen off the bus."),
        fleet="gpu",
        also=("gpu-xid-logged", "gpu-count-differs", "gpu-missing"),
        values={"devices": ["0000:02:00"]},
        prepare=nothing,
    ),
    failing(
        "gpu-driver-mismatch",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144",
        18,
        observed="550.54.15",
    ),
    failing(
        "gpu-tool-fails",
        "Failed to initialize NVML: Unknown Error",
        255,
        clause="nvidia-smi answers on every host with NVIDIA GPUs",
        gpus=4,
    ),
    gpu_row(
        "gpu-tool-fails",
        f"sed -i 's|<dram_uncorrectable>0<|<dram_uncorrectable>Unknown Error<|; s|31 C|[Unknown Error]|' {GPU}/2.xml",
        clause="can read every value of every GPU",
        gpu=2,
        elements=["ecc_errors", "temperature"],
    ),
    gpu_row(
        "gpu-inforom-corrupted",
        f"echo 'WARNING: infoROM is corrupted at gpu 0000:03:00.0' >{GPU}/after",
        host=2,
        device="0000:03:00.0",
    ),
    gpu_row(
        "gpu-row-remap-failed", element(0, "remapped_row_failure", "No", "Yes"), clause="failed row remapping", gpu=0
    ),
    gpu_row("gpu-reset-needed", element(1, "remapped_row_pending", "No", "Yes"), gpu=1),
    gpu_row("gpu-reset-needed", element(3, "reset_required", "No", "Yes"), host=2, gpu=3),
    gpu_row(
        "gpu-clocks-throttled",
        element(3, "clocks_event_reason_hw_power_brake_slowdown", "Not Active", "Active"),
        clause="power supply",
        host=0,
        gpu=3,
    ),
    gpu_row("gpu-too-hot", element(2, "gpu_temp_tlimit", "56 C", "0 C"), host=0, gpu=2, observed=31, expected=33),
    gpu_row("gpu-persistence-off", element(1, "persistence_mode", "Enabled", "Disabled"), host=0, gpus=[1]),
    gpu_row("gpu-pcie-replays", element(1, "replay_counter", "0", "124530"), host=3, gpu=1, observed=124530),
    gpu_row(
        "gpu-vbios-differs",
        f"sed -i s/96.00.89.00.01/96.00.74.00.01/ {GPU}/*.xml",
        host=0,
        observed="96.00.74.00.01",
        expected="96.00.89.00.01",
    ),
    gpu_row(
        "rdma-errors-many",
        f"echo 412 >{RDMA}/mlx5_1/ports/1/counters/link_downed",
        host=0,
        port="mlx5_1:1",
        counter="link_downed",
        observed={"link_downed": 412},
    ),
    gpu_row(
        "gpu-mig-differs",
        element(0, "current_mig", "Disabled", "Enabled"),
        clause="All GPUs of all hosts are in the same MIG mode",
        host=0,
    ),
    gpu_row("gpu-power-limit-differs", element(0, "current_power_limit", "700.00 W", "500.00 W"), host=3),
    gpu_row("gpu-product-mixed", f"sed -i s/H100/A100/ {GPU}/*.xml", host=2, also=("gpu-power-limit-differs",)),
    gpu_row("gpu-busy", process(2, 4242, "C", "python"), host=3, gpu=2, pid=4242, megabytes=1024),
    gpu_row("gpu-compute-prohibited", element(1, "compute_mode", "Default", "Prohibited"), host=3, gpu=1),
    gpu_row(
        "gpu-xid-logged",
        logged("NVRM: Xid (PCI:0000:02:00): 79, pid=1122, GPU has fallen off the bus."),
        clause="GPU",
        code=79,
        device="0000:02:00",
        action="restart the host",
    ),
    gpu_row(
        "gpu-xid-logged",
        logged("NVRM: Xid (PCI:0000:03:00): 119, pid=9, name=python, Timeout after 45s of waiting for RPC response"),
        host=2,
        code=119,
    ),
    gpu_row(
        "amd-gpu-fault-logged",
        logged("amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0 1 uncorrectable hardware errors detected in umc block"),
        host=3,
        device="0000:05:00.0",
    ),
    gpu_row(
        "file-server-silent-logged",
        logged("nfs: server nas7 not responding, still trying"),
        host=3,
        server="nas7",
    ),
    gpu_row(
        "kernel-table-full-logged",
        logged("neighbour: arp_cache: neighbor table overflow!"),
        host=2,
        table="arp_cache",
    ),
    gpu_row(
        "library-crash-logged",
        logged("python3[77]: segfault at 7f00 ip 00007f sp 00007f error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]"),
        host=0,
        library="libnccl.so",
    ),
    gpu_row("gpu-direct-rdma-off", "sed -i s/Open// /proc/driver/nvidia/version", clause="dma-buf", host=2),
    gpu_row("pcie-acs-redirects", ACS, host=3, bridge="0000:15:01.0"),
    gpu_row(
        "hardware-error-logged",
        logged("mce: Uncorrected hardware memory error in user-access at 3f8000"),
        clause="memory",
        host=2,
        kind="uncorrected memory errors",
    ),
    gpu_row(
        "kernel-error-logged",
        logged("ice 0000:b1:00.0: Firmware recovery mode detected. Limiting functionality."),
        clause="none of a device's driver that no other check knows",
        host=1,
        device="0000:b1:00.0",
    ),
    gpu_row(  # of a driver that no table knows: the host says of what class the function is
        "kernel-error-logged",
        logged("metax 0000:03:00.0: state machine stays in 3", level=3),
        host=2,
        device="0000:03:00.0",
    ),
    gpu_row("gpu-pcie-width-low", element(3, "current_link_width", "16x", "8x"), gpu=3, observed=8, expected=16),
    gpu_row(
        "gpu-fabric-not-ready", element(1, "state", "Completed", "In Progress"), host=2, gpu=1, observed="In Progress"
    ),
    gpu_row(
        "gpu-fabric-unhealthy",
        element(2, "summary", "Healthy", "Unhealthy"),
        host=1,
        gpu=2,
        observed=["summary: Unhealthy"],
    ),
    gpu_row(
        "imex-domain-not-up",
        IMEX,
        host=3,
        observed="DEGRADED",
        away=["10.0.0.2"],
    ),
    gpu_row(
        "fabric-manager-not-running",
        f"echo inactive >/run/fabric; sed -i 's|<state>Completed|<state>N/A|' {GPU}/[0-9].xml",
        host=3,
        observed="not running",
        switches=1,
    ),
    gpu_row(
        "fabric-manager-version-differs",
        "sed -i s/550.54.15/550.90.07/ /usr/local/sbin/nv-fabricmanager",
        host=2,
        observed="550.90.07",
        expected="550.54.15",
    ),
    gpu_row(
        "nvlink-down",
        f"""sed -i 's/: [0-9.]* GB.*/: <inactive>/' {GPU}/links1
sed -i '/^GPU1/s/NV18/NODE/g; /^GPU[023]/s/^\\(GPU.\t[^\t]*\t\\)[^\t]*/\\1NODE/' {GPU}/topology""",
        host=2,
        also=("gpu-topology-differs",),
        gpu=1,
        observed=0,
        expected=18,
    ),
    gpu_row(
        "nvlink-errors",
        f"printf '\\t Link 1: CRC Errors: 65535\\n\\t Link 1: Replay Errors: 148\\n' >{GPU}/errors1",
        host=2,
        gpu=1,
        links=[1],
    ),
    gpu_row(
        "iommu-translates",
        f"for d in {PCI}/*/iommu_group; do echo DMA-FQ >$d/type; done",
        host=3,
        expected="identity",
    ),
    gpu_row("gpu-topology-differs", f"sed -i 's/PIX/SYS/g' {GPU}/topology", clause="network adapters", differences=2),
    gpu_row(
        "rdma-port-down",
        f"cd {RDMA}/mlx5_1/ports/1; echo '1: DOWN' >state; echo '3: Disabled' >phys_state",
        port="mlx5_1:1",
        observed="DOWN",
        physical="Disabled",
    ),
    Row(
        "rdma-module-out-of-range",
        "sed -i s/2.281/-14.2/ /run/mlxlink/mlx5_1",
        clause="Every RDMA port's module works within its own limits",
        fleet="gpu",
        values={"device": "mlx5_1", "observed": {"Rx power 2": -14.2}, "low": -10.41},
        prepare=modules,
        apart=("*",),
    ),
    gpu_row(
        "rdma-port-slow",
        f"echo '100 Gb/sec (1X NDR)' >{RDMA}/mlx5_0/ports/1/rate",
        clause="the number of lanes",
        host=2,
        port="mlx5_0:1",
    ),
    gpu_row("rdma-devices-differ", f"rm -r {RDMA}/mlx5_1", clause="under the same names", host=0),
    gpu_row("rdma-errors-growing", GROWING, host=3, also=("rdma-errors-many",), port="mlx5_0:1"),
    Row(
        "nccl-ib-hca-missing",
        f"mv {RDMA}/mlx5_1 {RDMA}/mlx5_7",
        fleet="gpu",
        values={"missing": ["mlx5_1"], "available": ["mlx5_0", "mlx5_7"]},
        environ={"NCCL_IB_HCA": "=mlx5_0,mlx5_1"},
    ),
    Row(
        "rdma-gid-wrong",
        f"rm {RDMA}/mlx5_0/ports/1/gid_attrs/types/3",
        fleet="gpu",
        values={"port": "mlx5_0:1", "index": 3, "observed": "no address of this network namespace"},
        environ={"NCCL_IB_GID_INDEX": "3"},
    ),
    Row(
        "rdma-address-repeated",
        # That of the next host.
        f"for n in 2 3; do echo 0000:0000:0000:0000:0000:ffff:0a60:0003 >{RDMA}/mlx5_0/ports/1/gids/$n; done",
        fleet="gpu",
        blamed=(1, 2),
        values={"address": "10.96.0.3"},
    ),
    gpu_row(
        "rdma-firmware-differs",
        f"echo 28.36.1010 >{RDMA}/mlx5_0/fw_ver",
        host=3,
        observed="28.36.1010 and 28.39.1002",
    ),
    gpu_row(
        "rdma-settings-differ",
        "echo 1500 >/sys/class/net/eth100/mtu",
        clause="MTU",
        host=3,
        setting="MTU",
        observed="1500",
    ),
    gpu_row(
        "network-card-failed",
        logged(
            "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 9): Detected insufficient power on the PCIe slot (27W)."
        ),
        host=0,
        device="0000:5c:00.0",
    ),
    Row(
        "network-module-out-of-range",
        "sed -i 's/42.17 degrees C/78.02 degrees C/' /run/ethtool/-m",
        clause="The module of every fast network card with a link works within its own limits",
        fleet="gpu",
        values={"interface": "eth100", "observed": {"temperature": 78.02}, "kind": "alarm", "high": 75.0},
        prepare=ethtool,
        apart=("*",),
    ),
    Row(
        "network-errors-many",
        "sed -i 's/rx_crc_errors_phy: 0/rx_crc_errors_phy: 13147323/' /run/ethtool/-S",
        fleet="gpu",
        values={"interface": "eth100", "observed": {"rx_crc_errors_phy": 13147323}, "expected": "0"},
        prepare=ethtool,
        apart=("*",),
    ),
    gpu_row("network-link-flapping", logged(*["mlx5_core 0000:3b:00.0 eth100: Link down"] * 3), host=0, observed=3),
    gpu_row(
        "network-card-slow",
        "echo 1000 >/sys/class/net/eth100/device/net/eth100/speed",
        clause="speed that it has on other hosts",
        host=3,
        interface="eth100",
        observed="1000 Mbit/s",
    ),
    gpu_row(
        "receive-ring-full",
        RING,
        interface="eth100",
        observed=9120,
        current=1024,
        maximum=8192,
    ),
    gpu_row(
        "out-of-memory-logged",
        logged("Out of memory: Killed process 1234 (python) total-vm:1kB"),
        host=3,
        name="python",
        pid=1234,
    ),
    gpu_row(
        "file-system-failed",
        logged("EXT4-fs (sda1): Remounting filesystem read-only"),
        clause="read-only file system",
        host=2,
        device="sda1",
    ),
    gpu_row(
        "mount-not-answering", MOUNT.format(user=0), target="/data", kind="fuse.sshfs", observed="no answer in 5 s"
    ),
    Row("mount-missing", "umount /data", fleet="gpu", values={"target": "/data", "count": 3}, prepare=mounted),
    Row(
        "mount-options-differ",
        "mount -o remount,bind,ro /data",
        clause="A network file system is mounted alike on all hosts: writable",
        fleet="gpu",
        values={"target": "/data", "setting": "access", "observed": "read-only"},
        prepare=mounted,
    ),
    gpu_row(
        "nfs-mount-soft",
        f"{KERNEL}mkdir -p /nfs; cat /proc/self/mounts >/run/kernel/mounts\n"
        "echo nas1:/nfs /nfs nfs4 rw,relatime,vers=4.2,soft,proto=tcp 0 0 >>/run/kernel/mounts",
        host=2,
        target="/nfs",
        observed="soft",
    ),
    gpu_row(
        "task-hung-logged",
        logged("INFO: task python:1234 blocked for more than 120 seconds."),
        host=0,
        observed="process 1234 (python)",
    ),
    gpu_row(
        "cpu-governor-slow",
        "echo powersave >/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        also=("host-settings-differ",),
        observed=["powersave"],
    ),
    gpu_row(
        "numa-balancing-on",
        "echo 1 >/proc/sys/kernel/numa_balancing",
        host=2,
        also=("host-settings-differ",),
        nodes=2,
    ),
    gpu_row(
        "clock-source-slow",
        bind_over("hpet", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        host=3,
        also=("host-settings-differ",),
        observed="hpet",
    ),
    gpu_row(
        "host-settings-differ",
        bind_over("always madvise [never]", "/sys/kernel/mm/transparent_hugepage/enabled"),
        clause="settings of it that change performance",
        host=0,
        setting="transparent huge pages",
        observed="never",
    ),
    gpu_row(
        "gpu-license-missing",
        f"sed -i 's|<product_name>[^<]*|<product_name>NVIDIA H100-20C|' {GPU}/0.xml\n"
        f"sed -i 's|<uuid>|{UNLICENSED}</vgpu_software_licensed_product><uuid>|' {GPU}/0.xml",
        also=("gpu-product-mixed",),
        observed="Unlicensed (Restricted)",
    ),
    gpu_row("dcgm-unhealthy", DCGM, device="GPU 3"),
    gpu_row("dcgm-diagnosis-failed", DCGM_DIAGNOSIS, host=3, test="software", device="GPU 2"),
    gpu_row("bmc-fault-logged", IPMI, sensor="Power Supply PS1 Status", observed="Power Supply AC lost"),
    gpu_row("gpud-unhealthy", GPUD, host=2, component="accelerator-nvidia-error-xid", observed="Unhealthy"),
    Row(
        "job-path-differs",
        "echo 77 >/run/swappiness; mount --bind /run/swappiness /proc/sys/vm/swappiness",
        clause="with the same content",
        fleet="gpu",
        values={"path": "/proc/sys/vm/swappiness", "count": 3},
        options=("--path", "/proc/sys/vm/swappiness"),
    ),
    Row(
        "host-snapshot-differs",
        "echo 77 >/run/swappiness; mount --bind /run/swappiness /proc/sys/vm/swappiness",
        clause="sysctls",
        fleet="gpu",
        values={"category": "sysctl", "count": 1},
        options=("--compare", "all"),
    ),
    Row(
        "torch-cuda-too-new",
        packages("torch-2.9.0", "nvidia_cuda_runtime-13.0.48", remove="torch*"),
        clause="The NVIDIA driver",
        fleet="gpu",
        values={"observed": "13.0", "expected": "12.4"},
        prepare=job,
    ),
    Row(
        "known-bad-version",
        packages("nvidia_nccl_cu12-2.25.1", remove="nvidia_nccl*"),
        clause="NCCL",
        fleet="gpu",
        values={"observed": "2.25.1", "expected": "2.26.2"},
        also=("nccl-version-differs",),
        prepare=job,
    ),
    Row(
        "nccl-version-differs",
        packages("nvidia_nccl_cu12-2.25.1", remove="nvidia_nccl*"),
        fleet="gpu",
        values={"observed": "2.25.1", "expected": "2.27.5"},
        also=("known-bad-version",),
        prepare=job,
    ),
]
