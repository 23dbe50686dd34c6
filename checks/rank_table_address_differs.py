from collections import Counter
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled, joined
from doctor.engine.fact import Unreadable
from doctor.facts.hccn.device_addresses import DeviceAddresses
from doctor.facts.network import HostAddresses
from doctor.job import Rank, RankTable, limit_items, match_servers, parse_address

MAX_EDITS = 8
"""Of more, the table is written anew."""


@check(severity=ERROR, area="ranks")
def rank_table_address_differs(
    table: RankTable, addresses: PerHost[DeviceAddresses], hosts: PerHost[HostAddresses] | None
) -> Iterator[Finding]:
    """The device addresses in the rank table match those of the devices.

    ## Why it matters
    HCCL compares them at the start and stops (EI0014, the IP address in the ranktable is inconsistent with the IP
    address of the network adapter). Tables go stale when a device gets a new address or a host is replaced.

    ## What to do
    If the devices are right: {edit}
    Or `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}`, which writes the table
    anew from the hosts. If the table is right: give the devices its addresses with hccn_tool.

    ## Source
    HCCL documentation, fault diagnosis, rank table load failure.
    """
    here, _ = match_servers(table, [*addresses, *(hosts or ())], hosts)
    unsure: list[str] = []
    repeated = False
    for host, servers in here.items():
        if host not in addresses:
            continue
        wrong: list[str] = []
        edits: list[str] = []
        devices = Counter(rank.device_id for server in servers for rank in server.ranks)
        for rank in (rank for server in servers for rank in server.ranks if rank.device_ips):
            has = _device_address(rank, addresses[host])
            if devices[rank.device_id] > 1:  # which of the ranks has the wrong device, the table does not say
                repeated = True
            elif has is None:
                unsure.append(filled("{0} device {1}", host, rank.device_id))
            elif has not in [str(parse_address(ip)) for ip in rank.device_ips]:
                edits += [] if has == "none" else [table.edit(rank, "device_ip", has)]
                wrong.append(filled("device {0} has {1}, not {2}", rank.device_id, has, ",".join(rank.device_ips)))
        if wrong:
            template = "the device addresses of {host} differ from the rank table: {devices}"
            yield Finding(
                template, hosts=(host,), host=host, devices=joined("; ", limit_items(wrong)), edit=_all_edits(edits)
            )
    table.require_fields("device_id", "device_ip", "server_id")
    if repeated and not unsure:
        raise Unreadable("the table gives one device to several ranks", "rank-table-device-repeated")
    if unsure or not any(host in addresses for host in here):
        cause = ", ".join(limit_items(unsure)) if unsure else "no host of the table is among those that answered"
        raise Unreadable(filled("could not be compared: {0}", cause), "" if unsure else "rank-table-host-unknown")


def _all_edits(edits: list[str]) -> str:
    """All of them, else none: a table that is corrected in part is still wrong."""
    return joined(" ", edits) if len(edits) <= MAX_EDITS else ""


def _device_address(rank: Rank, device_addresses: DeviceAddresses) -> str | None:
    """The device's address, or None where it was not read: only IPv4 is, for a device that has both."""
    if rank.device_id in device_addresses.unset:
        return "none"
    live = device_addresses.by_npu.get(rank.device_id) if rank.device_id is not None else None
    versions = {parsed.version for parsed in map(parse_address, rank.device_ips) if parsed}
    return str(live.ip) if live and live.version in versions else None
