from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job import RankTable, limit_items, parse_address


@check(severity=ERROR, area="ranks")
def rank_table_address_repeated(table: RankTable) -> Iterator[Finding]:
    """No address of the rank table is given to two devices, or to two hosts.

    ## Why it matters
    HCCL refuses a device_ip that appears twice (EI0014, "IP" is repeate). The same holds for a backup_device_ip, and
    for one that equals the device's own device_ip.

    ## What to do
    Read the real addresses on each host (`for n in $(seq 0 7); do hccn_tool -i $n -ip -g; done`), and put them into the
    table. If two devices do have the same address, give one of them another: device-ip-conflict explains how. `cp -p
    {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the
    hosts.

    ## Source
    HCOMM `topoinfo_ranktableParser.cc` (CheckUniqueAndInsertPool), `topoinfo_ranktableConcise.cc`
    (VerifyBackupDeviceIpAndPort).
    """
    owners: dict[str, dict[str, list[tuple[str, str]]]] = {"device_ip": {}, "backup_device_ip": {}, "host_ip": {}}
    for rank in table.ranks:
        for field, ips in (("device_ip", rank.device_ips), ("backup_device_ip", rank.backup_ips)):
            for ip in ips:
                owner = (rank.host, filled("{0} device {1}", rank.host, rank.device_id))
                owners[field].setdefault(str(parse_address(ip) or ip), []).append(owner)
        shared_ips = sorted(set(rank.device_ips) & set(rank.backup_ips))
        if shared_ips:
            yield Finding(
                "{rank} names its own address {ip} as its backup", hosts=(rank.host,), rank=str(rank), ip=shared_ips[0]
            )
    hosts = defaultdict(set)
    for server in table.servers:
        if server.host_ip:
            hosts[str(parse_address(server.host_ip) or server.host_ip)].add(server.server_id)
    owners["host_ip"] = {ip: [(name, name) for name in sorted(names)] for ip, names in hosts.items()}
    for field, addresses in owners.items():
        for ip, who in sorted(addresses.items()):
            if ip and len(who) > 1:
                blamed = tuple(dict.fromkeys(host for host, _ in who))
                owner_names = limit_items([name for _, name in who], 4)
                yield Finding("{field} {ip} belongs to {owners}", hosts=blamed, field=field, ip=ip, owners=owner_names)
    table.require_fields("device_ip")
