"""Who uses the accelerators of the host."""

import glob
import os
import pwd
import re

from doctor.fix.executor.step_commands import run_shell


def busy(_request):
    """Processes that use the accelerators. `hidden`: number of processes that could not be inspected."""
    holders, hidden, problem = [], 0, ""
    npus = [path for path in glob.glob("/dev/davinci[0-9]*") if path[12:].isdigit()]
    for pid in [name for name in os.listdir("/proc") if name.isdigit()] if npus else []:
        try:
            targets = [os.readlink(path) for path in glob.glob("/proc/%s/fd/*" % pid) if os.path.islink(path)]
            os.listdir("/proc/%s/fd" % pid)
            if any(re.match("/dev/davinci[0-9]+$", path) for path in targets):
                holders.append(device_user(pid, "an NPU"))
        except PermissionError:
            hidden += 1
        except OSError:
            pass
    if glob.glob("/dev/nvidia[0-9]*"):
        gpu_holders, problem = gpu_users()
        holders += gpu_holders
    return {"holders": holders, "hidden": hidden, "trouble": problem}


def gpu_users():
    """The processes that nvidia-smi lists, and why it does not, if so."""
    result = run_shell("nvidia-smi --query-compute-apps=pid --format=csv,noheader", 20, 65536)
    problem = "nvidia-smi does not list the GPUs' processes" if result["code"] else ""
    return [device_user(pid, "a GPU") for pid in result["out"].split() if pid.isdigit()], problem


def device_user(pid, device):
    """A process that has a device open: its pid, name and user."""
    try:
        uid = os.stat("/proc/" + pid).st_uid
        with open("/proc/%s/comm" % pid, errors="replace") as file:
            name = file.read().strip()
    except OSError:
        return {"pid": int(pid), "name": "?", "user": "?", "what": device}
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return {"pid": int(pid), "name": name, "user": user, "what": device}
