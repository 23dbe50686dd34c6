from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.job import RankTable, limit_items, parse_address


@check(severity=ERROR, area="ranks")
def rank_table_families_mixed(table: RankTable) -> Iterator[Finding]:
    """All device addresses of the rank table are IPv4, or all are IPv6.

    ## Why it matters
    HCCL stops with `rank[0] device ip family[2] is not same as others[10]` (2 is IPv4, 10 is IPv6).

    ## What to do
    Give all devices addresses of one family, and put those into the table. `cp -p {rank_table} {rank_table}.old &&
    doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCCL documentation, `device_ip`; the message is from HCCL `config.cc`.
    """
    by_family: dict[int, list[tuple[str, str]]] = defaultdict(list)
    devices = 0
    for rank in table.ranks:
        addresses = {parsed.version: parsed for parsed in filter(None, map(parse_address, rank.device_ips))}
        devices += bool(addresses)
        for version, address in addresses.items():
            by_family[version].append((rank.host, filled("{0} ({1})", rank, address)))
    if not by_family:
        table.require_fields("device_ip")
        raise Skip("the table has no device address")
    if all(len(addresses) < devices for addresses in by_family.values()):
        few_of = min(by_family, key=lambda version: (len(by_family[version]), version))
        minority = by_family[few_of]
        tie = all(len(addresses) == len(minority) for addresses in by_family.values())
        accused = [address for addresses in by_family.values() for address in addresses] if tie else minority
        yield Finding(
            "{count} of {total} device addresses are IPv{version}, the others are not: {which}",
            hosts=tuple(dict.fromkeys(host for host, _ in accused)),
            count=len(minority),
            total=devices,
            version=few_of,
            which=limit_items(name for _, name in minority),
            tie=tie,
        )
    table.require_fields("device_ip")
