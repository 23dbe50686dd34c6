from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.fact import Unreadable
from doctor.engine.texts import enumerated
from doctor.facts.network import HostAddresses
from doctor.facts.npu import NpuInventory
from doctor.job import RankTable, limit_items, match_servers

LOST = "The host has fewer devices than the table lists: one has dropped out, or was not passed to the container."


@check(severity=ERROR, area="ranks")
def rank_table_device_missing(
    table: RankTable, devices: PerHost[NpuInventory], hosts: PerHost[HostAddresses] | None
) -> Iterator[Finding]:
    """Every device that the rank table names exists on its host.

    ## Why it matters
    The process of that rank cannot open its device. All others wait for it until HCCL_CONNECT_TIMEOUT ends.

    ## What to do
    {edit}
    {lost}
    `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew
    from the hosts. On {host}: `ls /dev/davinci[0-9]*` shows the devices; the table needs these physical numbers.

    ## Source
    HCCL documentation, `device_id`; HCOMM `topoinfo_ranktableConcise.cc` (ParserClusterInfo).
    """
    here, _ = match_servers(table, [*devices, *(hosts or ())], hosts)
    for host, servers in here.items():
        if host not in devices:
            continue
        present_devices = set(devices[host].devices)
        named = {rank.device_id for server in servers for rank in server.ranks if rank.device_id is not None}
        if named - present_devices:
            ranks = [rank for server in servers for rank in server.ranks if rank.device_id is not None]
            wrong = [rank for rank in ranks if rank.device_id not in present_devices]
            free = sorted(present_devices - named)
            yield Finding(
                "{host} has no device {missing}",
                hosts=(host,),
                host=host,
                missing=limit_items(sorted(named - present_devices)),
                edit=table.edit(wrong[0], "device_id", free[0]) if len(wrong) == len(free) == 1 else "",
                lost="" if len(named) <= len(present_devices) else LOST,
                observed=filled(
                    "the host has {0}; the table lists {1}",
                    enumerated(limit_items(sorted(present_devices), 16)),
                    enumerated(limit_items(sorted(named), 16)),
                ),
            )
    table.require_fields("device_id", "server_id")
    if not any(host in devices for host in here):
        raise Unreadable("no host of the table is among those that answered", "rank-table-host-unknown")
