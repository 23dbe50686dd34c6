from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.job import RankTable, limit_items


@check(severity=ERROR, area="ranks")
def rank_table_ranks_not_contiguous(table: RankTable) -> Iterator[Finding]:
    """The rank ids are 0 to N-1, each once.

    ## Why it matters
    HCCL sorts the entries by rank id and expects number n at position n (EI0014). With a gap or a duplicate the group
    cannot be formed. Tables of single hosts that were joined by hand all begin with rank 0.

    ## What to do
    Renumber the ranks, host by host. `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out
    {rank_table}` writes the table anew from the hosts. `merge_hccl.py` numbers them when it joins the files of single
    hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (ParserClusterInfo); HCCL documentation, `rank_id`.
    """
    if not table.has_rank_ids:
        raise Skip("this form has no rank ids: HCCL numbers the devices itself")
    holders: dict[int, list[str]] = defaultdict(list)
    for rank in table.ranks:
        if rank.rank_id is not None:
            holders[rank.rank_id].append(filled("{0} device {1}", rank.host, rank.device_id))
    total = len(table.ranks)
    twice = {number: who for number, who in sorted(holders.items()) if len(who) > 1}
    for number, who in list(twice.items())[:8]:
        yield Finding("rank {rank} appears {times} times: {who}", rank=number, times=len(who), who=limit_items(who, 4))
    if len(twice) > 8:
        yield Finding(
            "{count} more ranks appear several times: {ranks}",
            count=len(twice) - 8,
            ranks=limit_items(list(twice)[8:]),
        )
    over = [number for number in sorted(holders) if number >= total]
    if over:
        yield Finding(
            "ranks beyond the last: {ranks}",
            ranks=limit_items(over),
            expected=filled("0 to {0}, for {1} devices", total - 1, total),
        )
    table.require_fields("rank_id")
    absent_ranks = [number for number in range(total) if number not in holders]
    if absent_ranks:
        yield Finding(
            "ranks are missing: {ranks}",
            ranks=limit_items(absent_ranks),
            expected=filled("0 to {0}, for {1} devices", total - 1, total),
        )
