from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, RankTable, limit_items, parse_address, table_family


@check(severity=ERROR, area="ranks")
def rank_table_address_invalid(
    table: RankTable, launch: LaunchConfig, products: PerHost[NpuProduct] | None
) -> Iterator[Finding]:
    """Every address in the rank table is valid, and present where the product needs it.

    ## Why it matters
    HCCL refuses anything that is not an IPv4 or IPv6 address (EI0014). It refuses a missing device_ip as well: always
    on A1, and on A2 as soon as there are two hosts. On A3 it needs one between super pods, between hosts without them,
    and when HCCS is switched off.

    ## What to do
    `for n in $(seq 0 7); do hccn_tool -i $n -ip -g; done` on the host shows the addresses of NPUs 0 to 7. `cp -p
    {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the
    hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetSingleDeviceIp); HCCL documentation, `device_ip`, `host_ip`.
    """
    for field, owners in (
        ("device_ip", [(rank.host, str(rank), ip) for rank in table.ranks for ip in rank.device_ips]),
        ("backup_device_ip", [(rank.host, str(rank), ip) for rank in table.ranks for ip in rank.backup_ips]),
        ("host_ip", [(server.server_id, server.path, server.host_ip) for server in table.servers if server.host_ip]),
    ):
        bad = [(host, filled("{0} ({1})", ip or "empty", who)) for host, who, ip in owners if not parse_address(ip)]
        if bad:
            hosts = tuple(dict.fromkeys(host for host, _ in bad))
            observed = limit_items(text for _, text in bad)
            yield Finding(
                "{field} is not a valid address",
                hosts=hosts,
                field=field,
                observed=observed,
                expected="an IPv4 or IPv6 address",
            )
    numbers = sorted({len(rank.device_ips) for rank in table.ranks if rank.device_ips})
    if len(numbers) > 1:
        yield Finding(
            "the devices have different numbers of addresses", observed=numbers, expected="the same number for all"
        )
    without = [rank for rank in table.ranks if not rank.device_ips]
    if without and _needs_device_ips(table, launch, products):
        hosts = tuple(dict.fromkeys(rank.host for rank in without))
        yield Finding("device_ip is missing for {ranks}", hosts=hosts, ranks=limit_items(without))
    table.require_fields("device_ip", "host_ip")


def _needs_device_ips(table: RankTable, launch: LaunchConfig, products: PerHost[NpuProduct] | None) -> bool:
    """Whether every device must have an address. What is the same for all families needs no family."""
    many = len({server.server_id for server in table.servers}) > 1
    with_pods = table.super_pods is not None and all(rank.super_device_id for rank in table.ranks)
    if many and not with_pods:
        return True
    product = table_family(table, launch, products)
    if product == "A3":
        switched_off = launch.env.get("HCCL_INTER_HCCS_DISABLE", "").upper() == "TRUE"
        return switched_off or len(table.super_pods or ()) > 1
    return many or product == "A1"
