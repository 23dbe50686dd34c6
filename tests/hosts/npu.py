"""Overrides that make a test host look like one with Ascend NPUs; no NPU, driver or CANN is involved.

The tools are shell scripts (`emulated/hccn_tool`, `emulated/npu-smi`) that read the state directory /run/npu on the
host; their heads list every file of it. A test breaks a healthy host by writing one of them:

    fleet = make_fleet(4, npu_fleet("A2", 4))
    with fleet.broken("sb0002", files={"/run/npu/3/link": "DOWN\\n"}):
        ...

What the tools print, where files lie and what healthy addresses look like is taken from the project's fact sheet on
Ascend (sections 1, 2, 3, 6, 7 and 9), which says for every fact where it was read.
"""

from __future__ import annotations

import base64
import functools
import pathlib
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tests.hosts.testbed import Overrides, merge

Family = Literal["A1", "A2", "A3", "A5"]
Process = tuple[int, str, int]
"""What runs on an NPU: pid, name ("-": the tool cannot tell) and megabytes."""

EMULATED = pathlib.Path(__file__).with_name("emulated")
STATE = "/run/npu"
HCCN_TOOL = "/usr/local/Ascend/driver/tools/hccn_tool"
NPU_SMI = "/usr/local/bin/npu-smi"
LOCK = "/usr/local/lib/emulated-lock"
BARE = ("-DBARE", "-nostdlib", "-nostartfiles", "-s", "-Wl,-z,noseparate-code", "-Wl,--build-id=none")
GROUP = "HwHiAiUser"
GID = 1990
DEVICES: dict[str, int] = {"A1": 8, "A2": 8, "A3": 16, "A5": 8}
CHIPS: dict[str, str] = {
    "A1": "910B",
    "A2": "910B1",
    "A3": "Ascend910",
    "A5": "Ascend950DT",
}  # "910B" is the first generation: a trap
PCI_IDS: dict[str, str] = {"A1": "0xd801", "A2": "0xd802", "A3": "0xd803", "A5": "0xd806"}
A3_BUSES = ["9d", "9f", "99", "9b", "95", "97", "91", "93", "8d", "8f", "89", "8b", "85", "87", "81", "83"]
BUSES = ["c1", "c2", "81", "82", "01", "02", "41", "42", "c3", "c4", "83", "84", "03", "04", "43", "44"]


def npu_host(
    family: Family = "A2",
    host_index: int = 0,
    *,
    devices: int | None = None,
    chip: str = "",
    driver: str = "25.5.2",
    firmware: str = "7.1.0.11.220",
    firmware_range: str = "[7.0.0,8.9.9]",
    cann: str = "8.1.RC1",
    roce: bool | None = None,
    super_pod: int | None = 0,
    server_index: int | None = None,
    processes: Mapping[int, Sequence[Process]] | None = None,
) -> Overrides:
    """A healthy host with NPUs.

    devices: A2 takes 16 for the Box16 machine. host_index: makes addresses unique over the fleet (0 to 125).
    firmware_range: what the driver says it goes with. cann: "" is no CANN; from 8.5 it lies in another place.
    roce: the devices have addresses, a gateway and links; by default all but A3, which inside one super pod needs
    none. super_pod, server_index: A3; None is no super pod; the server index is the host's if not given.
    processes: by device.
    """
    count = devices or DEVICES[family]
    chip = chip or CHIPS[family]
    roce = family not in ("A3", "A5") if roce is None else roce
    state: dict[str, str] = {"family": family, "count": str(count), "host_index": str(host_index), "chip": chip}
    state |= {"driver": driver, "firmware": firmware}
    if family == "A3" and super_pod is not None:
        state |= {"super_pod_id": str(super_pod), "super_pod_size": "384"}
        state["server_index"] = str(host_index if server_index is None else server_index)
    conf = []
    for device in range(count):
        state[f"{device}/bus"] = bus_id(family, device).upper()
        if roce:
            running = device_network(family, host_index, device)
            state |= {f"{device}/{key}": value for key, value in running.items()}
            saved = {"address": running["ip"], **{k: v for k, v in running.items() if k != "ip"}}
            saved["send_arp_status"] = "1"
            conf += [f"{key}_{device}={value}" for key, value in saved.items()]
        elif family != "A5":
            state[f"{device}/link"] = "DOWN"
        if processes and device in processes:
            state[f"{device}/processes"] = "\n".join(f"{pid} {name} {mb}" for pid, name, mb in processes[device])
    files: dict[str, Any] = {f"{STATE}/{name}": f"{text}\n" for name, text in state.items()}
    for name in "calls", "lock":  # an ordinary user's calls are noted and take the lock too
        files[f"{STATE}/{name}"] = {"text": "", "mode": "666"}
    files[LOCK] = {"base64": lock_program(), "mode": "755"}
    files[HCCN_TOOL] = {"text": (EMULATED / "hccn_tool").read_text(), "mode": "755"}
    files[NPU_SMI] = {"text": (EMULATED / "npu-smi").read_text(), "mode": "755"}
    files["/etc/hccn.conf"] = "".join(f"{line}\n" for line in conf)
    for device in range(count):
        pci = f"/sys/bus/pci/devices/{bus_id(family, device)}"
        files |= {f"{pci}/vendor": "0x19e5\n", f"{pci}/device": f"{PCI_IDS[family]}\n", f"{pci}/class": "0x120000\n"}
        if family == "A2":  # PCIe 4.0 with 16 lanes (Atlas 300T A2, specifications)
            for end in ("current", "max"):
                files |= {f"{pci}/{end}_link_width": "16\n", f"{pci}/{end}_link_speed": "16.0 GT/s PCIe\n"}
    names = [f"davinci{device}" for device in range(count)] + ["davinci_manager", "devmm_svm", "hisi_hdc"]
    base: Overrides = {
        "share": STATE,
        "groups": {GROUP: GID},
        "users": {GROUP: {"uid": GID, "gid": GID, "shell": "/usr/sbin/nologin", "key": False}},
        "devices": dict.fromkeys(names, f"660 {GROUP}:{GROUP}"),
        "files": files,
    }
    return merge(base, driver_package(driver, firmware, firmware_range), cann_package(cann) if cann else {})


