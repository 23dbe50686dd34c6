"""Everything that hosts of one kind have alike: sysctls, packages, environment, firmware, kernel modules."""

from __future__ import annotations

import os
import re
import zlib

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, ask
from doctor.remote.runtime.reading import read_text

CATEGORIES = ("sysctl", "packages", "environment", "firmware", "modules")
FILES = "files"
"""A category that each host has for itself."""
SETTING_FILES = (
    "/etc/hosts", "/etc/hosts.*", "/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/host.conf", "/etc/gai.conf",
    "/etc/hccn.conf", "/etc/nccl.conf", "/etc/ascend_*.info", "/usr/local/Ascend/*/latest", "/usr/local/Ascend/latest",
    "/etc/environment", "/etc/profile", "/etc/profile.d/*", "/etc/bash*rc", "/etc/localtime", "/etc/timezone",
    "/etc/fstab", "/etc/exports", "/etc/nfs*.conf", "/etc/auto.*", "/etc/lustre.conf", "/etc/idmapd.conf",
    "/etc/security/limits.conf", "/etc/security/limits.d/*", "/etc/pam.d/*", "/etc/systemd/*.conf",
    "/etc/systemd/system/*.d/*.conf", "/etc/ssh/ssh*_config", "/etc/ssh/ssh*_config.d/*", "/etc/chrony*.conf",
    "/etc/chrony/*.conf", "/etc/chrony/*.d/*", "/etc/ntp*.conf", "/etc/ntp*/ntp.conf", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d/*", "/etc/ld.so.preload", "/etc/modprobe.d/*", "/etc/modules-load.d/*", "/etc/udev/rules.d/*",
    "/etc/rdma/*", "/etc/rdma/modules/*", "/etc/libibverbs.d/*", "/etc/netplan/*", "/etc/network/interfaces",
    "/etc/network/interfaces.d/*", "/etc/sysconfig/network-scripts/*", "/etc/nftables.conf", "/etc/iptables/*",
    "/etc/sysconfig/*tables", "/etc/ufw/*.rules", "/etc/firewalld/zones/*", "/etc/docker/daemon.json",
    "/etc/containerd/config.toml", "/etc/nvidia-container-runtime/config.toml", "/etc/slurm*/*.conf",
    "/etc/enroot/*.conf", "/etc/openmpi/*.conf", "/etc/tuned/active_profile", "/etc/selinux/config",
    "/etc/sysctl.conf", "/etc/sysctl.d/*", "/etc/crontab", "/etc/cron.d/*", "/etc/rc.local",
    "/etc/systemd/system/*.wants/*", "/etc/default/grub",
)  # fmt: skip
"""Files, and links, that settings of a host come from."""
MOST_FILES, MOST_BYTES = 1000, 1 << 20


CHANGING_SYSCTLS = (
    "fs/(dentry|inode|file-nr|aio-nr|quota|binfmt)|kernel/(random/|ns_last|pty/nr|hostname|domainname|keys|sched_domain"
    "|perf_event_max|tainted|bootloader|hung_task_warnings)|net/ipv[46]/(conf|neigh)/(?!all|default)|user/max_inotify"
    "|(?<!max_map_)count$|/stat_|flush|sunrpc|net/mptcp|key$|secret|nf_log"
)
"""Paths of what changes by itself or names the host."""
VARIABLES = (
    "(NCCL|RCCL|HCCL|LCCL|LCAL|GLOO|UCX|UCC|SHARP|OFI|FI|PSM[23]|IBV|RDMAV|MLX5|NVSHMEM|CUDA|CUBLAS|CUDNN|CUFILE|NVML"
    "|NVIDIA|HIP|HIPBLAS|ROCBLAS|MIOPEN|HSA|ROCR?|ROCM|ASCEND|ASDOPS|ACL|ATB|NPU|TORCH(?:INDUCTOR|DYNAMO)?|C10D|PET"
    "|PYTORCH|KINETO|TRITON|XLA|JAX|TF|MS|MINDSPORE|DEEPSPEED|DS|ACCELERATE|FSDP|MEGATRON|TE|NVTE|VLLM|SGLANG|RAY|HF"
    "|TRANSFORMERS|OMP|GOMP|KMP|MKL|OPENBLAS|NUMEXPR|OMPI_MCA|PRTE_MCA|PMIX_MCA|I_MPI|MPICH|MALLOC|PIP|UV)_"
    r"|PYTHON[A-Z]+$|LD_\w+$|(https?|no|all)_proxy$|(HTTPS?|NO|ALL)_PROXY$|PATH$|SHELL$|VIRTUAL_ENV$"
    "|CONDA_(DEFAULT_ENV|PREFIX)$|TZ$|LANG$|LC_ALL$|TMPDIR$|XDG_CACHE_HOME$|GLIBC_TUNABLES$|C(C|XX|UDAHOSTCXX)$"
)
"""Beginnings of variables' names that libraries of a training, or its build, read; or whole names."""
MODULES = r"((?:nvidia|nv_peer|gdrdrv|amdgpu|drv_|mlx|ib_|rdma_|irdma|bnxt|efa|hns|knem|xpmem)\w*) "
"""Lines of /proc/modules of kernel modules that do not come and go by themselves: those without a version, too."""
DMI = "/sys/class/dmi/id/"
SECRETS = "PASS|SECRET|TOKEN|CREDENTIAL|KEY"


