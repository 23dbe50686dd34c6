"""Healthy hosts of many products, as overrides for test hosts: seeded choices for fleets that mix them.

What nvidia-smi reports of a product comes from `tests/facts/recorded/nvidia_smi_reports.json`, or is the element of
`tests.hosts.gpu` with what differs; the table of a 310P comes from `tests.facts.npu_transcripts`.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any, NamedTuple

from tests.facts.npu_transcripts import TABLES, text_of
from tests.hosts.gpu import CAN_LOCK_ALL, DRIVER, EMULATED, GPU, RDMA, SYSTEMCTL
from tests.hosts.npu import DEVICES, Family, npu_host
from tests.hosts.testbed import Overrides, merge

RECORDED = Path(__file__).parents[1] / "facts" / "recorded" / "nvidia_smi_reports.json"
NPUS: dict[str, dict[str, Any]] = {
    "A1 driver 21": {"family": "A1", "driver": "21.0.2", "chip": "910A", "cann": "6.0.1"},
    "A1 driver 22": {"family": "A1", "driver": "22.0.4.1", "cann": "6.0.1"},
    "A1 driver 23": {"family": "A1", "driver": "23.0.3", "chip": "910PremiumA", "cann": "7.0.0"},
    "A2 driver 24": {"family": "A2", "driver": "24.1.0"},
    "A2 driver 25": {"family": "A2", "driver": "25.5.2", "chip": "910B4"},
    "A2 driver 26": {"family": "A2", "driver": "26.0.rc1", "chip": "910B3", "cann": "8.5.0"},
    "A2 of 16": {"family": "A2", "driver": "25.2.0", "devices": 16},
    "A3 driver 25": {"family": "A3", "driver": "25.5.2"},
    "A3 driver 26": {"family": "A3", "driver": "26.1.0", "cann": "8.5.0"},
    "A5 driver 25": {"family": "A5", "driver": "25.7.rc1", "cann": "8.5.0"},
}
"""Options of `npu_host`."""
REPORTS = {address.rpartition("/")[2]: text for address, text in json.loads(RECORDED.read_text()).items()}
GPUS = {
    "H100": ("", 8),
    "H100 in MIG": ("", 4),
    "A100 in MIG": ("a100-sxm4-v12.xml", 8),
    "A10G": ("a10g.xml", 4),
    "T4": ("tesla-t4.xml", 2),
    "RTX 3090": ("rtx-3090-v12.xml", 2),
    "RTX 4000 Ada": ("rtx-4000-sff-ada-v13.xml", 1),
    "GTX 1070 Ti": ("gtx-1070-ti.xml", 1),
    "GB10": ("", 1),
}
"""The recorded report of a product, and how many a host has."""
KERNELS = {
    "ubuntu": "5.15.0-1053-nvidia",
    "openEuler": "5.10.0-216.0.0.115.oe2203sp4.aarch64",
    "kylin": "4.19.90-52.22.v2207.ky10.aarch64",
    "rocky": "5.14.0-503.14.1.el9_5.x86_64",
    "debian": "6.1.0-28-amd64",
}
SPEEDS = ("1000", "10000", "25000", "100000", "-1")
PARTS: dict[str, tuple[Family, tuple[int, ...]]] = {
    "part of A1": ("A1", (4, 5)),
    "part of A2": ("A2", (4, 5)),
    "part of A3": ("A3", (6, 7, 8, 9)),
}
"""Containers with some of the host's NPUs: the family, and their numbers."""
CARDS = ("none", "RoCE", "InfiniBand", "HiSilicon RoCE", "bonded RoCE")


class Product(NamedTuple):
    """What a healthy host is."""

    accelerator: str
    """A key of `NPUS`, `GPUS` or `PARTS`, "310P", or "" for none."""
    rdma: str
    """One of `CARDS`."""
    distribution: str
    """A key of `KERNELS`."""
    speed: str
    """Of the host's own network card, Mbit/s; "-1" as virtual cards show."""


