"""What a check gets as after a reboot: a row for each check whose facts are derived from what a host loads at boot.

A row names the facts that are derived so; the check's other facts are taken as they are now. A check without a row is
not looked at. The check itself judges, as ever.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable, Iterable, Iterator

from doctor.engine.boot_form import BootForm
from doctor.engine.check import Check
from doctor.engine.fact import Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.quantities import parse_bytes
from doctor.engine.texts import beginning, filled
from doctor.facts.access import JobAccess
from doctor.facts.boot import kernel_settings, link_mtu, npu_ports, services
from doctor.facts.boot.files import SERVICE_LIMIT_FILES, BootFiles
from doctor.facts.boot.firewall import BootFirewall, firewall_rules
from doctor.facts.container import JobContainer
from doctor.facts.firewall import FirewallRules
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.hccn.device_addresses import DetectAddresses, DeviceAddresses, DeviceGateways, HccnConf
from doctor.facts.hccn.link_state import DeviceFec
from doctor.facts.hccn.traffic import TlsSwitches
from doctor.facts.host_settings import HostSettings
from doctor.facts.interfaces import Interfaces
from doctor.facts.kernel import Conntrack, ListenQueues, SysctlFiles, sysctl_path
from doctor.facts.limits import NO_LIMIT, OTHERS, UNITS, Limit, ResourceLimits
from doctor.facts.memory import HostMemory, MemoryCommitment, SharedMemory
from doctor.facts.names import HostNames
from doctor.facts.neighbour_table import NeighbourTable
from doctor.facts.nvlink import FabricManager
from doctor.facts.ports import ReservedPorts
from doctor.facts.python_env import PythonEnv
from doctor.facts.visit import ClockOffset, Reachability

NOT_LOOKED_AT = "not judged: no file that a host loads at boot holds it"
"""Why a check without a row has no result."""


def describe_login(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the user that we log in as, and its groups."""
    try:
        user = pwd.getpwuid(os.getuid())[0]
    except KeyError:
        user = ""
    groups = []
    for number in sorted(set(os.getgroups()) | {os.getgid()}):
        try:
            groups.append(grp.getgrgid(number)[0])
        except KeyError:
            continue
    return {"uid": os.getuid(), "user": user, "groups": groups}


class LoginUser(Fact, frozen=True):
    """The user that doctor logs in as.

    Raw output, as JSON::

        {"uid": 1000, "user": "ann", "groups": ["ann", "hpc"]}
    """

    probe = ask(describe_login)

    uid: int
    user: str
    groups: tuple[str, ...]

    @classmethod
    def read(cls, answer: ProbeAnswer) -> LoginUser:
        data = answer.json()
        return cls(uid=int(data["uid"]), user=str(data["user"]), groups=tuple(map(str, data["groups"])))


def _applies_limits(files: BootFiles) -> bool:
    """PAM applies limits to logins over SSH. Raises: Unreadable."""
    visited, waiting = set[str](), ["sshd"]
    while waiting:
        name = waiting.pop()
        if name in visited or len(visited) > 50:
            continue
        visited.add(name)
        for line in files.text(f"/etc/pam.d/{name}").splitlines():
            fields = line.split("#")[0].split()
            if (
                len(fields) > 2
                and fields[0].lstrip("-") == "session"
                and any("pam_limits" in word for word in fields[2:])
            ):
                return True
            if fields[:1] == ["@include"] and len(fields) > 1:
                waiting.append(fields[1])
            if len(fields) > 2 and fields[1] in ("include", "substack"):
                waiting.append(fields[2])
    return False


def _limit_lines(files: BootFiles) -> list[list[str]]:
    """The fields of the lines of limits.conf(5), in the order of reading. Raises: Unreadable."""
    texts = [files.text("/etc/security/limits.conf"), *files.folder("/etc/security/limits.d").values()]
    return [line.split("#")[0].split() for text in texts for line in text.splitlines()]


