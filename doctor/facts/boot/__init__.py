"""What a check gets as after a reboot: a row for each check whose facts are derived from what a host loads at boot.

A row names the facts that are derived so; the check's other facts are taken as they are now. A check without a row is
not looked at. The check itself judges, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from doctor.engine.boot_form import BootForm
from doctor.engine.check import Check
from doctor.engine.fact import Fact
from doctor.facts.access import JobAccess
from doctor.facts.boot import kernel_settings, link_mtu, npu_ports, services
from doctor.facts.boot.files import BootFiles
from doctor.facts.boot.firewall import BootFirewall, firewall_rules
from doctor.facts.boot.login_limits import LoginUser, login_limits
from doctor.facts.firewall import FirewallRules
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.hccn import DetectAddresses, DeviceAddresses, DeviceFec, DeviceGateways, HccnConf, TlsSwitches
from doctor.facts.host_settings import HostSettings
from doctor.facts.interfaces import Interfaces
from doctor.facts.kernel import Conntrack, ListenQueues, SysctlFiles
from doctor.facts.limits import ResourceLimits
from doctor.facts.memory import HostMemory, MemoryCommitment, SharedMemory
from doctor.facts.names import HostNames
from doctor.facts.neighbour_table import NeighbourTable
from doctor.facts.nvlink import FabricManager
from doctor.facts.ports import ReservedPorts
from doctor.facts.python_env import PythonEnv
from doctor.facts.visit import ClockOffset, Reachability

NOT_LOOKED_AT = "not looked at: no file that a host loads at boot tells it"
"""Why a check without a row has no result."""


def _file(fact: type[Fact]) -> BootForm:
    """A fact that is itself what files hold: a reboot does not change it."""
    return BootForm(fact, (fact,), lambda value: value, keeps_now=True)


def _hccn(fact: type[Fact], build: Callable[..., Fact]) -> BootForm:
    return BootForm(fact, (HccnConf, fact), build, may_lack=(HccnConf,))


_QUEUES = BootForm(ListenQueues, (SysctlFiles, BootFiles, HostMemory), kernel_settings.listen_queues)
_PORTS = BootForm(ReservedPorts, (SysctlFiles, BootFiles), kernel_settings.reserved_ports)
_NAMES = BootForm(HostNames, (BootFiles, services.CloudSetting, HostNames), services.host_names, keeps_now=True)
_SHM = BootForm(SharedMemory, (BootFiles, HostMemory, SharedMemory), services.shared_memory)
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
