"""The container that a process runs in, if in any, and what it was given: devices, mounts, rights.

Sources of what gives a container a device, a file or a limit: vllm-ascend, quick start (``docker run --device ...``,
https://docs.vllm.ai/projects/ascend/en/latest/); MindCluster, Ascend Docker Runtime
(https://www.hiascend.com/document/detail/en/mindcluster/); NVIDIA Container Toolkit (``--gpus``); Kubernetes, device
plugins (``resources.limits``); Apptainer, ``--bind``, ``--nv``; enroot, ``--mount``.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.texts import filled
from doctor.remote.runtime.reading import ENGINE_MARKS, matching_paths, read_text

Engine = Literal["", "docker", "podman", "kubernetes", "apptainer", "enroot", "lxc", "systemd-nspawn", "containerd"]

INITIAL_NAMESPACES = {"cgroup": 4026531835, "pid": 4026531836, "user": 4026531837, "uts": 4026531838, "ipc": 4026531839}
"""Inode numbers of the kernel's first namespaces (Linux, ``include/uapi/linux/nsfs.h`` and ``proc_ns.h``)."""

CAP_IPC_LOCK = 14

FIRST_VIRTUAL_NPU = 100
"""Device files of virtual NPUs are numbered from here: ``/dev/vdavinci100`` on the host (MindCluster, vNPU guide)."""
ALLOTTED_NPUS, REQUESTED_GPUS = "DOCTOR_POD_NPUS", "DOCTOR_POD_GPUS"
"""What the way through the API server tells a pod of itself: numbers of NPUs, and how many GPUs are requested."""

VARIABLES = (
    *("container", "ASCEND_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST"),
    *("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"),
    *(ALLOTTED_NPUS, REQUESTED_GPUS),
)
"""Of the first process, or of this one: what container engines and the runtimes of accelerators set."""
DEVICE_FILES = (
    *("davinci[0-9]*", "davinci_manager", "devmm_svm", "hisi_hdc", "nvidia[0-9]*", "nvidiactl", "nvidia-uvm"),
    "infiniband/uverbs*",
)
"""Under /dev."""


def _mounts() -> dict[str, object]:
    """The type of the root file system, where it and single files come from, and which mounts are read-only."""
    root_type = ""
    sources: list = []  # type: ignore[type-arg]
    read_only: list = []  # type: ignore[type-arg]
    for line in read_text("/proc/self/mountinfo", 1 << 20).splitlines():
        fields = line.split(" ")
        if len(fields) < 10 or "-" not in fields:
            continue
        point, end = fields[4], fields.index("-")
        if point == "/":
            root_type = fields[end + 1]
            sources.append(fields[-1][:1000])
        if point in ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/passwd", "/dev/termination-log"):
            sources.append(fields[3][:300])
        if point in ("/", "/sys", "/proc/sys", "/dev/shm") and "ro" in fields[5].split(","):
            read_only.append(point)
    return {"root": root_type, "sources": sources[:16], "read_only": sorted(set(read_only))}


def _libraries(search_path: str) -> list[str]:
    """Those of the drivers' libraries that the loader finds."""
    libraries = ["/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64", "/usr/lib64"]
    libraries += ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/nvidia/lib64"]
    libraries += search_path.split(":")
    loader = read_text("/etc/ld.so.cache", 1 << 22)
    return [
        name
        for name in ("libascend_hal.so", "libcuda.so.1")
        if name in loader or any(folder and os.path.exists(os.path.join(folder, name)) for folder in libraries)
    ]