@functools.cache
def lock_program() -> str:
    """The compiled `emulated/lock.c`, in base64."""
    options = ("-O2", "-static", *(BARE if platform.machine() == "x86_64" else ()))
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder, "lock")
        subprocess.run(["cc", *options, "-o", program, EMULATED / "lock.c"], check=True)
        return base64.b64encode(program.read_bytes()).decode()


def npu_fleet(family: Family, count: int, *, name: str = "sb", **options: Any) -> dict[str, Overrides]:
    """Overrides for ``count`` healthy hosts of one family, each with addresses of its own; options as `npu_host`."""
    return {f"{name}{i + 1:04d}": npu_host(family, i, **options) for i in range(count)}


def bus_id(family: Family, device: int) -> str:
    return f"0000:{(A3_BUSES if family == 'A3' else BUSES)[device]}:00.0"


def device_network(family: Family, host_index: int, device: int) -> dict[str, str]:
    """A device's healthy address by the rules for its family: ip, netmask, netdetect and, but for A1, gateway.

    A1: devices 0/4, 1/5, 2/6, 3/7 share a segment and detect one another; the segments are the same on all hosts.
    A2, A3: one /16 for all, whose gateway is detected.
    """
    if family == "A1":
        addresses = [f"10.0.{plane}.{2 * host_index + half + 1}" for half in (0, 1) for plane in range(4)]
        peer = addresses[(device + 4) % 8]
        return {"ip": addresses[device], "netmask": "255.255.255.0", "netdetect": peer}
    address = f"29.1.{host_index + 101}.{device + 200}"
    return {"ip": address, "netmask": "255.255.0.0", "netdetect": "29.1.0.1", "gateway": "29.1.0.1"}


def driver_package(driver: str, firmware: str, firmware_range: str = "[7.0.0,8.9.9]") -> Overrides:
    """The files that the driver and firmware packages leave; the libraries are empty."""
    version = f"""\
Version={driver}
ascendhal_version=7.35.23
aicpu_version=1.0
tdt_version=1.0
log_version=1.0
prof_version=2.0
dvppkernels_version=1.1
tsfw_version=1.0
package_version=
Innerversion=V100R001C23B888
compatible_version_fw={firmware_range}
compatible_version=[V100R001C15],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21],[V100R001C23]
"""
    installed = f"""\
UserName={GROUP}
UserGroup={GROUP}
Driver_Install_Type=full
Driver_Install_Path_Param=/usr/local/Ascend
Driver_Install_For_All=no
Driver_Install_Mode=normal
Driver_Install_Status=complete
Firmware_Install_Type=full
Firmware_Install_Path_Param=/usr/local/Ascend
"""
    return {
        "files": {
            "/usr/local/Ascend/driver/version.info": version,
            "/usr/local/Ascend/firmware/version.info": f"Version={firmware}\nfirmware_version=1.0\n",
            "/etc/ascend_install.info": installed,
            "/usr/local/Ascend/driver/lib64/driver/libascend_hal.so": "",
            "/usr/local/dcmi/libdcmi.so": "",
        }
    }


