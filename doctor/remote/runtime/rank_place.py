"""Where a process may run, and at which NUMA node a host's accelerators and network adapters are.

What the kernel does not tell is empty, or -1, and says nothing. Sources: Linux, Documentation/ABI: sysfs-devices-node
(has_memory, cpulist), sysfs-bus-pci (numa_node: -1 where it is not known), sysfs-class-net (operstate),
sysfs-class-infiniband (ports/N/state); proc_pid_status(5) (Cpus_allowed_list, Mems_allowed_list); numa(7) (numa_maps:
"bind" with its nodes); admin-guide/cgroup-v2.rst and cgroup-v1/cpusets.rst.
"""

import re

from doctor.remote.runtime.reading import names_in, read_text

SYS, CGROUPS = "/sys", "/sys/fs/cgroup"
ACCELERATORS = {"0x10de": "0x03", "0x19e5": "0x1200", "0x1002": "0x0380"}  # vendor: how the class of its device begins
MOST_DEVICES = 4096


def place_text(path, limit=1 << 16):
    """A small file, cut; empty where it cannot be read."""
    return read_text(path, limit).strip()


def place_number(path):
    """-1 where the file holds none."""
    text = place_text(path)
    return int(text) if re.match("-?[0-9]{1,4}$", text) else -1


def place_names(folder):
    """The names in a folder, cut; none where it cannot be read."""
    return sorted(names_in(folder))[:MOST_DEVICES]


def host_place():
    """What of it is the same for all processes of the host."""
    nodes = SYS + "/devices/system/node"
    return {
        "cpus_of_nodes": dict(
            (name[4:], place_text(nodes + "/" + name + "/cpulist")) for name in place_names(nodes) if name[4:].isdigit()
        ),
        "nodes_with_memory": place_text(nodes + "/has_memory"),
        "accelerators": accelerator_places(SYS + "/bus/pci/devices"),
        "interfaces": adapter_places(SYS + "/class/net", interface_is_up),
        "adapters": adapter_places(SYS + "/class/infiniband", adapter_is_up),
    }


def accelerator_places(folder):
    """In the order of their bus addresses: address and NUMA node."""
    rows = []
    for address in place_names(folder):
        kind = ACCELERATORS.get(place_text(folder + "/" + address + "/vendor"))
        if kind and place_text(folder + "/" + address + "/class").startswith(kind):
            rows.append([address, place_number(folder + "/" + address + "/numa_node")])
    return rows


def adapter_places(folder, is_up):
    """The NUMA node of each one that is up."""
    paths = ((name, folder + "/" + name) for name in place_names(folder))
    return dict((name, place_number(path + "/device/numa_node")) for name, path in paths if is_up(path))


def interface_is_up(path):
    """Whether it has a link."""
    return place_text(path + "/operstate") == "up"


def adapter_is_up(path):
    """Whether a port is active; one whose ports are not shown counts."""
    ports = place_names(path + "/ports")
    return not ports or any("ACTIVE" in place_text(path + "/ports/" + port + "/state") for port in ports)


def process_place(pid):
    """The CPUs and memory nodes of a process, as the kernel lists them, and the CPUs that its control group permits."""
    status = place_text("/proc/%d/status" % pid)
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    # As set_mempolicy(2) has it, which Mems_allowed does not tell; the first mapping is the program's own.
    first = place_text("/proc/%d/numa_maps" % pid, 512)
    bound = re.match(r"[0-9a-f]+ bind(?:=[a-z|]{1,40})?:([0-9,-]{1,200})(?: |$)", first)
    return {
        "cpus": fields.get("Cpus_allowed_list", "").strip(),
        "memory_nodes": bound.group(1) if bound else fields.get("Mems_allowed_list", "").strip(),
        "permitted": permitted_cpus(pid),
    }


def permitted_cpus(pid):
    """The CPUs of its control group; empty where that is not seen from here."""
    for line in place_text("/proc/%d/cgroup" % pid).splitlines():
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers == "cpuset":
            return place_text(CGROUPS + "/cpuset" + path.rstrip("/") + "/cpuset.effective_cpus")
    match = re.search(r"^0::(/[^\n]*)$", place_text("/proc/%d/cgroup" % pid), re.M)
    path = match.group(1).rstrip("/") if match and "/.." not in match.group(1) else None
    while path is not None:
        text = place_text(CGROUPS + path + "/cpuset.cpus.effective")
        if text or not path:
            return text
        path = path.rpartition("/")[0]
    return ""
