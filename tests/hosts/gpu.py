"""Overrides that make a test host look like one with NVIDIA GPUs and RDMA adapters; no device or driver is involved.

nvidia-smi is a shell script (`emulated/nvidia-smi`) that prints what lies in /run/gpu. The elements of its report are
those of a real one for an A100 (https://github.com/influxdata/telegraf, plugins/inputs/nvidia_smi/testdata); sysfs is
files over /sys, as https://github.com/leptonai/gpud keeps them of an H100 host. The kernel's log is a file at
/dev/kmsg, where test hosts have none.
"""

from __future__ import annotations

import pathlib
import resource
from typing import Any

from tests.hosts.testbed import Overrides

EMULATED = pathlib.Path(__file__).with_name("emulated")
DRIVER = "550.54.15"
GPUS = 4
REPORT_HEAD = f"""\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
<driver_version>{DRIVER}</driver_version>
<cuda_version>12.4</cuda_version>
<attached_gpus>{GPUS}</attached_gpus>
"""
GPU = """\
<gpu id="00000000:0{number}:00.0">
<product_name>NVIDIA H100 80GB HBM3</product_name>
<persistence_mode>Enabled</persistence_mode>
<mig_mode>
<current_mig>Disabled</current_mig>
<pending_mig>Disabled</pending_mig>
</mig_mode>
<uuid>GPU-{number}</uuid>
<vbios_version>96.00.89.00.01</vbios_version>
<gpu_reset_status>
<reset_required>No</reset_required>
<drain_and_reset_recommended>No</drain_and_reset_recommended>
</gpu_reset_status>
<pci>
<pci_gpu_link_info>
<pcie_gen>
<max_link_gen>5</max_link_gen>
<current_link_gen>5</current_link_gen>
</pcie_gen>
<link_widths>
<max_link_width>16x</max_link_width>
<current_link_width>16x</current_link_width>
</link_widths>
</pci_gpu_link_info>
<replay_counter>0</replay_counter>
</pci>
<clocks_event_reasons>
<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_slowdown>Not Active</clocks_event_reason_hw_slowdown>
<clocks_event_reason_hw_thermal_slowdown>Not Active</clocks_event_reason_hw_thermal_slowdown>
<clocks_event_reason_hw_power_brake_slowdown>Not Active</clocks_event_reason_hw_power_brake_slowdown>
<clocks_event_reason_sw_thermal_slowdown>Not Active</clocks_event_reason_sw_thermal_slowdown>
</clocks_event_reasons>
<fb_memory_usage>
<total>81559 MiB</total>
</fb_memory_usage>
<compute_mode>Default</compute_mode>
<ecc_errors>
<volatile>
<sram_uncorrectable>0</sram_uncorrectable>
<dram_uncorrectable>0</dram_uncorrectable>
</volatile>
<aggregate>
<sram_uncorrectable>0</sram_uncorrectable>
<dram_uncorrectable>0</dram_uncorrectable>
<sram_threshold_exceeded>No</sram_threshold_exceeded>
</aggregate>
<channel_repair_pending>No</channel_repair_pending>
<tpc_repair_pending>No</tpc_repair_pending>
</ecc_errors>
<remapped_rows>
<remapped_row_corr>0</remapped_row_corr>
<remapped_row_unc>0</remapped_row_unc>
<remapped_row_pending>No</remapped_row_pending>
<remapped_row_failure>No</remapped_row_failure>
</remapped_rows>
<temperature>
<gpu_temp>31 C</gpu_temp>
<gpu_temp_tlimit>56 C</gpu_temp_tlimit>
<gpu_temp_slow_tlimit_threshold>-2 C</gpu_temp_slow_tlimit_threshold>
</temperature>
<gpu_power_readings>
<current_power_limit>700.00 W</current_power_limit>
<default_power_limit>700.00 W</default_power_limit>
</gpu_power_readings>
<fabric>
<state>Completed</state>
<status>Success</status>
<health>
<summary>Healthy</summary>
<bandwidth>Full</bandwidth>
<route_recovery_in_progress>False</route_recovery_in_progress>
<route_unhealthy>False</route_unhealthy>
<access_timeout_recovery>False</access_timeout_recovery>
</health>
</fabric>
<processes>
</processes>
</gpu>
"""
TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\tPIX\tSYS\t0-47\t0
GPU1\tNV18\t X \tNV18\tNV18\tPXB\tSYS\t0-47\t0
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tPIX\t48-95\t1
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tPXB\t48-95\t1
NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tPIX\tPXB\tSYS\t X \t
"""
SYSTEMCTL = """\
#!/bin/sh
# Stands for systemd, which a test host has not; knows nvidia-fabricmanager alone, by /run/fabric.
state=$(cat /run/fabric 2>/dev/null || echo active)
case "$1" in
show) printf 'LoadState=loaded\\nActiveState=%s\\n' "$state" ;;
is-active) echo "$state"; [ "$state" = active ] ;;
is-enabled) [ "$state" = active ] && echo enabled || { echo disabled; exit 1; } ;;
enable | start | restart) echo active >/run/fabric ;;
disable | stop) echo inactive >/run/fabric ;;
esac
"""
PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "rate": "400 Gb/sec (4X NDR)",
    "link_layer": "Ethernet",
    "counters/symbol_error": "0",
    "counters/link_downed": "1",
    "hw_counters/out_of_sequence": "12",
}
RDMA = "/sys/class/infiniband"
CAN_LOCK_ALL = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] == resource.RLIM_INFINITY
"""Root of a container may not raise the limit of locked memory: there the hosts have the machine's own."""


