"""Whether a job computes on this host: who has an accelerator open."""

import os
import re

from doctor.smoke.programs.agent.procfs import read_text

DAEMONS = ("nvidia-persiste", "nv-hostengine", "dcgm", "nvidia-smi", "npu-smi", "npu-exporter", "nv-fabricmanage")
"""Beginnings of names, as the kernel cuts them, of programs that hold a device and are no job."""


def accelerator_users():
    """[pid, command] of the first processes that have an NPU or a GPU open, as far as they can be seen."""
    users = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or len(users) >= 4:
            continue
        try:
            links = [os.readlink("/proc/%s/fd/%s" % (name, fd)) for fd in os.listdir("/proc/%s/fd" % name)]
        except OSError:
            continue
        if any(re.match(r"/dev/(davinci|nvidia)\d+$", link) for link in links):
            command = read_text("/proc/%s/comm" % name, 64).strip()
            if not command.startswith(DAEMONS):
                users.append([int(name), command])
    return users