def read_setting(path: str) -> str:
    """The content of a small file on one line; empty where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        return _excerpt(" ".join(os.read(fd, 4096).decode("utf-8", "replace").split()), 200)
    except OSError:
        return ""
    finally:
        os.close(fd)


def _excerpt(text: str, limit: int) -> str:
    """As `doctor.engine.sanitize.comparable_excerpt`."""
    if len(text) <= limit:
        return text
    checksum = zlib.crc32(text.encode("utf-8", "replace"))
    return "%s... (%d characters, CRC-32 %08x)" % (text[:limit], len(text), checksum)  # noqa: UP031


def _packages() -> dict[str, str]:
    """The versions of all packages of the distribution."""
    import subprocess

    packages: dict[str, str] = {}
    form = ["-f", "${Package} ${Version}\\n"]
    for command in (["dpkg-query", "-W", *form], ["rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n"]):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=25)  # noqa: UP022
        except (OSError, subprocess.TimeoutExpired):
            continue
        for line in done.stdout.decode("utf-8", "replace").splitlines()[:8000]:
            name, _, version = line.partition(" ")
            if version.strip():
                packages[name] = version.strip()[:100]
    return packages


def read_file_states(patterns: tuple[str, ...], follows: bool) -> dict[str, str]:
    """By path, where a link leads, else size and checksum of the content. ``follows``: of a link's content, too."""
    import glob

    files: dict[str, str] = {}
    named = [os.path.expandvars(os.path.expanduser(pattern)) for pattern in patterns]
    for path in [path for pattern in named for path in sorted(glob.glob(pattern))][:MOST_FILES]:
        target = ""
        try:
            if os.path.islink(path):
                target = files[path] = os.readlink(path)
                if not follows:
                    continue
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            data = os.read(fd, MOST_BYTES)
            state = "%d bytes, CRC-32 %08x" % (os.fstat(fd).st_size, zlib.crc32(data))  # noqa: UP031
            files[path] = target + ", " + state if target else state
        except OSError:
            pass
        finally:
            os.close(fd)
    return files


def read_snapshot(arguments: ProbeArguments) -> dict[str, dict[str, str]]:
    """Runs on the host: by category, values by name; what changes by itself or names the host is left out."""
    import glob

    sysctl: dict[str, str] = {}
    for folder, _, names in os.walk("/proc/sys"):
        for name in names:
            path = os.path.join(folder, name)
            if len(sysctl) < 4000 and not re.search(CHANGING_SYSCTLS, path):
                sysctl[path[10:].replace("/", ".")] = read_setting(path)
    environment = {
        name: _excerpt(re.sub("//[^/@ ]*@", "//", value), 2000)
        for name, value in sorted(os.environ.items())[:1000]
        if re.match(VARIABLES, name) and not re.search(SECRETS, name)
    }
    firmware = {name: read_setting(DMI + name) for name in ("product_name", "bios_version", "bios_date")}
    for path in sorted(glob.glob("/sys/class/infiniband/*/fw_ver") + glob.glob("/sys/class/nvme/*/firmware_rev"))[:256]:
        firmware[" ".join(path.split("/")[3:5])] = read_setting(path)
    modules = dict.fromkeys(re.findall("(?m)^" + MODULES, read_text("/proc/modules", 1 << 20))[:1000], "loaded")
    versions = sorted(glob.glob("/sys/module/*/version"))[:1000]
    modules.update({path.split("/")[3]: read_setting(path) for path in versions})
    snapshot = {
        "sysctl": sysctl,
        "packages": _packages(),
        "environment": environment,
        FILES: read_file_states(SETTING_FILES, False),
    }
    snapshot.update(firmware={name: value for name, value in firmware.items() if value}, modules=modules)
    return snapshot


class HostSnapshot(Fact, frozen=True):
    """All settings and versions of a host that can be compared with those of other hosts.

    Raw output, as JSON::

        {"sysctl": {"vm.swappiness": "60"}, "packages": {"rdma-core": "39.0-1"}, "environment": {"NCCL_DEBUG": "WARN"},
         "firmware": {"bios_version": "2.1"}, "modules": {"mlx5_core": "24.10-1.1.4"},
         "files": {"/etc/hosts": "221 bytes, CRC-32 5a1c9e07", "/etc/localtime": "/usr/share/zoneinfo/Etc/UTC"}}
    """

    probe = ask(read_snapshot, timeout=50)

    values: dict[str, dict[str, str]]
    """By category, then by name."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HostSnapshot:
        values = msgspec.convert(answer.json(), dict[str, dict[str, str]])
        kept = {FILES: values[FILES]} if FILES in values else {}
        return cls(values={**{category: values.get(category, {}) for category in CATEGORIES}, **kept})
