from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.job import RankTable


@check(severity=WARNING, area="ranks")
def rank_table_super_pod_absent(table: RankTable) -> Iterator[Finding]:
    """A rank table of version 1.2 has both super_pod_list and super_device_id.

    ## Why it matters
    Version 1.2 is for super pods. Without one of the two, HCCL silently treats the hosts as single servers: traffic
    leaves the fast links of the super pod for RoCE, and every device needs a device_ip.

    ## What to do
    Add what is missing, or set version 1.0 if single servers are meant. `cp -p {rank_table} {rank_table}.old && doctor
    rank-table {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCCL documentation, rank table configuration of A3: `super_pod_list`, `super_device_id`.
    """
    if table.form != "1.2":
        raise Skip("only version 1.2 has super pods")
    if table.super_pods is None:
        yield Finding("{path} has version 1.2 but no super_pod_list", path=table.path)
    if table.ranks and all(rank.super_device_id is None for rank in table.ranks):
        yield Finding("{path} has version 1.2 but no super_device_id", path=table.path)
    table.require_fields("super_device_id", "super_pod_list")