def _is_exempt(files: BootFiles, login: LoginUser) -> bool:
    """A line ``user -`` or ``@group -`` without an item: PAM then sets no limit at all."""
    domains = (login.user, *(f"@{group}" for group in login.groups))
    return any(len(fields) == 2 and fields[0] in domains and fields[1] == "-" for fields in _limit_lines(files))


def _lines(files: BootFiles, login: LoginUser, item: str) -> Iterator[tuple[int, str, str]]:
    """How closely a line names the user, the kind and the value of limits.conf(5), in the order of reading.

    A user's own line counts more than a group's, and that more than one for all; neither of these is for root.
    """
    for fields in _limit_lines(files):
        if len(fields) != 4 or fields[2].lower() != item or fields[1].lower() not in ("soft", "hard", "-"):
            continue
        domain, kind, value = fields[0], fields[1].lower(), fields[3].lower()
        if re.fullmatch(r"@[0-9]*:[0-9]*", domain):
            raise Unreadable(filled("limits.conf: {0}: whom a range of groups is about is not computed", domain))
        if domain == login.user:
            yield 3, kind, value
        elif re.fullmatch(r"[0-9]*:[0-9]*", domain) and domain != ":":
            first, _, last = domain.partition(":")
            if int(first or last) <= login.uid <= int(last or 1 << 32):
                yield 3, kind, value
        elif login.uid and domain[:1] == "@" and domain[1:] in login.groups:
            yield 2, kind, value
        elif login.uid and domain == "*":
            yield 1, kind, value


def _limit(files: BootFiles, login: LoginUser, item: str, default: Limit, scale: int = 1) -> Limit:
    """Raises: Unreadable."""
    held: dict[str, tuple[int, int | None]] = {"soft": (0, default.soft), "hard": (0, default.hard)}
    for closeness, kind, text in _lines(files, login, item):
        if text not in ("unlimited", "infinity", "-1") and not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
            raise Unreadable(filled("limits.conf: {0} {1}: expected a number", item, f"{beginning(text, 40)!r}"))
        value = int(text) * scale if text.isdecimal() else None
        for name in ("soft", "hard") if kind == "-" else (kind,):
            if closeness < held[name][0]:
                break  # where the soft limit stays, so does the hard one
            held[name] = (closeness, value)
    soft, hard = held["soft"][1], held["hard"][1]
    if hard is not None and (soft is None or soft > hard):
        soft = hard
    return Limit(soft, hard)


def login_limits(files: BootFiles, login: LoginUser, now: ResourceLimits) -> ResourceLimits:
    """What files set; else the kernel's and systemd's own: 1024 open files, half of threads-max processes.

    Of locked memory a limit that is none of the known defaults is unknown; of the others no file is a limit as now.
    Raises: Unreadable.
    """
    threads = files.text(sysctl_path("kernel.threads-max")).strip()
    processes = int(threads) // 2 if threads.isdecimal() else None
    nproc = _service_limit(files, "NPROC") or (Limit(processes, processes) if processes else now.nproc)
    nofile = _service_limit(files, "NOFILE") or Limit(1024, now.nofile.hard)
    memlock = _service_limit(files, "MEMLOCK")
    if not _applies_limits(files) or _is_exempt(files, login):
        memlock = memlock or _locked_memory(now.memlock)
        return ResourceLimits(nofile=nofile, memlock=memlock, nproc=nproc, others=now.others)
    if memlock is None and not any(_lines(files, login, "memlock")):
        memlock = _locked_memory(now.memlock)
    return ResourceLimits(
        nofile=_limit(files, login, "nofile", nofile),
        memlock=_limit(files, login, "memlock", memlock or now.memlock, 1024),
        nproc=_limit(files, login, "nproc", nproc),
        others={
            name: _limit(files, login, item, now.others.get(name, NO_LIMIT), UNITS.get(name, (1024,))[-1])
            for name, (_, item) in OTHERS.items()
        },
    )


