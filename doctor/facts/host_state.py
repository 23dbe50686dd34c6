"""What a host and a login on it are set to beyond what any check reads. A new kind is a row of a table."""

from __future__ import annotations

import os
import re

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.texts import filled
from doctor.facts.network import CONTAINER_INTERFACES
from doctor.facts.snapshot import read_file_states, read_setting
from doctor.remote.runtime.reading import matching_paths, read_text

FURTHER_FILES = (
    "/etc/os-release", "/run/systemd/resolve/*.conf", "/run/NetworkManager/resolv.conf", "/run/resolvconf/resolv.conf",
    "/etc/sudoers", "/etc/sudoers.d/*", "/etc/security/[agptn]*.conf", "/etc/pam.conf", "/etc/login.defs",
    "/etc/nologin", "/etc/anacrontab", "/etc/cron.hourly/*", "/etc/cron.daily/*", "/var/spool/cron/*",
    "/var/spool/cron/crontabs/*", "/etc/systemd/user/*", "/etc/kernel/cmdline", "/etc/grub.d/*", "/boot/grub*/grub.cfg",
    "/etc/containerd/conf.d/*", "/etc/containerd/certs.d/*/hosts.toml", "/etc/crio/*.conf", "/etc/crio/crio.conf.d/*",
    "/etc/cdi/*", "/run/cdi/*", "/etc/ascend-docker-runtime.d/*", "/etc/nvidia/*", "/etc/nvidia-mig-manager/*",
    "/etc/iscsi/iscsid.conf", "/etc/ceph/*.conf", "/etc/beegfs/*.conf", "/etc/munge/munge.key", "/etc/audit/rules.d/*",
    "/etc/passwd", "/etc/group", "/etc/subuid", "/etc/subgid", "/etc/krb5.conf",
    "/etc/sssd/sssd.conf", "/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/conda/.condarc", "/etc/ucx/*.conf",
    "/etc/iproute2/rt_tables", "/etc/iproute2/rt_tables.d/*", "/etc/multipath.conf", "/etc/cufile.json",
    "/etc/nvidia-imex/*.cfg", "/usr/share/nvidia/nvswitch/fabricmanager.cfg", "/etc/cgconfig.conf", "/etc/default/*",
    "/etc/systemd/system/*", "/etc/systemd/network/*", "/etc/NetworkManager/*.conf", "/etc/NetworkManager/conf.d/*",
    "/etc/NetworkManager/system-connections/*", "/etc/network/if-*.d/*", "/etc/dhcp/*.conf", "/etc/infiniband/*.conf",
    "/etc/opensm/*.conf", "/etc/cni/net.d/*.conf*", "/var/lib/kubelet/config.yaml", "/etc/containers/*.conf",
    "/etc/apptainer/*.conf", "/etc/singularity/*.conf", "/etc/lmod/*", "/etc/alternatives/python*",
    "/etc/alternatives/c[c+]*", "/etc/alternatives/g[c+][c+]*", "/etc/alternatives/ld", "/etc/alternatives/mpi*",
    "/etc/alternatives/cuda*", "/etc/alternatives/ip*tables*", "/etc/alternatives/nvidia*",
    "~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.bash_aliases", "~/.profile", "~/.zshrc", "~/.zshenv",
    "~/.zprofile", "~/.cshrc", "~/.tcshrc", "~/.ssh/config", "~/.ssh/rc", "~/.ssh/environment",
    "~/.ssh/authorized_keys", "~/.pip/pip.conf", "~/.config/pip/pip.conf", "~/.config/uv/uv.toml", "~/.condarc",
    "~/.gitconfig", "~/.nccl.conf", "~/.deepspeed_env", "~/.openmpi/mca-params.conf", "~/.config/containers/*.conf",
    "~/.cache/huggingface/accelerate/default_config.yaml", "$VIRTUAL_ENV/pyvenv.cfg", "$VIRTUAL_ENV/pip.conf",
    "$CONDA_PREFIX/.condarc", "$CONDA_PREFIX/etc/conda/activate.d/*", "~/.local/bin/*", "/usr/local/sbin/*",
    "/usr/local/bin/*",
)  # fmt: skip
"""Files beside `doctor.facts.snapshot.SETTING_FILES`: of the distribution, of services, and of the user who logs in."""
KERNEL_FILES = (
    "/sys/kernel/mm/transparent_hugepage/defrag", "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
    "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
    "/sys/kernel/mm/lru_gen/enabled", "/sys/kernel/mm/numa/demotion_enabled", "/sys/kernel/security/lockdown",
    "/sys/kernel/iommu_groups/0/type", "/sys/fs/selinux/enforce", "/sys/devices/system/node/online",
    "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/isolated", "/sys/devices/system/cpu/nohz_full",
    "/sys/devices/system/cpu/smt/control", "/sys/devices/system/cpu/vulnerabilities/*",
    "/sys/devices/system/cpu/cpufreq/boost", "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_m*_freq", "/sys/devices/system/cpu/amd_pstate/status",
    "/sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference",
    "/sys/devices/system/cpu/cpuidle/current_*", "/sys/devices/system/cpu/cpu0/cpuidle/state*/disable",
    "/proc/irq/default_smp_affinity", "/proc/driver/nvidia/params",
    "/sys/block/*/queue/scheduler", "/sys/block/*/queue/read_ahead_kb", "/sys/block/*/queue/nr_requests",
    "/sys/block/*/queue/write_cache", "/sys/block/*/queue/max_sectors_kb",
    "/sys/class/net/*/queues/rx-0/rps_cpus", "/sys/class/net/*/threaded", "/sys/class/net/*/gro_flush_timeout",
    "/sys/class/net/*/napi_defer_hard_irqs", "/sys/bus/pci/devices/*/sriov_numvfs",
    "/sys/devices/system/cpu/cpu0/microcode/version", "/proc/sys/net/ipv6/conf/[be-z]*/disable_ipv6",
    "/proc/sys/net/ipv4/conf/[be-z]*/rp_filter", "/proc/sys/net/ipv4/conf/[be-z]*/arp_[afi]*",
    "/sys/class/infiniband/*/board_id", "/sys/class/infiniband/*/node_guid",
    "/sys/class/infiniband/*/ports/*/link_layer",
    "/sys/class/infiniband/*/ports/*/rate", "/sys/class/infiniband/*/ports/*/gid_attrs/types/[0-7]",
    "/sys/module/nvidia*/parameters/*", "/sys/module/amdgpu/parameters/*", "/sys/module/drv_*/parameters/*",
    "/sys/module/mlx*/parameters/*", "/sys/module/ib_*/parameters/*", "/sys/module/rdma*/parameters/*",
    "/sys/module/bnxt*/parameters/*", "/sys/module/ice/parameters/*", "/sys/module/irdma/parameters/*",
    "/sys/module/bonding/parameters/*", "/sys/module/tcp_*/parameters/*", "/sys/module/nvme*/parameters/*",
    "/sys/module/nfs*/parameters/*", "/sys/module/sunrpc/parameters/*", "/sys/module/lnet/parameters/*",
    "/sys/module/ko2iblnd/parameters/*", "/sys/module/ksocklnd/parameters/*", "/sys/module/zswap/parameters/enabled",
    "/sys/module/*idle/parameters/*", "/sys/module/pcie_aspm/parameters/policy",
    "/sys/module/apparmor/parameters/enabled", "/sys/module/overlay/parameters/*", "/sys/module/vfio*/parameters/*",
)  # fmt: skip
"""Small files whose content is one setting each; a zero of an interface or a card is what everybody has."""
DEVICE_FILES = (
    "/dev/davinci*", "/dev/devmm_svm", "/dev/hisi_hdc", "/dev/kfd", "/dev/dri/renderD*", "/dev/infiniband/[ru]*",
    "/dev/null", "/dev/zero", "/dev/urandom",
)  # fmt: skip
"""Files that stand for devices, but for those that the first use of a device makes."""
STATUS_NAMES = (
    ("Umask", "umask"), ("Groups", "groups"), ("CapBnd", "bounding capabilities"), ("Seccomp", "seccomp"),
    ("NoNewPrivs", "no new privileges"), ("Cpus_allowed_list", "CPUs"), ("Mems_allowed_list", "NUMA nodes"),
    ("THP_enabled", "transparent huge pages"), ("Uid", "user"),
)  # fmt: skip
"""Lines of /proc/self/status, and what they are called."""
LOGIN_FILES = (
    ("/proc/self/oom_score_adj", "OOM score"), ("/proc/self/coredump_filter", "core dump filter"),
    ("/proc/self/timerslack_ns", "timer slack"), ("/proc/self/personality", "personality"),
)  # fmt: skip
MAX_ROWS = 4096
STATE_CATEGORIES = ("login", "kernel", "files", "interfaces", "devices")


