"""The services by which schedulers start a job's processes on a host."""

from __future__ import annotations

import _socket as socket
import os

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask
from doctor.engine.texts import filled
from doctor.job import LaunchConfig
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
_OF_UNIT = (
    "`systemctl edit {0}`, in it `[Service]` and `Limit{1}={2}`, then, when no job runs there, `systemctl restart {0}`"
)
_OF_SCRIPT = (
    "`ulimit {3} {2}` in `limits.{0}` of the folder `lib/init.d` of PBS, then, when no job runs there, `systemctl "
    "restart pbs`"
)
_RAISED_BY = {
    "pbs_mom": ("PBS_JOBID", "pbs_mom", _OF_SCRIPT),
    "sbatchd": ("LSB_JOBID", "lsfd", _OF_UNIT),
    "condor_startd": ("_CONDOR_SLOT", "condor", _OF_UNIT),
    "slurmd": ("", "slurmd", _OF_UNIT),
}
"""By service: the variable of its jobs, and what raises its limits: OpenPBS sets them in a script before it starts it.

Source: openpbs/openpbs, src/cmds/scripts/limits.pbs_mom.compat; htcondor/htcondor, src/condor_examples/condor.service;
IBM Spectrum LSF, bsub, "-ul": the limits of the submitting shell go along with this option alone.
"""
_LETTERS = {"NOFILE": "-n", "MEMLOCK": "-l"}
_OVER_SSH = {"ssh", "deepspeed", "colossalai", "horovodrun"}
"""Launchers whose processes on other hosts sshd starts."""


def slurm_settings() -> dict:  # type: ignore[type-arg]
    """Runs on the host: those of `DEFAULTS`, as slurm.conf has them; none where there is no such file."""
    paths = [path for path in (os.environ.get("SLURM_CONF", ""), *CONFIGURATIONS) if path and os.path.isfile(path)]
    values = dict(DEFAULTS) if paths else {}
    for path in paths[:1]:
        with open(path, "rb") as file:
            for line in file.read(1 << 20).decode("utf-8", "replace").splitlines():
                key, equals, value = line.partition("#")[0].partition("=")
                if equals and key.strip().lower() in values and " " not in value.strip():
                    values[key.strip().lower()] = value.strip()
    return values


def processes(names: list) -> list:  # type: ignore[type-arg]
    """Runs on the host: name, state and number of each process of one of these names."""
    pids = sorted(int(pid) for pid in os.listdir("/proc") if pid.isdigit())
    stats = [(read_text("/proc/" + str(pid) + "/stat", 400).partition("(")[2].rpartition(")"), pid) for pid in pids]
    return [(name, rest.split()[0], str(pid)) for (name, _, rest), pid in stats if name in names]


def find_services(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: the limits of the services that may start the job, and which Slurm's tasks have from slurmd."""
    names = arguments.get("services") or []
    running = processes(names) if names else []
    values = slurm_settings() if "slurmd" in names else {}
    limits = {name: read_text("/proc/" + pid + "/limits", 4096) for name, _, pid in reversed(running)}
    if values.get("usepam") != "0":
        limits.pop("slurmd", None)
    passed = [name for name in values.get("propagateresourcelimits", "").upper().split(",") if name]
    excepted = values.get("propagateresourcelimitsexcept", "").upper().split(",")
    kept = [name for name in LIMITS if name in excepted or (passed and not {"ALL", name} & set(passed))]
    return {"limits": limits, "kept": kept}


def find_slurmd(arguments: ProbeArguments) -> dict:  # type: ignore[type-arg]
    """Runs on the host: whether it is a node of Slurm, the states of its slurmd, and whether the port answers."""
    values = slurm_settings()
    if not values:
        return {"node": False}
    states = [state for _, state, _ in processes(["slurmd"])]
    own_name = os.uname()[1]
    spool = values["slurmdspooldir"].replace("%n", own_name.partition(".")[0]).replace("%h", own_name.partition(".")[0])
    port = values["slurmdport"].partition("-")[0]
    node = {
        "node": bool(states) or os.path.isdir(spool),
        "states": states,
        "port": int(port) if port.isdecimal() else 0,
    }
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

        {"node": true, "states": ["S"], "port": 6818, "answers": true}
    """

    probe = ask(find_slurmd, timeout=15)

    states: tuple[str, ...]
    """Of each of its processes, as /proc/PID/stat has it; T is stopped."""
    port: int
    """SlurmdPort; the first of a range."""
    answers: bool = False

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SlurmDaemon:
        data = msgspec.convert(answer.json(), dict[str, object])
        if not data.pop("node", False):
            raise Absent("the host is no compute node of Slurm")
        return msgspec.convert(data, cls)


class JobServices(Fact, frozen=True):
    """The services of schedulers that run here and may start the job, with the limits that they give it.

    Raw output, as JSON::

        {"limits": {"pbs_mom": "Max locked memory         65536                unlimited            bytes"}, "kept": []}
    """

    probe = ask(find_services, timeout=15)

    limits: dict[str, str]
    """By service: its /proc/PID/limits; not that of slurmd where PAM sets those of its tasks (UsePAM)."""
    kept: tuple[str, ...] = ()
    """Which of `LIMITS` tasks have from slurmd; the others are those of srun's shell, up to slurmd's own."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> JobServices:
        return msgspec.convert(answer.json(), cls)

    def starting(self, launch: LaunchConfig) -> str:
        """The service of this host that starts the job's processes here; empty: a login, or not known."""
        return next((name for name in services_of(launch) if self.limits.get(name)), "")


def services_of(launch: LaunchConfig) -> list[str]:
    """Those that may start the job's processes, by its launch line and the variables of a scheduler.

    >>> services_of(LaunchConfig(launchers=("mpirun",), env={"PBS_JOBID": "7.a"})), services_of(LaunchConfig())
    (['pbs_mom'], [])
    """
    if "srun" in launch.launchers:
        return ["slurmd"] if "--propagate" not in launch.launch_line else []
    of_jobs = _RAISED_BY.items() if not _OVER_SSH & {*launch.launchers} else ()
    return [name for name, (variable, _, _) in of_jobs if variable in launch.env]


def raising(service: str, limit: str, value: str) -> str:
    """What raises a limit of a service, of `LIMITS`."""
    _, unit, text = _RAISED_BY[service]
    return filled(text, unit, limit, value, _LETTERS[limit])