def choose_product(choose: random.Random) -> Product:
    """One product."""
    accelerator = choose.choice([*NPUS, *NPUS, *GPUS, *GPUS, *PARTS, "310P", "", ""])
    rdma = "none" if accelerator in (*NPUS, *PARTS, "310P") else choose.choice(CARDS)
    return Product(accelerator, rdma, choose.choice(list(KERNELS)), choose.choice(SPEEDS))


def npu_family(product: Product) -> str:
    """A1 to A5, or 310P; empty without NPUs."""
    if product.accelerator in PARTS:
        return PARTS[product.accelerator][0]
    own_options = {"310P": "310P"} | {name: str(options["family"]) for name, options in NPUS.items()}
    return own_options.get(product.accelerator, "")


def product_host(product: Product, index: int) -> Overrides:
    """A healthy host of the product. ``index`` makes its addresses unique over the fleet."""
    if product.accelerator in NPUS:
        own_options = npu_host(host_index=index, **NPUS[product.accelerator])
    elif product.accelerator in GPUS:
        own_options = _gpus(product.accelerator)
    elif product.accelerator == "310P":
        own_options = _inference()
    else:
        own_options = _container(product.accelerator, index) if product.accelerator else {}
    return merge(own_options, _adapters(product.rdma, index), _system(product))


def _system(product: Product) -> Overrides:
    card = "/sys/class/net/enp1s0"
    files = {
        "/etc/os-release": f'NAME="{product.distribution}"\nID={product.distribution.lower()}\n',
        f"{card}/operstate": "up\n",
        f"{card}/device/net/enp1s0/speed": f"{product.speed}\n",
        f"{card}/device/net/enp1s0/duplex": "unknown\n" if product.speed == "-1" else "full\n",
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance\n",
    }
    return {"files": files, "sysctl": {"kernel.osrelease": KERNELS[product.distribution], "kernel.numa_balancing": 0}}


def _container(accelerator: str, index: int) -> Overrides:
    """All NPUs are on the bus; device files and npu-smi are those of the container's own."""
    family, numbers = PARTS[accelerator]
    own_options = npu_host(family, index)
    for device in set(range(DEVICES[family])) - set(numbers):
        del own_options["devices"][f"davinci{device}"]
        own_options["files"][f"/run/npu/{device}/elsewhere"] = ""
    own_options["files"]["/.dockerenv"] = ""
    return own_options


def _inference() -> Overrides:
    """Two 310P cards, numbered by their slots: no HBM, no network, no hccn_tool, and few queries."""
    table = next(table for table in TABLES if table.source == "4750576588")
    (card,) = table.cards
    second = card._replace(npu=32, device=1, bus="0000:05:00.0")
    mapping = (
        "\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name\n"
    )
    mapping += "".join(
        f"\t{npu:<31}0                              {logic:<31}Ascend 310P3\n"
        f"\t{npu:<31}1                              -                              Mcu\n"
        for logic, npu in enumerate((card.npu, 32))
    )
    listed = f"\tTotal Count                    : 2\n\n\tNPU ID                         : {card.npu}\n"
    listed += "\tChip Count                     : 1\n\n\tNPU ID                         : 32\n"
    listed += "\tChip Count                     : 1\n\n"
    health = "\tHealth Status                  : OK\n\tError Code                     : NA\n"
    health += "\tError Information              : NA\n"
    errors = "".join(f"\tDDR {name:<36} : 0\n" for name in ("Single Bit Error Count", "Double Bit Error Count"))
    tool = """#!/bin/sh
# EMULATED npu-smi of a host with 310P cards: a table that a real one printed, and another card beside.
at=/run/npu-smi
case "$*" in
info) cat $at/table ;;
"info -m") cat $at/map ;;
"info -l") cat $at/list ;;
"info -t health"*) cat $at/health; case "$*" in *-c*) ;; *) printf '\\t%-30s : 0\\n' 'Chip ID' ;; esac ;;
"info -t ecc"*) cat $at/ecc; printf '\\t%-30s : 0\\n' 'Chip ID' ;;
"info -t "*) echo "This device does not support querying $3."; exit 217 ;;
*) echo "Error parameter of $2"; exit 215 ;;
esac
"""
    own_options = npu_host("A2", 0, devices=2)
    kept = {
        path: text for path, text in own_options["files"].items() if path.startswith(("/usr/local/dcmi", "/etc/ascend"))
    }
    kept |= {
        path: text
        for path, text in own_options["files"].items()
        if re.match(r"/usr/local/Ascend/(driver/(v|lib)|fi)", path)
    }
    for number in range(2):
        pci = f"/sys/bus/pci/devices/0000:0{4 + number}:00.0"
        kept |= {f"{pci}/vendor": "0x19e5\n", f"{pci}/device": "0xd500\n", f"{pci}/class": "0x120000\n"}
    kept |= {
        "/run/npu-smi/table": text_of(table._replace(cards=(card, second))),
        "/run/npu-smi/map": mapping,
        "/run/npu-smi/list": listed,
        "/run/npu-smi/health": health,
        "/run/npu-smi/ecc": errors,
    }
    return {
        "groups": own_options["groups"],
        "users": own_options["users"],
        "devices": own_options["devices"],
        "files": kept,
        "path": {"npu-smi": tool},
    }