def _login() -> dict:  # type: ignore[type-arg]
    """What each process of a new login has from it."""
    lines = [line.partition(":") for line in read_text("/proc/self/status", 65536).splitlines()]
    status = {key: " ".join(value.split()) for key, _, value in lines}
    values = {name: status[key] for key, name in STATUS_NAMES if key in status}
    values.update({name: read_setting(path) for path, name in LOGIN_FILES})
    values["nice"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    values["scheduler"] = str(os.sched_getscheduler(0))
    values["home"] = os.path.expanduser("~")
    folders = [path for path in ("/tmp", "/dev/shm", values["home"]) if os.path.isdir(path)]
    values.update({"mode of " + path: oct(os.stat(path).st_mode)[-4:] for path in folders})
    return {name: value[:200] for name, value in values.items() if value}


def _kernel() -> dict:  # type: ignore[type-arg]
    import glob

    each = re.compile("/sys/(class/net|bus/pci)/|/proc/sys/net/")
    without = re.compile("/sys/block/(loop|ram|zram|nbd|dm-)")
    values: dict[str, str] = {}
    for pattern in KERNEL_FILES:
        for path in sorted(glob.glob(pattern))[:1000]:
            value = "" if without.match(path) else read_setting(path)
            if value and (value.strip("0, ") or not each.match(path)) and len(values) < MAX_ROWS:
                values[path] = value
    return values


def _devices() -> dict:  # type: ignore[type-arg]
    """Mode and owners of each file of `DEVICE_FILES`."""
    states = {path: os.lstat(path) for pattern in DEVICE_FILES for path in matching_paths(pattern)[:256]}
    return {path: "%o %d %d" % (state.st_mode, state.st_uid, state.st_gid) for path, state in states.items()}  # noqa: UP031


def _address(text: str) -> str:
    """Of 8 hexadecimal digits, as the kernel prints it on this machine."""
    import socket
    import struct

    return socket.inet_ntoa(struct.pack("=I", int(text, 16)))


def _routers() -> list:  # type: ignore[type-arg]
    """IPv4 routes of the main table that have a router, a metric or bounds, or reject: interface, network, these."""
    rows = []
    for line in read_text("/proc/net/route", 1 << 20).splitlines()[1 : MAX_ROWS + 1]:
        fields = line.split()
        if len(fields) < 11 or not re.match("[0-9A-Fa-f]{8} [0-9A-Fa-f]{8}$", " ".join(fields[1:3])):
            continue
        network = "%s/%d" % (_address(fields[1]), bin(int(fields[7], 16)).count("1"))  # noqa: UP031
        values = [("via", "" if fields[2] == "00000000" else _address(fields[2])), ("metric", fields[6])]
        values += [("mtu", fields[8]), ("window", fields[9]), ("irtt", fields[10])]
        values += [("reject", "yes" if fields[0] == "*" else "")]  # blackhole, unreachable or prohibit
        text = " ".join(name + " " + value for name, value in values if value not in ("", "0"))
        if text:
            rows.append([fields[0], network, text])
    return rows


def _neighbours() -> list:  # type: ignore[type-arg]
    """IPv4 neighbours that are fixed (ATF_PERM): interface, address, hardware address."""
    rows = [line.split() for line in read_text("/proc/net/arp", 1 << 20).splitlines()[1:]]
    fixed = [row for row in rows if len(row) == 6 and row[2].startswith("0x") and int(row[2], 16) & 4]
    return [[row[5], row[0], row[3]] for row in fixed[:MAX_ROWS]]


def read_host_state(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: by table its rows."""
    return {
        "login": _login(),
        "kernel": _kernel(),
        "files": read_file_states(FURTHER_FILES, True),
        "routers": _routers(),
        "neighbours": _neighbours(),
        "devices": _devices(),
    }


class HostState(Fact, frozen=True):
    """Settings of a host and of a login on it that no check reads, for the comparison with other times.

    Raw output, as JSON::

        {"login": {"umask": "0022", "CPUs": "0-127", "nice": "0", "OOM score": "0"},
         "kernel": {"/sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline"},
         "files": {"/root/.bashrc": "571 bytes, CRC-32 5a1c9e07",
                   "/etc/os-release": "../usr/lib/os-release, 267 bytes, CRC-32 a01c9e07"},
         "routers": [["eth0", "0.0.0.0/0", "via 10.0.0.1 metric 100"]],
         "neighbours": [["eth0", "10.0.0.9", "02:00:00:00:00:07"]], "devices": {"/dev/davinci0": "20660 0 1990"}}
    """

    probe = ask(read_host_state, timeout=30)

    values: dict[str, dict[str, str]]
    """By category, then by name; interfaces that software of containers makes have none."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HostState:
        raw = msgspec.convert(answer.json(), _Tables)
        routers = _by_name("router to {1}", raw.routers, "{0} {2}")
        neighbours = _by_name("neighbour {1} of {0}", raw.neighbours, "{2}")
        kernel = {name: value for name, value in raw.kernel.items() if not _OF_CONTAINERS.match(name)}
        interfaces = {name: ", ".join(sorted(values)) for name, values in {**routers, **neighbours}.items()}
        devices = {} if raw.devices is None else {"devices": raw.devices}
        return cls({"login": raw.login, "kernel": kernel, "files": raw.files, "interfaces": interfaces, **devices})


class _Tables(msgspec.Struct):
    login: dict[str, str]
    kernel: dict[str, str]
    files: dict[str, str]
    routers: list[tuple[str, str, str]]
    neighbours: list[tuple[str, str, str]]
    devices: dict[str, str] | None = None
    """None: of a run that did not read them."""


_OF_CONTAINERS = re.compile(f"/(?:sys/class/net|proc/sys/net/ipv[46]/conf)/(?:{'|'.join(CONTAINER_INTERFACES)})")


def _by_name(name: str, rows: list[tuple[str, str, str]], value: str) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for row in rows:
        if not row[0].startswith(CONTAINER_INTERFACES):
            named.setdefault(filled(name, *row[:2]), []).append(value.format(*row))
    return named
