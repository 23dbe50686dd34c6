from collections.abc import Iterator
from itertools import pairwise

from doctor import ERROR, Finding, Skip, check
from doctor.job import RankTable


@check(severity=ERROR, area="ranks")
def rank_table_ranks_interleave(table: RankTable) -> Iterator[Finding]:
    """The ranks of each host are consecutive, with no rank of another host between them.

    ## Why it matters
    HCCL does not support rank ids of two hosts that are interleaved, such as 0, 1, 2, 7 on one and 3, 4, 5, 6 on the
    other. Its algorithms assume that neighbouring ranks are neighbouring devices.

    ## What to do
    Number host by host: 0 to 7 on the first, 8 to 15 on the second. `cp -p {rank_table} {rank_table}.old && doctor
    rank-table {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCCL documentation, rank table configuration of 910, A2 and A3: `rank_id`.
    """
    if not table.has_rank_ids:
        raise Skip("this form has no rank ids: HCCL numbers the devices itself")
    spans: list[tuple[int, int, str]] = []
    for server in table.servers:
        ids = [rank.rank_id for rank in server.ranks if rank.rank_id is not None]
        if ids:
            spans.append((min(ids), max(ids), server.server_id))
    spans.sort()
    for (first, last, host), (other_first, other_last, other) in pairwise(spans):
        if other_first <= last and host != other:
            yield Finding(
                "ranks {first} to {last} of {host} and {other_first} to {other_last} of {other} are interleaved",
                hosts=(host, other),
                host=host,
                first=first,
                last=last,
                other=other,
                other_first=other_first,
                other_last=other_last,
            )
    table.require_fields("rank_id")