def _gpus(accelerator: str) -> Overrides:
    source, count = GPUS[accelerator]
    element = _element(accelerator, source)
    text = REPORTS.get(source, "")
    observed_match = re.search(r"<driver_version>(.*?)</driver_version>", text)
    driver = observed_match[1] if observed_match else DRIVER
    # The open modules, which a careful administrator takes where there are some, export memory as dma-buf.
    module = "Open Kernel Module for x86_64" if int(driver.partition(".")[0]) >= 515 else "x86_64 Kernel Module"
    head = f'<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>{driver}</driver_version>\n'
    head += f"<cuda_version>12.4</cuda_version>\n<attached_gpus>{count}</attached_gpus>\n"
    files: dict[str, Any] = {"/run/gpu/head": head, "/dev/kmsg": "6,1,0,-;Linux version 5.15.0-1053-nvidia\n"}
    is_switched = accelerator[:4] in ("H100", "A100")
    names = [f"GPU{number}" for number in range(count)]
    rows = [
        "\t".join([name, *("X" if name == other else "NV18" if is_switched else "PHB" for other in names), "0-47\t0"])
        for name in names
    ]
    files["/run/gpu/topology"] = "\t".join(["", *names, "CPU Affinity\tNUMA Affinity"]) + "\n" + "\n".join(rows) + "\n"
    for number in range(count):
        pci = f"/sys/bus/pci/devices/0000:{number + 1:02x}:00.0"
        files |= {f"{pci}/vendor": "0x10de\n", f"{pci}/class": "0x030200\n", f"{pci}/device": "0x2330\n"}
        own_options = re.sub(r'<gpu id="[^"]*"', f'<gpu id="00000000:{number + 1:02X}:00.0"', element)
        files[f"/run/gpu/{number}.xml"] = re.sub(r"<uuid>[^<]*", f"<uuid>GPU-{number}", own_options)
        links = {"H100": 18, "A100": 12}.get(accelerator[:4], 0)
        files[f"/run/gpu/links{number}"] = "".join(f"\t Link {link}: 26.562 GB/s\n" for link in range(links))
    path = {"nvidia-smi": (EMULATED / "nvidia-smi").read_text()}
    if is_switched:
        switch = "/sys/bus/pci/devices/0000:0a:00.0"
        files |= {f"{switch}/vendor": "0x10de\n", f"{switch}/class": "0x068000\n", f"{switch}/device": "0x22a3\n"}
        path |= {
            "nv-fabricmanager": f"#!/bin/sh\necho 'Fabric Manager version is : {driver}'\n",
            "systemctl": SYSTEMCTL,
        }
    return {
        "files": files,
        "path": path,
        "setup": "mount -t tmpfs none /proc/driver; mkdir -p /proc/driver/nvidia\n"
        f"echo 'NVRM version: NVIDIA UNIX {module}  {driver}  Fri' >/proc/driver/nvidia/version\n",
    }


