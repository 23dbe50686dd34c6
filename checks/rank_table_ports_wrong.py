from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job import RankTable, limit_items


@check(severity=ERROR, area="ranks")
def rank_table_ports_wrong(table: RankTable) -> Iterator[Finding]:
    """Every port of the rank table is from 1 to 65535, and no two devices of a host share a host_port.

    ## Why it matters
    HCCL stops at a port that is 0, above 65535 or not a number. Two processes of one host cannot listen on the same
    host port: the second fails, or answers instead of the first.

    ## What to do
    Correct {field}, or leave the field out: a number from 1 to 65535, for each device of a host another one.
    `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from
    the hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetSingleDevicePort, GetSingleDeviceHostPort, VerifyBackupDeviceIpAndPort);
    HCCL documentation, `device_port`, `host_port`, `backup_device_port`.
    """
    ports_of = {ip: rank.ports.get("device_port") for rank in table.ranks for ip in rank.device_ips}
    wrong: dict[str, list[str]] = defaultdict(list)
    taken: dict[tuple[str, int], list[str]] = defaultdict(list)
    for rank in table.ranks:
        for field, text in rank.ports.items():
            number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
            if not 1 <= number <= 65535:
                wrong[field].append(filled("{0} ({1})", text or "empty", rank))
            elif field == "host_port":
                taken[rank.host, number].append(str(rank))
        backup = rank.ports.get("backup_device_port")
        if backup and backup in [ports_of.get(ip) for ip in rank.backup_ips]:
            wrong["backup_device_port"].append(
                filled("{0} ({1}), which is the other device's own device_port", backup, rank)
            )
    for field, which in sorted(wrong.items()):
        yield Finding(
            "the rank table has a {field} that is no port: {observed}",
            field=field,
            observed=limit_items(which),
            expected="1 to 65535",
        )
    for (host, port), ranks in sorted(taken.items()):
        if len(ranks) > 1:
            rank_names = limit_items(ranks, 4)
            yield Finding(
                "host_port {port} of {host} is given to {ranks}",
                hosts=(host,),
                port=port,
                host=host,
                ranks=rank_names,
                field="host_port",
            )
    table.require_fields("device_port", "host_port", "backup_device_port")