def _service_limit(files: BootFiles, name: str) -> Limit | None:
    """What systemd's files give to sshd: ``LimitNOFILE=1024:524288`` of its unit, else ``DefaultLimitNOFILE=``.

    Raises: Unreadable.
    """
    folders = [path.rpartition("/")[0] for path in SERVICE_LIMIT_FILES[1:]]
    texts = [files.text(SERVICE_LIMIT_FILES[0])]
    texts += [text for folder in folders for text in files.folder(folder).values()]
    limit = None
    for pattern in (rf"^DefaultLimit{name}=(.*)$", rf"^Limit{name}=(.*)$"):
        for text in texts:
            limit = next(reversed(re.findall(pattern, text, re.M)), limit)
    if not limit:
        return None
    soft, _, hard = limit.strip().partition(":")
    return Limit(_service_value(soft), _service_value(hard or soft))


def _service_value(text: str) -> int | None:
    """Raises: Unreadable."""
    match = re.fullmatch(r"([0-9]{1,18})([KMGT]?)", text, re.ASCII)
    if text != "infinity" and not match:
        raise Unreadable(filled("a limit of {0} in a file of systemd is not understood", f"{beginning(text, 40)!r}"))
    return parse_bytes(text) if match else None


DEFAULT_LOCKED_BYTES = (1 << 16, 1 << 23, 1 << 26)
"""Of the kernel before and since 5.16, and of systemd."""


def _locked_memory(now: Limit) -> Limit:
    """Raises: Unreadable."""
    if now.soft in DEFAULT_LOCKED_BYTES:
        return now
    raise Unreadable("no file sets the limit of locked memory: what a login gets after a reboot is not known")


def _file(fact: type[Fact]) -> BootForm:
    """A fact that is itself what files hold: a reboot does not change it."""
    return BootForm(fact, (fact,), lambda value: value, keeps_now=True)


def _hccn(fact: type[Fact], build: Callable[..., Fact]) -> BootForm:
    return BootForm(fact, (HccnConf, fact), build, may_lack=(HccnConf,))


_QUEUES = BootForm(ListenQueues, (SysctlFiles, BootFiles, HostMemory), kernel_settings.listen_queues)
_PORTS = BootForm(ReservedPorts, (SysctlFiles, BootFiles), kernel_settings.reserved_ports)
_NAMES = BootForm(HostNames, (BootFiles, services.CloudSetting, HostNames), services.host_names, keeps_now=True)
_SHM = BootForm(SharedMemory, (BootFiles, HostMemory, JobContainer), services.shared_memory)
_LIMITS = BootForm(ResourceLimits, (BootFiles, LoginUser, ResourceLimits), login_limits)
_ADDRESSES = _hccn(DeviceAddresses, npu_ports.device_addresses)
_GATEWAYS = _hccn(DeviceGateways, npu_ports.device_gateways)
_DETECT = _hccn(DetectAddresses, npu_ports.detect_addresses)
_TLS = _hccn(TlsSwitches, npu_ports.tls_switches)
_FABRIC_STATES = BootForm(
    GpuInventory, (BootFiles, FabricManager, GpuInventory), services.fabric_states, keeps_now=True
)
_CONNTRACK = (SysctlFiles, BootFiles, HostMemory, Conntrack)