def _element(accelerator: str, source: str) -> str:
    """The element of one GPU: persistence on, as a careful administrator has it, and nothing running."""
    text = REPORTS[source] if source else GPU.format(number=0)
    observed_match = re.search(r"<gpu id.*</gpu>", text, re.DOTALL)
    element = observed_match[0] if observed_match else ""
    element = element.replace("<persistence_mode>Disabled", "<persistence_mode>Enabled")
    element = re.sub(r"<processes>.*?</processes>", "<processes></processes>", element, flags=re.DOTALL)
    element = re.sub(r"(<fb_memory_usage>.*?<used>)\d+ MiB", r"\g<1>4 MiB", element, count=1, flags=re.DOTALL)
    if accelerator == "H100 in MIG":
        element = re.sub(r"(current|pending)_mig>Disabled", r"\1_mig>Enabled", element)
    if accelerator == "GB10":
        element = element.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB10").replace("81559 MiB", "N/A")
        element = re.sub(r"<(ecc_errors|remapped_rows|fabric)>.*?</\1>", r"<\1>N/A</\1>", element, flags=re.DOTALL)
        element = re.sub(r"(_power_limit)>[^<]*", r"\1>N/A", element)
        element = re.sub(r"(_link_gen|_link_width)>[^<]*", r"\1>N/A", element)
    return element


def _adapters(sort: str, index: int) -> Overrides:
    """Two RDMA adapters in sysfs, both up."""
    if sort == "none":
        return {}
    files: dict[str, Any] = {}
    is_ethernet = sort != "InfiniBand"
    for number in range(2):
        name = {"HiSilicon RoCE": f"hns_{number}", "bonded RoCE": f"mlx5_bond_{number}"}.get(sort, f"mlx5_{number}")
        interface = f"bond{number}" if sort == "bonded RoCE" else f"eth10{number}" if is_ethernet else f"ib{number}"
        port = f"{RDMA}/{name}/ports/1"
        files |= {
            f"{RDMA}/{name}/hca_type": "" if sort == "HiSilicon RoCE" else "MT4129\n",
            f"{RDMA}/{name}/board_id": "" if sort == "HiSilicon RoCE" else "MT_0000000838\n",
            f"{RDMA}/{name}/fw_ver": "28.39.1002\n",
            f"{RDMA}/{name}/node_guid": f"0c42:a103:0065:{index:02x}{number:02x}\n",
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/phys_state": "5: LinkUp\n",
            f"{port}/rate": {"InfiniBand": "200 Gb/sec (4X HDR)\n", "bonded RoCE": "200 Gb/sec (2X NDR)\n"}.get(
                sort, "100 Gb/sec (4X EDR)\n"
            ),
            f"{port}/link_layer": "Ethernet\n" if is_ethernet else "InfiniBand\n",
            f"{port}/counters/symbol_error": "0\n",
            f"{port}/counters/link_downed": "1\n",
            f"/sys/class/net/{interface}/mtu": "9000\n" if is_ethernet else "2044\n",
        }
        if is_ethernet:
            files[f"{RDMA}/{name}/tc/1/traffic_class"] = "Global tclass=106\n"
            mac = f"fe80:0000:0000:0000:0e42:a1ff:fe65:{index:02x}{number:02x}"
            ipv4 = f"0000:0000:0000:0000:0000:ffff:0a6{number}:{index + 1:04x}"
            table = [(mac, "IB/RoCE v1"), (mac, "RoCE v2"), (ipv4, "IB/RoCE v1"), (ipv4, "RoCE v2")]
        else:
            table = [(f"fe80:0000:0000:0000:0c42:a103:0065:{index:02x}{number:02x}", "IB/RoCE v1")]
        for gid, (address, version) in enumerate(table):
            files[f"{port}/gids/{gid}"] = f"{address}\n"
            files[f"{port}/gid_attrs/types/{gid}"] = f"{version}\n"
            if is_ethernet:
                files[f"{port}/gid_attrs/ndevs/{gid}"] = f"{interface}\n"
    return {"files": files, "limits": {"memlock": [-1, -1]} if CAN_LOCK_ALL else {}}