def cann_package(version: str) -> Overrides:
    """The files of a CANN toolkit that tell its version, and its set_env.sh; the libraries are empty."""
    machine = f"{platform.machine()}-linux"
    new = [int(part) for part in version.split(".")[:2] if part.isdecimal()] >= [8, 5]
    place = "/usr/local/Ascend" if new else "/usr/local/Ascend/ascend-toolkit"
    home = f"{place}/cann-{version}" if new else f"{place}/{version}"
    entry = f"{place}/cann" if new else f"{place}/latest"
    env = f"{entry}/set_env.sh" if new else f"{place}/set_env.sh"
    info = f"""\
package_name=Ascend-cann-toolkit
version={version}
innerversion=V100R001C21SPC001B238
compatible_version=[V100R001C15],[V100R001C18],[V100R001C19],[V100R001C20],[V100R001C21]
arch={platform.machine()}
os=linux
path={home}/{machine}
"""
    parts = ["runtime", "compiler", "hccl", "opp", "toolkit", "aoe", "ncs", "opp_kernel"]
    cfg = ["# version: 1.0"]
    for which in "running", "upgrade", "installed":
        cfg += [f"{part}_{which}_version=[7.6.0.1.220:{version}]" for part in parts]
    # The first line is the trap that the real script is known for: where the key is missing, it ends a caller that has
    # said `set -e`.
    set_env = f"""\
grep -i driver_install_path_param /etc/ascend_install.info >/dev/null
export ASCEND_TOOLKIT_HOME={entry}
export ASCEND_HOME_PATH={entry}
export ASCEND_OPP_PATH={entry}/opp
export ASCEND_AICPU_PATH={entry}
export PATH={entry}/bin:$PATH
export LD_LIBRARY_PATH={entry}/lib64:/usr/local/Ascend/driver/lib64/driver:$LD_LIBRARY_PATH
"""
    files: dict[str, Any] = {
        f"{home}/{machine}/ascend_toolkit_install.info": info,
        f"{home}/version.cfg": "\n".join(cfg) + "\n",
        f"{home}/lib64/libhccl.so": "",
        f"{home}/lib64/libascendcl.so": "",
        f"{home}/opp/version.info": f"Version={version}\n",
        env.replace(entry, home): set_env,
    }
    if new:
        files[f"{home}/share/info/hccl/version.info"] = f"Version={version}\n"
    return {"files": files, "links": {entry: home}}


def job_python(
    torch: str = "2.5.1",
    torch_npu: str = "2.5.1",
    *,
    cann: str = "8.1.RC1",
    prefix: str = "/opt/job",
    **others: str,
) -> Overrides:
    """A virtual environment whose ``bin/python3`` has a torch and a torch_npu that can be imported, and do nothing.

    They fail as the real ones do: torch_npu without CANN's environment or the driver's library; torch itself when
    it loads torch_npu by itself (from 2.5 on) and that fails. "" leaves a package out. others: more distributions,
    by name, that have a version and an empty module (numpy="1.26.4").
    """
    interpreter = pathlib.Path("/usr/bin/python3")
    version = interpreter.resolve().name.removeprefix("python")
    site = f"{prefix}/lib/python{version}/site-packages"
    files: dict[str, Any] = {f"{prefix}/pyvenv.cfg": f"home = /usr/bin\nversion = {version}\n"}
    for name, number in {"torch": torch, "torch_npu": torch_npu, **others}.items():
        if number:
            dist = f"{site}/{name}-{number}.dist-info"
            files[f"{dist}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n"
            files[f"{dist}/RECORD"] = ""
            files[f"{site}/{name}/__init__.py"] = f'__version__ = "{number}"\n'
    if torch:
        modern = [int(part) for part in torch.split("+", 1)[0].split(".")[:2]] >= [2, 5]
        files[f"{site}/torch/__init__.py"] = FAKE_TORCH.format(version=torch, modern=modern)
        files[f"{site}/torch/version.py"] = f'__version__ = "{torch}"\ncann = "{cann}"\ncuda = None\n'
    if torch_npu:
        files[f"{site}/torch_npu/__init__.py"] = FAKE_TORCH_NPU.format(version=torch_npu)
    return {"files": files, "links": {f"{prefix}/bin/python3": str(interpreter), f"{prefix}/bin/python": "python3"}}


FAKE_TORCH = '''\
"""Emulated torch for test hosts: it can be imported and knows its version."""
import importlib.util
import os

from torch import version

__version__ = "{version}"
AUTOLOADS = {modern}


def autoload():
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "0" or not importlib.util.find_spec("torch_npu"):
        return
    try:
        import torch_npu
    except Exception as error:
        raise RuntimeError(
            "Failed to load the backend extension: torch_npu. "
            "You can disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0."
        ) from error


if AUTOLOADS:
    autoload()
'''

FAKE_TORCH_NPU = '''\
"""Emulated torch_npu for test hosts: it counts device files, and fails to load for the reasons of the real one."""
import glob
import os
import types

import torch

__version__ = "{version}"

ADVICE = "Please run 'source set_env.sh' in the CANN installation path."


def find(library, places, advice):
    if not any(os.path.exists(os.path.join(place, library)) for place in places if place):
        raise ImportError(library + ": cannot open shared object file: No such file or directory" + advice)


places = os.environ.get("LD_LIBRARY_PATH", "").split(":")
package = "compiler" if "ASCEND_OPP_PATH" in os.environ else "cann"
find("libhccl.so", places, ". Please check that the " + package + " package is installed. " + ADVICE)
find("libascend_hal.so", places, "")


def device_count():
    count = len(glob.glob("/dev/davinci[0-9]*"))
    if "ASCEND_RT_VISIBLE_DEVICES" not in os.environ:
        return count
    seen = []
    for word in os.environ["ASCEND_RT_VISIBLE_DEVICES"].split(","):
        if not word.isdigit() or int(word) >= count:
            break
        seen.append(int(word))
    return len(seen) if seen == sorted(set(seen)) else 0


torch.npu = types.SimpleNamespace(device_count=device_count, is_available=lambda: device_count() > 0)
'''
