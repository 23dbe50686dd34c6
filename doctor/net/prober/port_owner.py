"""Who holds a port or an accelerator of this host, and whose calls have arrived at a port."""

import os
import pwd
import re

from doctor.remote.runtime.reading import read_text
from doctor.smoke.programs.agent.network import proc_address, socket_owners, socket_rows
from doctor.smoke.programs.agent.procfs import open_files

SYN_RECEIVED = "03"


def arrived_calls(ports):
    """[address, its port, port here] of each caller whose SYN came to one of these ports, and no packet after it."""
    calls = set()
    for fields in socket_rows(os.getpid(), "tcp"):
        if fields[3] == SYN_RECEIVED and proc_address(fields[1])[1] in ports:
            calls.add((*proc_address(fields[2])[:2], proc_address(fields[1])[1]))
    return [list(call) for call in sorted(calls)[:4096]]


def port_owners(ports):
    """By port: {"user", "pid", "command", "seconds"} of a process that holds it; without what cannot be seen."""
    held = {}
    for fields in socket_rows(os.getpid(), "tcp"):
        port = proc_address(fields[1])[1]
        if port in ports and (port not in held or fields[3] == "0A"):
            held[port] = fields[9], int(fields[7])
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if held else []
    by_inode = socket_owners(pids)
    return dict((port, _describe(by_inode.get(inode), uid)) for port, (inode, uid) in held.items())


def _describe(pid, uid):
    try:
        owner = {"user": pwd.getpwuid(uid).pw_name}
    except KeyError:
        owner = {"user": "uid %d" % uid}
    if pid:
        arguments = read_text("/proc/%d/cmdline" % pid, 400).split("\0")
        fields = read_text("/proc/%d/stat" % pid).rpartition(")")[2].split()
        owner.update(pid=pid, command=" ".join(arguments).strip()[:200])
        uptime = read_text("/proc/uptime").split()
        if len(fields) > 19 and uptime:
            owner["seconds"] = int(float(uptime[0]) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
    return owner


DAEMONS = ("nvidia-persiste", "nv-hostengine", "dcgm", "nvidia-smi", "npu-smi", "npu-exporter", "nv-fabricmanage")
"""Beginnings of names, as the kernel cuts them, of programs that hold a device and are no job."""


def accelerator_users():
    """[pid, command] of the first processes that have an NPU or a GPU open, as far as they can be seen."""
    users = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or len(users) >= 4:
            continue
        if any(re.match(r"/dev/(davinci|nvidia)\d+$", link) for link in open_files(int(name), 1 << 20)):
            command = read_text("/proc/%s/comm" % name, 64).strip()
            if not command.startswith(DAEMONS):
                users.append([int(name), command])
    return users