FORMS: dict[str, tuple[BootForm, ...]] = {
    "clocks-differ": (BootForm(ClockOffset, (BootFiles, ClockOffset), services.clock, keeps_now=True),),
    "conntrack-table-full": (BootForm(Conntrack, _CONNTRACK, kernel_settings.connection_table),),
    "cpu-governor-slow": (BootForm(HostSettings, (BootFiles, HostSettings), kernel_settings.frequency_governors),),
    "detect-address-is-self": (_DETECT, _ADDRESSES, _GATEWAYS),
    "detect-address-unset": (_DETECT, _ADDRESSES, _GATEWAYS),
    "device-ip-conflict": (_ADDRESSES,),
    "device-ip-families-mixed": (_ADDRESSES,),
    "device-ip-refused": (_ADDRESSES,),
    "device-ip-segment-wrong": (_ADDRESSES,),
    "device-ip-unset": (_ADDRESSES,),
    "device-netmask-differs": (_ADDRESSES,),
    "fabric-manager-not-running": (
        BootForm(FabricManager, (BootFiles, FabricManager), services.fabric_manager, keeps_now=True),
        _FABRIC_STATES,
    ),
    "fec-off": (_hccn(DeviceFec, npu_ports.error_correction),),
    "firewall-blocks-job": (BootForm(FirewallRules, (BootFirewall, FirewallRules), firewall_rules), _PORTS),
    "gateway-outside-segment": (_GATEWAYS, _ADDRESSES),
    "gpu-direct-rdma-off": (BootForm(GpuCards, (BootFiles, GpuCards), kernel_settings.peer_memory),),
    "gpu-fabric-not-ready": (_FABRIC_STATES,),
    "gpu-persistence-off": (BootForm(GpuInventory, (BootFiles, GpuInventory), services.persistence),),
    "hccl-ports-half-reserved": (_PORTS,),
    "hccl-ports-unreserved": (_PORTS,),
    "hccn-conf-differs": (_file(HccnConf),),
    "host-name-ambiguous": (_NAMES,),
    "host-name-is-loopback": (_NAMES,),
    "host-name-unresolved": (_NAMES,),
    "host-unreachable": (_file(Reachability),),
    "interface-mtu-differs": (BootForm(Interfaces, (BootFiles, link_mtu.LinkFiles, Interfaces), link_mtu.interfaces),),
    "listen-queue-short": (_QUEUES,),
    "local-ports-few": (_PORTS,),
    "locked-memory-limit-low": (_LIMITS,),
    "master-address-unresolved": (_NAMES,),
    "master-port-unreserved": (_PORTS,),
    "neighbour-table-small": (
        BootForm(NeighbourTable, (SysctlFiles, BootFiles, NeighbourTable), kernel_settings.neighbour_table),
    ),
    "npu-user-not-in-group": (_file(JobAccess),),
    "numa-balancing-on": (
        BootForm(HostSettings, (SysctlFiles, BootFiles, HostSettings), kernel_settings.numa_balancing),
    ),
    "numpy-too-new": (_file(PythonEnv),),
    "open-files-limit-low": (_LIMITS,),
    "overcommit-forbidden": (
        BootForm(MemoryCommitment, (SysctlFiles, BootFiles, MemoryCommitment), kernel_settings.memory_commitment),
    ),
    "process-limit-low": (_LIMITS,),
    "shm-docker-default": (_SHM,),
    "shm-too-small": (_SHM,),
    "syn-queue-short": (_QUEUES,),
    "sysctl-lost-at-reboot": (_file(SysctlFiles),),
    "tls-switch-differs": (_TLS,),
    "tls-certificate-expired": (_TLS,),
}
"""By check. `sysctl-lost-at-reboot` and `hccn-conf-differs` themselves compare what is now with what files set."""


def boot_facts(checks: Iterable[Check]) -> list[type[Fact]]:
    """What must be read for these checks: the facts that they take as now, and what their forms are derived from."""
    facts: list[type[Fact]] = []
    for check in checks:
        forms = FORMS.get(check.name, ())
        derived = {form.fact for form in forms}
        facts += [fact for fact in check.facts if forms and fact not in derived]
        facts += [need for form in forms for need in form.reads]
    return facts


def compares_boot_facts(check: Check) -> bool:
    """Its verdict on one host needs what other hosts load when they start."""
    derived = {form.fact for form in FORMS.get(check.name, ())}
    return any(need.fleet and need.type in derived for need in check.needs)
