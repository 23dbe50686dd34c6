"""Processes, as /proc shows them."""

import os
import re
import signal

from doctor.remote.runtime.reading import link_at, names_in, read_text, thread_schedule

PF_EXITING = 4  # Linux, include/linux/sched.h


def stat_fields(pid):
    """What /proc/PID/stat has behind the name of a process, its state first; empty when there is none."""
    return read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()


def process_status(pid):
    """State letter, parent and session of a process; None when there is none."""
    fields = stat_fields(pid)
    return (fields[0], int(fields[1]), int(fields[3])) if len(fields) > 4 else None


def thread_states(pid):
    """The state letters of all its threads; X of one that is in its end."""
    folder = "/proc/%d/task" % pid
    stats = [read_text("%s/%s/stat" % (folder, name)).rpartition(")")[2].split() for name in names_in(folder)]
    return ["X" if len(stat) <= 6 or int(stat[6]) & PF_EXITING else stat[0] for stat in stats]


def gloo_threads(pid):
    """The numbers of its threads that gloo and torch call so: ``gloo_tcp_loop``, ``pt_gloo_runloop``."""
    folder = "/proc/%d/task" % pid
    return set(name for name in names_in(folder) if "gloo" in read_text("%s/%s/comm" % (folder, name), 16))


def ancestors(pid):
    """The processes above one, the nearest first, to the first one of the PID namespace."""
    above, status = [], process_status(pid)
    while status and status[1] and len(above) < 50:
        above.append(status[1])
        status = process_status(status[1])
    return above


def is_descendant(pid):
    """Whether a process comes from this one. A number out of another PID namespace would be a stranger's here."""
    return os.getpid() in ancestors(pid)


def all_processes():
    """By pid: (state, parent, session) of all that can be seen."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            status = process_status(int(name))
            if status:
                table[int(name)] = status
    return table


def cpu_times(pid, all_threads):
    """Seconds that the main thread ran, that it waited for a CPU, and, if asked, that all threads waited together."""
    times = thread_schedule("/proc/%d/task/%d" % (pid, pid))
    if times is None:
        return None
    ran, delay = times[0] / 1e9, times[1] / 1e9
    others = sum(times[1] for thread, times in thread_times(pid).items() if thread != pid) if all_threads else 0.0
    return ran, delay, delay + others


def thread_times(pid, most=None):
    """By thread: the seconds that it ran, those that it waited for a CPU, its state letter, and its turns on a CPU.

    `most`: so many threads, those with the lowest numbers; none: all.
    """
    threads = {}
    for name in sorted(names_in("/proc/%d/task" % pid), key=int)[:most]:
        times = thread_schedule("/proc/%d/task/%s" % (pid, name))
        status = read_text("/proc/%d/task/%s/stat" % (pid, name))
        if times and status:
            threads[int(name)] = (times[0] / 1e9, times[1] / 1e9, status[status.rfind(")") + 2 :][:1], times[2])
    return threads


def cpu_ticks():
    """(ticks that the hypervisor took, ticks in which a CPU had nothing to do, all ticks) of this host so far."""
    fields = [int(word) for word in read_text("/proc/stat").split("\n", 1)[0].split()[1:9]]
    return (fields[7], fields[3], sum(fields)) if len(fields) == 8 else (0, 0, 0)


def child_pids(pid, threads=()):
    """Processes that the main thread has forked, or that these threads have."""
    if os.path.exists("/proc/%d/task/%d/children" % (pid, pid)):
        texts = [read_text("/proc/%d/task/%s/children" % (pid, thread)) for thread in threads or [pid]]
        return [int(word) for word in " ".join(texts).split()]
    return [child for child, (_, parent, _) in all_processes().items() if parent == pid]


def open_files(pid, most):
    """What the numbers of a process's open files stand for: paths, ``socket:[INODE]`` and their like."""
    targets = [link_at("/proc/%d/fd/%s" % (pid, name)) for name in names_in("/proc/%d/fd" % pid, most)]
    return [target for target in targets if target]


def catches(pid, number=signal.SIGUSR1):
    """Whether a process has a handler for a signal: without one it could end it."""
    match = re.search(r"^SigCgt:\s*([0-9a-f]+)", read_text("/proc/%d/status" % pid), re.M)
    return bool(match and int(match.group(1), 16) >> (number - 1) & 1)


