"""The daemon by which Slurm starts a job's processes on a host."""

from __future__ import annotations

import _socket as socket
import os

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.remote.runtime.reading import read_text

CONFIGURATIONS = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")
DEFAULTS = {
    "slurmdport": "6818",
    "slurmdspooldir": "/var/spool/slurmd",
    "propagateresourcelimits": "",
    "propagateresourcelimitsexcept": "",
    "usepam": "0",
}
LIMITS = ("NOFILE", "MEMLOCK")
"""Of slurm.conf(5), "PropagateResourceLimits": those that are read."""


def find_slurmd(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: whether it is a node of Slurm, the states of its slurmd, and whether the port answers."""
    paths = [path for path in (os.environ.get("SLURM_CONF", ""), *CONFIGURATIONS) if path and os.path.isfile(path)]
    if not paths:
        return {"node": False}
    values = dict(DEFAULTS)
    with open(paths[0], "rb") as file:
        for line in file.read(1 << 20).decode("utf-8", "replace").splitlines():
            key, equals, value = line.partition("#")[0].partition("=")
            if equals and key.strip().lower() in values and " " not in value.strip():
                values[key.strip().lower()] = value.strip()
    states, limits = [], ""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        name, _, rest = read_text("/proc/" + pid + "/stat", 400).partition("(")[2].rpartition(")")
        if name == "slurmd":
            states.append(rest.split()[0])
            limits = limits or read_text("/proc/" + pid + "/limits", 4096)
    own_name = os.uname()[1]
    spool = values["slurmdspooldir"].replace("%n", own_name.partition(".")[0]).replace("%h", own_name.partition(".")[0])
    port = values["slurmdport"].partition("-")[0]
    node = {
        "node": bool(states) or os.path.isdir(spool),
        "states": states,
        "port": int(port) if port.isdecimal() else 0,
        "limits": limits if values["usepam"] == "0" else "",
    }
    passed = [name for name in values["propagateresourcelimits"].upper().split(",") if name]
    excepted = values["propagateresourcelimitsexcept"].upper().split(",")
    node["kept"] = [name for name in LIMITS if name in excepted or (passed and not {"ALL", name} & set(passed))]
    if node["node"] and node["port"]:
        node["answers"] = accepts(int(port))
    return node


def accepts(port: int) -> bool:
    """Runs on the host: whether something takes connections at this port of it."""
    for name in ("127.0.0.1", os.uname()[1]):
        link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            link.settimeout(2)
            link.connect((socket.gethostbyname(name), port))
            return True
        except (OSError, UnicodeError, OverflowError):
            continue
        finally:
            link.close()
    return False


class SlurmDaemon(Fact, frozen=True):
    """slurmd of a node of Slurm: its processes, and whether its port takes connections.

    A host is a node where slurmd runs, or has left its spool folder (SlurmdSpoolDir of slurm.conf).

    Raw output, as JSON::

        {"node": true, "states": ["S"], "port": 6818, "answers": true, "kept": ["MEMLOCK"],
         "limits": "Max locked memory         65536                unlimited            bytes"}
    """

    probe = ask(find_slurmd, timeout=15)

    states: tuple[str, ...]
    """Of each of its processes, as /proc/PID/stat has it; T is stopped."""
    port: int
    """SlurmdPort; the first of a range."""
    answers: bool = False
    limits: str = ""
    """Its /proc/PID/limits; empty where it does not run, and where PAM sets those of the tasks (UsePAM)."""
    kept: tuple[str, ...] = ()
    """Which of `LIMITS` tasks have from slurmd; the others are those of srun's shell, up to slurmd's own."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SlurmDaemon:
        data = msgspec.convert(answer.json(), dict[str, object])
        if not data.pop("node", False):
            raise Absent("the host is no compute node of Slurm")
        return msgspec.convert(data, cls)
