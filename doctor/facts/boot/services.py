"""What services do at every start of a host: clock, NVLink fabric, persistence mode; and its names and /dev/shm."""

from __future__ import annotations

import re

import msgspec

from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.quantities import parse_bytes
from doctor.engine.texts import beginning, filled
from doctor.facts.boot.files import CLOCK_SERVICES, UNIT_FOLDERS, BootFiles
from doctor.facts.container import JobContainer
from doctor.facts.gpu import GpuInventory
from doctor.facts.memory import HostMemory, SharedMemory
from doctor.facts.names import HostNames
from doctor.facts.nvlink import FabricManager
from doctor.facts.visit import ClockOffset
from doctor.remote.runtime.reading import matching_paths

_FABRIC, _PERSISTENCE = "nvidia-fabricmanager", "nvidia-persistenced"


def clock(files: BootFiles, now: ClockOffset) -> ClockOffset:
    """That of now where a service keeps it. Raises: Unreadable."""
    if not any(files.starts(service) for service in CLOCK_SERVICES):
        raise Unreadable("no service that sets the clock is started at boot")
    return now


def fabric_manager(files: BootFiles, now: FabricManager) -> FabricManager:
    """It runs where its service is started at boot. Raises: Unreadable where another program than its service runs it.

    A container of the GPU Operator is such a program.
    """
    starts = files.starts(_FABRIC)
    if not starts and now.is_running and now.state != "active":
        raise Unreadable("the fabric manager runs, and its service does not: what starts it at boot is not known")
    return msgspec.structs.replace(now, is_running=starts, state="active" if starts else "inactive")


def fabric_states(files: BootFiles, manager: FabricManager, now: GpuInventory) -> GpuInventory:
    """Without the fabric manager that runs now no GPU registers with the fabric. Raises: Unreadable.

    GPUs that are registered on a host without one, as in a virtual machine or a compute tray of NVL72, have theirs
    elsewhere: a reboot does not change them.
    """
    if not manager.is_running or fabric_manager(files, manager).is_running:
        return now
    gpus = tuple(
        msgspec.structs.replace(gpu, fabric_state="Not Started") if gpu.fabric_state == "Completed" else gpu
        for gpu in now.gpus
    )
    return msgspec.structs.replace(now, gpus=gpus)


def persistence(files: BootFiles, now: GpuInventory) -> GpuInventory:
    """On where nvidia-persistenced is started, unless its unit says ``--no-persistence-mode``.

    Raises: Unreadable where it is on now and not by that service: what switched it on may do so at each start.
    """
    units = [files.files.get(f"{folder}/{_PERSISTENCE}.service", "") for folder in UNIT_FOLDERS]
    command = re.findall(r"^ExecStart=(.*)$", next(filter(None, units), ""), re.M)
    is_on = files.starts(_PERSISTENCE) and not any("--no-persistence-mode" in line for line in command)
    if not is_on and any(gpu.persistence for gpu in now.gpus):
        raise Unreadable(filled("persistence mode is on, and {0} is not started at boot", _PERSISTENCE))
    gpus = tuple(
        gpu if gpu.persistence is None else msgspec.structs.replace(gpu, persistence=is_on) for gpu in now.gpus
    )
    return msgspec.structs.replace(now, gpus=gpus)


def read_cloud_setting(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the value of manage_etc_hosts; the other lines of these files may hold passwords."""
    value, closed = "", ""
    for path in ["/etc/cloud/cloud.cfg", *matching_paths("/etc/cloud/cloud.cfg.d/*.cfg")]:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read(1 << 20).splitlines()
        except FileNotFoundError:
            continue
        except OSError as error:
            closed = f"{path}: {error.strerror}"
            continue
        for line in lines:
            key, colon, setting = line.partition(":")
            if colon and key.strip() == "manage_etc_hosts":
                value = setting.split("#")[0].strip().strip("\"'")[:40]
    return {"manage_etc_hosts": value, "closed": closed}


class CloudSetting(Fact, frozen=True):
    """Whether cloud-init writes /etc/hosts anew at each boot.

    Raw output, as JSON::

        {"manage_etc_hosts": "true", "closed": ""}
    """

    probe = ask(read_cloud_setting, root=True)

    manage_etc_hosts: str

    @classmethod
    def read(cls, answer: ProbeAnswer) -> CloudSetting:
        data = answer.json()
        if data["closed"]:
            raise Unreadable(filled("{0}; it can be read as root, with --sudo", data["closed"]))
        return cls(manage_etc_hosts=str(data["manage_etc_hosts"]))


def host_names(files: BootFiles, cloud: CloudSetting, now: HostNames) -> HostNames:
    """Those of now, as files and name servers give them. Raises: Unreadable where /etc/hosts or the name change."""
    if cloud.manage_etc_hosts.lower() not in ("", "false", "no", "off"):
        raise Unreadable("cloud-init writes /etc/hosts anew at each boot (manage_etc_hosts)")
    comments = (line.lower() for line in files.text("/etc/hosts").splitlines() if line.startswith("#"))
    if any("true" in comment.partition("manage_etc_hosts")[2] for comment in comments):
        raise Unreadable("cloud-init writes /etc/hosts anew at each boot (manage_etc_hosts)")
    names = [line.strip() for line in files.text("/etc/hostname").splitlines() if line.strip() and line[0] != "#"]
    if names and names[0].partition(".")[0].lower() != now.own.partition(".")[0].lower():
        raise Unreadable(
            filled(
                "the host calls itself {0} now, and {1} after a reboot (/etc/hostname)",
                now.own,
                beginning(names[0], 100),
            )
        )
    return now


def _tmpfs_size(options: str, memory: HostMemory) -> int:
    """The last size of a tmpfs's options, in bytes; half of the memory without one. Raises: Unreadable."""
    size = memory.total // 2
    for option in options.split(","):
        name, _, value = option.strip().partition("=")
        if name == "size" and (match := re.fullmatch(r"([0-9]{1,18})(%|[kKmMgGtT]?)", value, re.ASCII)):
            size = memory.total * int(match[1]) // 100 if match[2] == "%" else parse_bytes(value) or 0
        elif name == "size":
            raise Unreadable(
                filled("/dev/shm: size={0} in the file that mounts it: not understood", beginning(value, 40))
            )
    return size


def shared_memory(files: BootFiles, memory: HostMemory, view: JobContainer) -> SharedMemory:
    """/dev/shm as /etc/fstab or its unit mounts it; systemd gives it half of the memory. Raises: Unreadable."""
    if view.engine:
        raise Unreadable("/dev/shm of a container: its size is set where the container is started")
    lines = [line.split() for line in files.text("/etc/fstab").splitlines() if not line.lstrip().startswith("#")]
    options = [fields[3] if len(fields) > 3 else "" for fields in lines if len(fields) > 1 and fields[1] == "/dev/shm"]
    unit = [files.text("/etc/systemd/system/dev-shm.mount")]
    unit += files.folder("/etc/systemd/system/dev-shm.mount.d").values()
    options += [match for text in unit for match in re.findall(r"^Options=(.*)$", text, re.M)]
    if not options and files.init != "systemd":
        raise Unreadable("no line of /etc/fstab is for /dev/shm: what mounts it at boot sets its size")
    size = _tmpfs_size(options[-1] if options else "", memory)
    return SharedMemory(size=size, free=size)