VISIBLE = {
    "npu": (("ASCEND_RT_VISIBLE_DEVICES",),),
    "nvidia": (("CUDA_VISIBLE_DEVICES",),),
    "amd": (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
}
"""The variables that show a program some of the host's accelerators: each choice counts what the one before left; of
one choice the first variable that is set is in force. Of AMD: ROCm, "GPU isolation techniques" and HIP, "Environment
variables" (rocm.docs.amd.com); torch/cuda/__init__.py, _parse_visible_devices."""
AMD_NODES = "/sys/class/kfd/kfd/topology/nodes"


def accelerators(environ=None):
    """By kind: the numbers of the accelerators that this host shows, and this environment (none: all of them).

    In the order of their ordinals: a library numbers what it sees from 0 on, in this order. GPUs are those of NVIDIA,
    or else of AMD.
    """
    detected = {"npu": numbered_files("davinci"), "nvidia": numbered_files("nvidia")}
    uuids = {}
    if not detected["nvidia"]:
        detected["amd"], uuids = amd_gpus()
    numbers = {}
    for vendor, devices in detected.items():
        for names in VISIBLE[vendor]:
            text = next((environ[name] for name in names if name in environ), None) if environ is not None else None
            devices = devices if text is None else visible_devices(text, devices, vendor, uuids)
        numbers["npu" if vendor == "npu" else "gpu"] = devices
    return numbers


def hidden_accelerators(visible, environ):
    """The kinds of accelerators that this host shows, where an environment leaves none ``visible``, in two lists.

    The second: those that Slurm has not allocated to the job or step that this is part of. It then writes
    "NoDevFiles" into CUDA_VISIBLE_DEVICES and SLURM_JOB_GPUS or SLURM_STEP_GPUS alike (SchedMD/slurm,
    src/plugins/gres/common/gres_common.c, common_gres_set_env). A step without GPUs in a job that has some is none.
    """
    hidden = sorted(kind for kind, devices in accelerators().items() if devices and not visible[kind])
    allotted = [environ[name] for name in environ if re.match(r"CUDA_VISIBLE_DEVICES$|SLURM_\w*GPU", name)]
    none = "SLURM_JOB_ID" in environ and set(allotted) == {"NoDevFiles"}
    return [kind for kind in hidden if kind != "gpu" or not none], ["gpu"] * (none and "gpu" in hidden)


def numbered_files(prefix):
    """The numbers of the files under /dev whose names are this and a number."""
    matches = (re.match(prefix + r"(\d{1,4})$", name) for name in os.listdir("/dev"))
    return sorted(int(match.group(1)) for match in matches if match)


def amd_gpus():
    """Numbers of the AMD GPUs that this host may use, and the number of each by its UUID.

    ROCm counts the GPUs among the nodes of the driver kfd, in their order (Linux, kfd_topology.c). A container reads
    the nodes of its own GPUs alone, and has their files: what it may not read keeps its number.
    """
    nodes = sorted((int(name), name) for name in names_in(AMD_NODES) if name.isdigit())
    numbers, uuids, number = [], {}, 0
    for _, name in nodes[:1024]:
        text = read_text("%s/%s/properties" % (AMD_NODES, name))
        properties = dict(re.findall(r"^(simd_count|drm_render_minor|unique_id) (\d{1,20})$", text, re.M))
        if text and properties.get("simd_count", "0") == "0":
            continue  # of CPUs
        if os.path.exists("/dev/dri/renderD" + properties.get("drm_render_minor", "")):
            numbers.append(number)
            uuids[int(properties.get("unique_id", "0"))] = number
        number += 1
    return numbers, uuids


def visible_devices(text, devices, vendor, uuids=None):
    """Those of the devices which a variable of `VISIBLE` lets a program see; its numbers count them, from 0.

    All libraries take what stands before the first entry that is no device: CANN, "Environment Variables",
    ASCEND_RT_VISIBLE_DEVICES (commas alone, ascending, or there are none); CUDA C++ Programming Guide, "CUDA
    Environment Variables", CUDA_VISIBLE_DEVICES, which may name a device by its UUID as well, as those of ROCm may:
    one that ``uuids`` has no number for stands as the next device that no entry names. CUDA and HIP take the number
    that an entry begins with ("0 1", "0;1" and "0x0" leave an H200's device 0).
    """
    entries, visible = text.split(",")[:1024], []
    for position, entry in enumerate(entries):
        entry = entry if vendor == "npu" else entry.strip()
        match = re.match(r"(?:GPU|MIG)-([0-9a-fA-F-]{1,40})", entry) if vendor != "npu" else None
        number_text = re.match(r"[0-9]{1,4}$" if vendor == "npu" else r"[0-9]{1,4}(?![0-9])", entry)
        if match:
            number = (uuids or {}).get(int(match.group(1).replace("-", "") or "0", 16), -1)
        elif number_text and int(number_text.group()) < len(devices):
            number = devices[int(number_text.group())]
        else:
            break
        if entry in entries[:position] or (number >= 0 and (number in visible or number not in devices)):
            break
        visible.append(number)
    others = iter([number for number in devices if number not in visible])
    visible = [number for number in (next(others, -1) if number < 0 else number for number in visible) if number >= 0]
    return [] if vendor == "npu" and visible != sorted(visible) else visible


def npu_model():
    """PCI device id of this host's NPUs (vendor 19e5, a processing accelerator), such as "d801"; "" without any."""
    folder = "/sys/bus/pci/devices"
    for name in sorted(names_in(folder)):
        vendor, kind, model = (
            read_text("%s/%s/%s" % (folder, name, part)).strip() for part in ("vendor", "class", "device")
        )
        if vendor == "0x19e5" and kind.startswith("0x1200"):
            return model[2:6]
    return ""