def describe_container(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: marks of a container engine, and the devices, mounts, namespaces and rights here."""
    first = dict(pair.split("=", 1) for pair in read_text("/proc/1/environ", 1 << 20).split("\0") if "=" in pair)
    variables = dict(first, **os.environ)
    names = [name for name in ("cgroup", "ipc", "mnt", "pid", "user", "uts") if os.path.exists("/proc/self/ns/" + name)]
    namespaces = {name: os.stat("/proc/self/ns/" + name).st_ino for name in names}
    status = dict(line.split(":", 1) for line in read_text("/proc/self/status").splitlines() if ":" in line)
    paths = [path for pattern in DEVICE_FILES for path in matching_paths("/dev/" + pattern)]
    try:
        named = bool(pwd.getpwuid(os.geteuid()))
    except KeyError:
        named = False
    described = {
        "marks": [path for path in ENGINE_MARKS if os.path.exists(path)],
        "variables": {name: variables[name][:1000] for name in VARIABLES if variables.get(name)},
        "cgroup": read_text("/proc/1/cgroup", 4096),
        "namespaces": namespaces,
        "network_cards": len(matching_paths("/sys/class/net/*/device")),
        "devices": sorted(path[len("/dev/") :] for path in paths)[:512],
        "files": [path for path in ("/etc/hccn.conf", "/etc/ascend_install.info") if os.path.isfile(path)],
        "libraries": _libraries(variables.get("LD_LIBRARY_PATH", "")),
        "capabilities": int(status.get("CapEff", "0").strip() or "0", 16),
        "uid": os.geteuid(),
        "named_user": named,
    }
    return dict(described, **_mounts())


class _Answer(msgspec.Struct, frozen=True):
    """What of `describe_container` is no field of its facts."""

    marks: list[str]
    variables: dict[str, str]
    cgroup: str
    root: str
    sources: list[str]
    namespaces: dict[str, int]


class ContainerView(Fact, frozen=True):
    """What both sides of a container have in common; no fact of its own."""

    engine: Engine
    """Empty where the process runs in no container."""
    mount_namespace: int
    """Inode number; 0 where it cannot be read."""
    namespaces: dict[str, Literal["host", "private"]]
    """By name: cgroup, ipc, pid, user and uts."""
    read_only: tuple[str, ...]
    """Which of /, /sys, /proc/sys and /dev/shm are mounted read-only."""
    network_cards: int
    """Network interfaces with a device behind them: a container with a network of its own has none."""
    devices: tuple[str, ...]
    """Accelerators and RDMA adapters under /dev, such as ``davinci0``, ``nvidia-uvm`` and ``infiniband/uverbs0``."""
    files: tuple[str, ...]
    """Which of /etc/hccn.conf and /etc/ascend_install.info are there."""
    libraries: tuple[str, ...]
    """Which of the drivers' libraries, libascend_hal.so and libcuda.so.1, are found."""
    capabilities: int
    """The effective ones, as a bit mask."""
    uid: int
    named_user: bool
    """The user has an entry in the password database."""
    visible_npus: str = ""
    """ASCEND_VISIBLE_DEVICES of the container."""
    visible_gpus: str = ""
    """NVIDIA_VISIBLE_DEVICES of the container."""
    allotted_npus: tuple[int, ...] = ()
    """Those that the device plugin has written to the pod, virtual ones included; empty where that is not known."""
    requested_gpus: int = 0
    """GPUs that the container requests of Kubernetes; 0 where that is not known."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> ContainerView:
        described = answer.json()
        data = msgspec.convert(described, _Answer)
        namespaces = {
            name: "host" if data.namespaces[name] == number else "private"
            for name, number in INITIAL_NAMESPACES.items()
            if name in data.namespaces
        }
        read = {
            "engine": _engine(data),
            "mount_namespace": data.namespaces.get("mnt", 0),
            "namespaces": namespaces,
            "visible_npus": data.variables.get("ASCEND_VISIBLE_DEVICES", ""),
            "visible_gpus": data.variables.get("NVIDIA_VISIBLE_DEVICES", ""),
            "allotted_npus": parse_visible(data.variables.get(ALLOTTED_NPUS, "")),
            "requested_gpus": next(iter(parse_visible(data.variables.get(REQUESTED_GPUS, ""))), 0),
        }
        return msgspec.convert({**described, **read}, cls)

    @property
    def has_own_network(self) -> bool:
        """It is a container whose network is not that of its host."""
        return bool(self.engine) and not self.network_cards

    @property
    def npus(self) -> tuple[int, ...]:
        return self.numbers("davinci")

    @property
    def gpus(self) -> tuple[int, ...]:
        return self.numbers("nvidia")

    def numbers(self, prefix: str) -> tuple[int, ...]:
        texts = [name.removeprefix(prefix) for name in self.devices if name.startswith(prefix)]
        return tuple(sorted(int(text) for text in texts if re.fullmatch(r"[0-9]{1,6}", text, re.ASCII)))

    def has_capability(self, number: int) -> bool:
        """Whether a process has the right, by its number in capabilities(7)."""
        return bool(self.capabilities >> number & 1)

    @property
    def expected_npus(self) -> tuple[int, ...]:
        """NPUs that ASCEND_VISIBLE_DEVICES names, virtual ones included; empty where it names none by number."""
        return parse_visible(self.visible_npus)


class JobContainer(ContainerView, frozen=True):
    """The container where the job runs, that of ``--within`` if given; without an engine it is the host itself.

    Raw output, as JSON::

        {"marks": ["/.dockerenv"], "variables": {"ASCEND_VISIBLE_DEVICES": "0-1"}, "cgroup": "0::/", "root": "overlay",
         "sources": ["rw,lowerdir=/var/lib/docker/overlay2/l/A"], "namespaces": {"mnt": 4026532261, "pid": 4026532264},
         "read_only": ["/proc/sys"], "network_cards": 0, "files": [],
         "devices": ["davinci0", "davinci1", "davinci_manager"],
         "libraries": ["libascend_hal.so"], "capabilities": 2147747323, "uid": 0, "named_user": true}
    """

    probe = ask(describe_container, job=True)


class HostContainer(ContainerView, frozen=True):
    """The container in which doctor reads the host, if it is one: the SSH server runs in it.

    Raw output, as JSON::

        {"marks": [], "variables": {}, "cgroup": "0::/init.scope", "root": "ext4", "sources": [],
         "namespaces": {"mnt": 4026531841, "pid": 4026531836}, "read_only": [], "network_cards": 2,
         "devices": ["davinci0"],
         "files": ["/etc/hccn.conf"], "libraries": ["libascend_hal.so"], "capabilities": 2199023255551,
         "uid": 0, "named_user": true}
    """

    probe = ask(describe_container)


def is_within(job: ContainerView, host: ContainerView | None) -> bool:
    """The job runs in a container, and ``host`` was read outside of it."""
    return host is not None and bool(job.engine) and job.mount_namespace != host.mount_namespace


def _engine(data: _Answer) -> Engine:
    """Which engine the marks are of. A mark that an image left on a machine, such as /.dockerenv, is none by itself."""
    sources, variables = " ".join(data.sources), data.variables
    isolated = data.root == "overlay" or any(
        data.namespaces.get(name, number) != number for name, number in INITIAL_NAMESPACES.items()
    )
    rules: tuple[tuple[Engine, bool], ...] = (
        ("apptainer", bool({"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"} & set(variables))),
        ("apptainer", "/.singularity.d" in data.marks),
        ("enroot", "enroot" in sources),
        ("kubernetes", "KUBERNETES_SERVICE_HOST" in variables or "/var/run/secrets/kubernetes.io" in data.marks),
        ("kubernetes", "kubepods" in data.cgroup or "/kubelet/pods/" in sources or "/pods/" in sources),
        ("podman", "libpod" in data.cgroup or variables.get("container") == "podman"),
        ("podman", "/run/.containerenv" in data.marks and isolated),
        ("docker", "docker" in data.cgroup or variables.get("container") == "docker" or "/docker/" in sources),
        ("docker", "/.dockerenv" in data.marks and isolated),
        ("containerd", "containerd" in data.cgroup or "crio" in data.cgroup or "/containerd/" in sources),
        ("lxc", "/lxc" in data.cgroup or variables.get("container") == "lxc"),
        ("systemd-nspawn", variables.get("container") == "systemd-nspawn"),
    )
    return next((engine for engine, fits in rules if fits), "")


def parse_visible(text: str) -> tuple[int, ...]:
    """The numbers in ASCEND_VISIBLE_DEVICES; empty for another form, such as ``all`` or none.

    A virtual NPU is called by its template, its own number and that of its chip: MindCluster, ascend-device-plugin,
    pkg/common (``VirDeviceLen``: "like Ascend910-2c-100-1").

    >>> parse_visible("0-2,5"), parse_visible("Ascend910-0,Ascend910-3"), parse_visible("all")
    ((0, 1, 2, 5), (0, 3), ())
    >>> parse_visible("Ascend910-2c-100-1"), parse_visible("Ascend310P-4c.3cpu.ndvpp-101-0")
    ((100,), (101,))
    """
    numbers: set[int] = set()
    for item in filter(None, map(str.strip, text.split(","))):
        span = re.fullmatch(r"([0-9]{1,4})-([0-9]{1,4})", item, re.ASCII)
        single = re.fullmatch(r"(?:Ascend\w+-|npu)?([0-9]{1,4})", item, re.ASCII)
        single = single or re.fullmatch(
            r"Ascend\w{1,16}-[0-9]{1,2}c[\w.]{0,32}-([0-9]{1,4})-[0-9]{1,4}", item, re.ASCII
        )
        if span and int(span[1]) <= int(span[2]):
            numbers.update(range(int(span[1]), int(span[2]) + 1))
        elif single:
            numbers.add(int(single[1]))
        else:
            return ()
    return tuple(sorted(numbers))


NPU_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
"""Device files that every process with an NPU opens, besides ``davinci0`` and on."""

DRIVER_FOLDER = "/usr/local/Ascend/driver"


def device_options(engine: Engine, devices: Sequence[str], kind: str) -> str:
    """How to give a container these files of /dev; ``kind`` is ``npu``, ``gpu`` or ``rdma``."""
    if engine == "kubernetes":
        resources = {"npu": "huawei.com/Ascend910: 8", "gpu": "nvidia.com/gpu: 8", "rdma": "rdma/hca: 1"}
        return filled(
            "under the container's `resources.limits` in the pod (or in the task of a Volcano or "
            "MindCluster job) `{0}`, with the number that it needs; the device plugin then adds the files",
            resources[kind],
        )
    if engine == "apptainer":
        flag = "apptainer exec --nv" if kind == "gpu" else "apptainer exec"
        return f"`{flag} {' '.join(f'--bind /dev/{name}' for name in devices)} IMAGE`"
    if engine == "enroot":
        return filled(
            "`enroot start {0} NAME`, or ENROOT_RESTRICT_DEV=no", " ".join(f"--mount /dev/{name}" for name in devices)
        )
    if kind == "gpu":
        return "`docker run --gpus all`, with the NVIDIA Container Toolkit on the host"
    tool = "podman" if engine == "podman" else "docker"
    return f"`{tool} run {' '.join(f'--device /dev/{name}' for name in devices)} <own options> <image>`"


def mount_options(engine: Engine, paths: Sequence[str]) -> str:
    """How to show a container files or folders of its host, read-only."""
    if engine == "kubernetes":
        return filled(
            "a `hostPath` volume and a `volumeMounts` entry with `readOnly: true` for each of {0} in the "
            "pod (or in the task of a Volcano or MindCluster job)",
            ", ".join(paths),
        )
    if engine == "apptainer":
        return f"`apptainer exec {' '.join(f'--bind {path}:{path}:ro' for path in paths)} IMAGE`"
    if engine == "enroot":
        return f"`enroot start {' '.join(f'--mount {path}:{path}' for path in paths)} NAME`"
    tool = "podman" if engine == "podman" else "docker"
    return f"`{tool} run {' '.join(f'-v {path}:{path}:ro' for path in paths)} <own options> <image>`"