def gpu_host(index: int) -> Overrides:
    """A healthy host with four GPUs behind NVSwitches and two RoCE adapters. ``index`` makes its addresses unique."""
    files: dict[str, Any] = {"/run/gpu/head": REPORT_HEAD, "/run/gpu/topology": TOPOLOGY}
    files["/dev/kmsg"] = "6,1,0,-;Linux version 5.15.0-1053-nvidia\n"
    for number in range(GPUS):
        pci = f"/sys/bus/pci/devices/0000:0{number}:00.0"
        files |= {
            f"{pci}/vendor": "0x10de\n",
            f"{pci}/class": "0x030200\n",
            f"{pci}/device": "0x2330\n",
            f"{pci}/iommu_group/type": "identity\n",
        }
        files[f"/run/gpu/{number}.xml"] = GPU.format(number=number)
        files[f"/run/gpu/links{number}"] = "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(18))
    for number in range(2):
        name, interface = f"mlx5_{number}", f"eth10{number}"
        files |= {
            f"{RDMA}/{name}/hca_type": "MT4129\n",
            f"{RDMA}/{name}/board_id": "MT_0000000838\n",
            f"{RDMA}/{name}/fw_ver": "28.39.1002\n",
            f"{RDMA}/{name}/node_guid": f"0c42:a103:0065:{index:02x}{number:02x}\n",
            f"{RDMA}/{name}/sys_image_guid": f"0c42:a103:0065:{index:02x}{number:02x}\n",
            f"{RDMA}/{name}/tc/1/traffic_class": "Global tclass=106\n",
            f"/sys/class/net/{interface}/mtu": "9000\n",
            f"/sys/class/net/{interface}/device/net/{interface}/speed": "400000\n",
            f"/sys/class/net/{interface}/device/net/{interface}/duplex": "full\n",
        }
        port = f"{RDMA}/{name}/ports/1"
        files |= {f"{port}/{key}": f"{text}\n" for key, text in PORT.items()}
        mac = f"fe80:0000:0000:0000:0e42:a1ff:fe65:{index:02x}{number:02x}"
        ipv4 = f"0000:0000:0000:0000:0000:ffff:0a6{number}:{index + 1:04x}"
        for gid, (address, kind) in enumerate(
            [(mac, "IB/RoCE v1"), (mac, "RoCE v2"), (ipv4, "IB/RoCE v1"), (ipv4, "RoCE v2")]
        ):
            files[f"{port}/gids/{gid}"] = f"{address}\n"
            files[f"{port}/gid_attrs/types/{gid}"] = f"{kind}\n"
            files[f"{port}/gid_attrs/ndevs/{gid}"] = f"{interface}\n"
    switch = "/sys/bus/pci/devices/0000:0a:00.0"
    files |= {f"{switch}/vendor": "0x10de\n", f"{switch}/class": "0x068000\n", f"{switch}/device": "0x22a3\n"}
    files["/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"] = "performance\n"
    files["/sys/devices/system/node/possible"] = "0-1\n"
    return {
        "files": files,
        "links": {
            f"/sys/bus/pci/devices/0000:0{number}:00.0/driver": "/sys/bus/pci/drivers/nvidia" for number in range(GPUS)
        },
        "path": {
            "nvidia-smi": (EMULATED / "nvidia-smi").read_text(),
            "ib_write_bw": (EMULATED / "ib_write_bw").read_text(),
            "nv-fabricmanager": f"#!/bin/sh\necho 'Fabric Manager version is : {DRIVER}'\n",
            "systemctl": SYSTEMCTL,
        },
        "setup": "mount -t tmpfs none /proc/driver; mkdir -p /proc/driver/nvidia\n"
        f"echo 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build' "
        ">/proc/driver/nvidia/version\n",
        "sysctl": {"kernel.numa_balancing": 0},
        "limits": {"memlock": [-1, -1]} if CAN_LOCK_ALL else {},
    }


def gpu_fleet(count: int, *, name: str = "sb") -> dict[str, Overrides]:
    """Overrides for ``count`` healthy hosts, each with addresses of its own."""
    return {f"{name}{index + 1:04d}": gpu_host(index) for index in range(count)}
