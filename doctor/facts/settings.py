"""What of a host's facts is a setting or a version: it stays as it is until somebody changes it.

Counters, free space, processes, times and what a host measures are none. One table, by which runs are compared;
and the snapshot of a job's packages and libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from doctor.engine.evaluate import FactCache
from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.texts import filled
from doctor.facts.control_group import ControlGroup
from doctor.facts.firewall import FirewallRules
from doctor.facts.gpu import GpuCards
from doctor.facts.host_settings import HostSettings, NetworkCards
from doctor.facts.interfaces import Interfaces
from doctor.facts.kernel import LiveSettings
from doctor.facts.limits import ResourceLimits
from doctor.facts.memory import HostMemory, SharedMemory
from doctor.facts.mounts import Mount, MountTable
from doctor.facts.nic_rings import NicRings
from doctor.facts.python_env import PythonEnv
from doctor.facts.snapshot import CATEGORIES, FILES, HostSnapshot
from doctor.facts.versions import CannVersion, NpuVersions
from doctor.remote.runtime.processes import run_tool
from doctor.remote.runtime.reading import find_tool

Values = Mapping[str, str]
"""By name."""


LIST_EVERYTHING = r"""
import hashlib, os, sys, time
end, seen, packages, libraries, cut = time.monotonic() + 12, set(), {}, {}, False
HEAD, MOST_FILES = 65536, 4000
NAMES = ("nccl", "nccl-net", "rccl", "hccl", "hccl_alg", "hccl_plf", "ascendcl", "ascend_hal", "runtime", "ge_runner",
    "cuda", "cudart", "cublas", "cudnn", "nvidia-ml", "nvidia-ptxjitcompiler", "mpi", "pmix", "ucp", "uct", "ucs",
    "fabric", "ibverbs", "mlx5", "rdmacm", "psm2", "gloo", "jemalloc", "tcmalloc", "tcmalloc_minimal", "c", "stdc++")
PLACES = ["/usr/lib64", "/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/local/lib",
    "/usr/local/cuda/lib64", "/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64/common"]
