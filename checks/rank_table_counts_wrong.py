from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.job import RankTable


@check(severity=ERROR, area="ranks")
def rank_table_counts_wrong(table: RankTable) -> Iterator[Finding]:
    """Every count in the rank table matches what the table lists.

    ## Why it matters
    HCCL compares them and stops (EI0014). A wrong count often comes from an edit by hand: a host was added or removed,
    but the count was not updated.

    ## What to do
    {edit}
    `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the whole table
    anew from the hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetServerList), `topoinfo_ranktableStandard.cc` (GetGroupList,
    GetInstanceList) and `topoinfo_ranktableParser.cc` (CheckAverageDev).
    """
    for count in table.counts:
        if count.stated != count.actual:
            yield Finding(
                "{count} is {observed}, and the table lists {expected}",
                count=count.path,
                edit=filled(
                    'If what the table lists is right, write "{2}" in {0}, at {1}.',
                    table.path,
                    count.path,
                    count.actual,
                ),
                observed=count.stated,
                expected=count.actual,
            )
    if table.form == "lab":
        ranks, hosts = len(table.ranks), len(table.servers)
        if hosts and (ranks % hosts or ranks // hosts not in (1, 2, 4, 8, 16)):
            yield Finding(
                "{ranks} devices cannot be divided evenly among {hosts_listed} hosts",
                ranks=ranks,
                hosts_listed=hosts,
                edit="",
                expected="1, 2, 4, 8 or 16 devices on each",
            )
    table.require_fields("server_count", "group_count", "instance_count", "device_count", "device_num", "server_num")
