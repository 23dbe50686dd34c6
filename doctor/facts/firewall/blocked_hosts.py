"""Whether a host's own firewall stops the job: what firewall-blocks-job reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.fact import PerHost, Unreadable
from doctor.facts.firewall import FirewallRules
from doctor.facts.firewall.gate import may_stop_resets
from doctor.facts.firewall.job import JobPorts, find_blocks, gate_query, job_ports
from doctor.facts.firewall.routes import Route, find_master, find_routes
from doctor.facts.names import HostNames
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory
from doctor.facts.ports import Listeners, ReservedPorts
from doctor.job import LaunchConfig


class HostFirewalls(msgspec.Struct, frozen=True):
    """What the verdict on a host's rules needs, of all hosts."""

    rules: Mapping[str, FirewallRules]
    addresses: PerHost[HostAddresses]
    names: Mapping[str, HostNames]
    reserved: Mapping[str, ReservedPorts]
    listeners: Mapping[str, Listeners]
    npus: Mapping[str, NpuInventory]
    launch: LaunchConfig

    def stops_job(self, host: str) -> bool:
        """Whether the rules of the host surely stop a part of the job's connections; False where that is not known."""
        if not self._is_known(host):
            return False
        master, routes, ports = self._job_of(host)
        try:
            return bool(find_blocks(self.rules[host], routes, ports, master))
        except Unreadable:
            return False

    def may_stop_resets(self, host: str, *, outgoing: bool) -> bool:
        """Whether a rule of the host may stop the resets that it sends, or those that come back to it."""
        if not self._is_known(host):
            return False
        _, routes, ports = self._job_of(host)
        rules = self.rules[host]
        return any(
            may_stop_resets(rules.tables, gate_query(rules, route, ports), outgoing=outgoing) for route in routes
        )

    def _is_known(self, host: str) -> bool:
        return all(host in facts for facts in (self.rules, self.addresses, self.names, self.reserved, self.listeners))

    def _job_of(self, host: str) -> tuple[str, Sequence[Route], JobPorts]:
        host_addresses = self.addresses[host]
        master = find_master(self.launch.master_addr, self.names[host], host_addresses, self.addresses)
        ports = job_ports(self.launch, self.reserved[host], self.listeners[host], host in self.npus)
        return master.host, find_routes(host_addresses, self.addresses, master), ports