def digest(path):
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        size = os.fstat(handle).st_size
        total = hashlib.sha256(str(size).encode())
        for place in sorted(set([0, max(0, size // 2 - HEAD // 2), max(0, size - HEAD)])):
            os.lseek(handle, place, 0)
            total.update(os.read(handle, HEAD))
        return total.hexdigest()[:12]
    except OSError:
        return ""
    finally:
        os.close(handle)
def add(name, path):
    global cut
    real = os.path.realpath(path)
    if real in seen:
        return
    if len(seen) >= MOST_FILES or time.monotonic() > end:
        cut = True
        return
    seen.add(real)
    found = digest(real)
    if found:
        libraries.setdefault(name, []).append(os.path.basename(real) + " " + found)
def compiled(name):
    return name.endswith(".so") or ".so." in name
own = [folder for folder in os.environ.get("PYTHONPATH", "").split(":") if folder.startswith("/")]
for folder in sys.path[1:]:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem, dot, end_of_name = entry.rpartition(".")
        if end_of_name in ("dist-info", "egg-info") and stem:
            name, dash, version = stem.partition("-")
            version = version.split("-")[0]
            key = name.replace("_", "-").lower()
            packages.setdefault(key, version or "no version")
            try:
                with open(os.path.join(folder, entry, "RECORD"), errors="replace") as record:
                    lines = record.read(8 << 20).splitlines()
            except OSError:
                continue
            for line in lines:
                path = line.split(",", 1)[0]
                if compiled(path):
                    add(key, os.path.join(folder, path))
        elif end_of_name == "pth" or entry in ("sitecustomize.py", "usercustomize.py"):
            add(entry, os.path.join(folder, entry))
        elif compiled(entry) and "lib-dynload" not in folder:
            add(entry.split(".")[0], os.path.join(folder, entry))
        elif folder in own and "." not in entry and os.path.isdir(os.path.join(folder, entry)):
            for inner in sorted(os.listdir(os.path.join(folder, entry)))[:2000]:
                if compiled(inner):
                    add(entry, os.path.join(folder, entry, inner))
named = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")][:32]
wanted = tuple("lib" + name + ".so" for name in NAMES)
for folder in named + PLACES:
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        continue
    for entry in entries:
        stem = entry.split(".so")[0] + ".so"
        if stem in wanted and compiled(entry) and stem not in libraries:
            add(stem, os.path.join(folder, entry))
for name, version in packages.items():
    print("doctor package " + ascii(name)[1:-1].replace(" ", "_") + " " + ascii(version)[1:-1])
for name, files in sorted(libraries.items()):
    total = hashlib.sha256("\n".join(sorted(files)).encode("utf-8", "replace")).hexdigest()[:12]
    words = files[0] if len(files) == 1 else "%d files %s" % (len(files), total)
    print("doctor library " + ascii(name)[1:-1].replace(" ", "_") + " " + ascii(words)[1:-1])
print("doctor " + ("cut" if cut else "whole"))
"""
"""Runs in the job's interpreter, Python 3.6 and later; imports nothing that Python itself does not bring.

Of a library's file it digests the size, and 64 KiB at its beginning, middle and end: a rebuild changes one of them.
"""


def list_job(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: all packages of the job's interpreter, and digests of compiled libraries."""
    requested = arguments.get("python", "")
    path = os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin"
    python = find_tool(requested or "python3", path)
    if not python:
        return {"path": ""}
    code, out, err = run_tool([python, "-c", LIST_EVERYTHING], dict(os.environ), 30)
    lines = [line.split(" ", 3) for line in out.decode("utf-8", "replace").splitlines() if line.startswith("doctor ")]
    if code or not lines or lines[-1][1] not in ("cut", "whole"):
        errors = err.decode("utf-8", "replace").strip().splitlines()
        return {"path": python, "error": errors[-1][:300] if errors else "it printed nothing"}
    answer: dict[str, Any] = {"path": python, "whole": lines[-1][1] == "whole", "package": {}, "library": {}}
    for fields in lines[:8000]:
        if len(fields) == 4 and fields[1] in ("package", "library"):
            answer[fields[1]][fields[2][:100]] = fields[3][:100]
    return answer


class JobSnapshot(Fact, frozen=True):
    """All packages of the job's Python, and digests of the compiled libraries that it would load.

    Raw output, as JSON::

        {"path": "/usr/bin/python3", "whole": true, "package": {"torch": "2.7.1", "numpy": "1.26.4"},
         "library": {"torch": "31 files 0a1b2c3d4e5f", "libnccl.so": "libnccl.so.2.21.5 5f4e3d2c1b0a"}}
    """

    probe = ask(list_job, job=True, timeout=40)

    path: str
    """The interpreter."""
    packages: dict[str, str]
    """Versions, by the package's name in lower case with ``-`` for ``_``."""
    libraries: dict[str, str] | None
    """By package, or by the library's name such as ``libnccl.so``: file and digest, or how many files and the digest of
    all. None: there were too many to be read in time."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> JobSnapshot:
        data = answer.json()
        if not data["path"]:
            raise Absent("the job's Python is not on the host")
        if "error" in data:
            raise Unreadable(filled("{0}: {1}", data["path"], data["error"]))
        texts = {key: msgspec.convert(data[key], dict[str, str]) for key in ("package", "library")}
        return cls(str(data["path"]), texts["package"], texts["library"] if data["whole"] else None)


class SettingSource(NamedTuple):
    """One category of settings, and the fact that it is read from."""

    category: str
    fact: type[Fact]
    values: Callable[[Any], Values | None]


def _system(fact: HostSettings) -> Values:
    named = {
        "kernel": fact.kernel,
        "CPU governor": ", ".join(fact.governors),
        "CPU frequency driver": fact.frequency_driver,
        "transparent huge pages": fact.huge_pages,
        "clock source": fact.clock_source,
        "swap devices": ", ".join(sorted(fact.swap_devices)),
        "kernel command line": " ".join(fact.command_line),
    }
    return {name: value for name, value in named.items() if value}


def _limits(fact: ResourceLimits) -> Values:
    limits = {"open files": fact.nofile, "locked memory": fact.memlock, "processes": fact.nproc, **fact.others}
    return {
        name: " ".join("unlimited" if value is None else str(value) for value in (limit.soft, limit.hard))
        for name, limit in limits.items()
    }


def _mounts(fact: MountTable) -> Values:
    return {mount.target: _mount(mount) for mount in (*fact.disks, *fact.mounts)}


def _mount(mount: Mount) -> str:
    """Without what differs at each mount: descriptors and process numbers (autofs, FUSE)."""
    options = [word for word in mount.options if not word.startswith(("fd=", "pgrp=", "pipe_ino=", "timeout="))]
    return f"{mount.source} {mount.kind} {','.join(sorted(options))}"


def _npu_versions(fact: NpuVersions) -> Values:
    return {"NPU driver": fact.driver, **({"NPU firmware": fact.firmware} if fact.firmware else {})}


def _interfaces(fact: Interfaces) -> Values:
    interfaces = [link for link in fact.links if not link.is_loopback and not link.is_container_bridge]
    names, addresses, routes = {link.name for link in interfaces}, dict[str, list[str]](), dict[str, list[str]]()
    for address in fact.addresses:
        if not address.is_ipv6:  # those change by themselves
            addresses.setdefault(address.interface, []).append(f"{address.address}/{address.prefix}")
    for route in fact.routes or ():
        network = f"{route.network}/{route.prefix}"
        if route.interface in names and ":" not in network and network not in fact.networks_of(route.interface):
            routes.setdefault(filled("route {0}", network) if route.prefix else "default route", []).append(
                route.interface
            )
    values = {
        link.name: ", ".join((f"mtu {link.mtu}", "up" if link.is_up else "down", *addresses.get(link.name, ())))
        for link in interfaces
    } | {f"{delay.interface} {delay.kind}": delay.deeds for delay in fact.delays if delay.interface in names}
    if fact.has_rules:
        values["policy rules"] = "given"
    return {**values, **{name: ", ".join(sorted(where)) for name, where in routes.items()}}


def _of_each(setting: str, values: Mapping[str, object]) -> dict[str, str]:
    """One setting of each interface."""
    return {f"{name} {setting}": str(value) for name, value in values.items()}


def _cards(fact: Interfaces) -> Values | None:
    """None: of a run that did not read them."""
    links = [link for link in fact.links if not link.is_container_bridge]
    values = {f"{link.name} {name}": value for link in links for name, value in (link.driver or {}).items()}
    return values or None


def _firewall(fact: FirewallRules) -> Values | None:
    """By chain what it does; without chains that the software of containers writes anew all the time."""
    if fact.unread:
        return None
    return {
        f"{table.tool} {table.family} {table.name} {chain.name}": "; ".join(
            (*([f"policy {chain.policy}"] if chain.hook else []), *(rule.text for rule in chain.rules))
        )
        for table in fact.tables
        for chain in table.chains
        if not chain.name.startswith(_WRITTEN_ANEW)
    }


_WRITTEN_ANEW = ("KUBE-", "CNI-", "cali-", "CILIUM", "DOCKER", "FLANNEL", "NETAVARK", "f2b-", "nv_", "dv_")
"""Chains of Kubernetes, its networks, Docker, podman and fail2ban."""


def _control_group(fact: ControlGroup) -> Values:
    bounds = {
        "memory limit": str(min((bound.limit for bound in fact.memory), default="")),
        "CPU quota": "" if fact.quota is None else f"{fact.quota:g}",
    }
    values = {"CPUs": str(fact.online_cpus), "CPUs of a process": str(fact.allowed_cpus), **bounds}
    return {name: value for name, value in values.items() if value}


def _python(fact: PythonEnv) -> Values:
    packages = {name.replace("_", "-").lower(): version for name, version in fact.packages.items()}
    return {"interpreter": f"{fact.path} {fact.version}", **packages}


def _of_category(category: str) -> Callable[[HostSnapshot], Values | None]:
    return lambda fact: fact.values.get(category)


SOURCES: tuple[SettingSource, ...] = (
    SettingSource("python", JobSnapshot, lambda fact: fact.packages),
    SettingSource("python", PythonEnv, _python),
    SettingSource("libraries", JobSnapshot, lambda fact: fact.libraries),
    SettingSource("drivers", NpuVersions, _npu_versions),
    SettingSource("drivers", CannVersion, lambda fact: {"CANN": fact.version}),
    SettingSource("drivers", GpuCards, lambda fact: {"GPU driver": fact.driver} if fact.driver else {}),
    SettingSource("system", HostSettings, _system),
    SettingSource("system", HostMemory, lambda fact: {"memory": filled("{0} GiB", fact.total >> 30)}),
    SettingSource("system", ControlGroup, _control_group),
    SettingSource("interfaces", Interfaces, _interfaces),
    SettingSource("cards", Interfaces, _cards),
    SettingSource(
        "cards", NicRings, lambda fact: _of_each("ring", {name: fact.rings[name].current for name in fact.rings})
    ),
    SettingSource(
        "cards", NetworkCards, lambda fact: _of_each("speed", {name: fact.cards[name].megabits for name in fact.cards})
    ),
    SettingSource("firewall", FirewallRules, _firewall),
    SettingSource("mounts", MountTable, _mounts),
    SettingSource("mounts", SharedMemory, lambda fact: {"/dev/shm": f"size={fact.size}"}),
    SettingSource("limits", ResourceLimits, _limits),
    SettingSource("sysctl", LiveSettings, lambda fact: fact.values),
    *(SettingSource(category, HostSnapshot, _of_category(category)) for category in (*CATEGORIES, FILES)),
)
"""Of several sources of one category all are read; a name that two have must have one value in both."""

READ_FOR_CHANGES: tuple[type[Fact], ...] = tuple(dict.fromkeys(source.fact for source in SOURCES))
"""What a run reads that is to be compared with later ones."""


def settings_of(host: str, facts: FactCache) -> dict[str, dict[str, Values]]:
    """What is known of one host: by fact and category, values by name.

    A fact that the host cannot have is empty: its values are not there. One that was not read is left out.
    """
    settings: dict[str, dict[str, Values]] = {}
    for source in SOURCES:
        if source.fact.output_name() not in facts.records[host].outputs:
            continue
        value = facts.get(host, source.fact)
        if isinstance(value, Unreadable):
            continue
        values = {} if isinstance(value, Absent) else source.values(value)
        if values is not None:
            settings.setdefault(source.fact.__name__, {})[source.category] = values
    return settings


def unread_reason(host: str, categories: Collection[str], facts: FactCache) -> str:
    """Why settings of these categories were not read from a host; empty where it was not asked for them."""
    sources = (source for source in SOURCES if source.category in categories)
    values = (
        facts.get(host, source.fact) for source in sources if source.fact.output_name() in facts.records[host].outputs
    )
    return next((str(value) for value in values if isinstance(value, Unreadable)), "")


def reading_facts(category: str, name: str) -> frozenset[type[Fact]]:
    """The facts that one setting is read from, those that hold everything left out."""
    return frozenset(
        source.fact
        for source in SOURCES
        if source.category == category and source.fact not in (HostSnapshot, JobSnapshot)
        if category != "drivers" or source.fact.__name__[:3].lower() == name[:3].lower()
    )
