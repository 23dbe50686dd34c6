from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.engine.shell_quote import quote_value
from doctor.job import LaunchConfig, RankTable


@check(severity=WARNING, area="ranks")
def rank_table_order_not_lexical(table: RankTable, launch: LaunchConfig) -> Iterator[Finding]:
    """The hosts' ranks follow the dictionary order of their server_ids, as MindSpore expects.

    ## Why it matters
    MindSpore takes the rank order to be the dictionary order of the server_ids. In it 10.0.0.10 comes before
    10.0.0.2, so a table in numeric order may give a process the number of another host. torch_npu has no such rule.

    ## What to do
    Where the table is: {sort}
    It writes the hosts in the order of `sort` and numbers the ranks anew. Then copy the table to all hosts.

    ## Source
    MindSpore documentation, rank table start-up: rank_id follows the dictionary order of server_id.
    """
    if not table.has_rank_ids:
        raise Skip("this form has no rank ids: HCCL numbers by the order of the server_ids itself")
    if launch.framework == "torch":
        raise Skip("the job runs under torch, which has no such rule")
    lowest: dict[str, int] = {}
    for rank in table.ranks:
        if rank.rank_id is not None:
            lowest[rank.host] = min(rank.rank_id, lowest.get(rank.host, rank.rank_id))
    by_rank = sorted(lowest, key=lambda host: (lowest[host], host))
    expected_order = sorted(lowest)
    for at, right in zip(by_rank, expected_order, strict=True):
        if at != right:
            template = "from rank {rank} on, the hosts do not follow the order of their server_ids"
            yield Finding(template, rank=lowest[at], observed=at, expected=right, sort=_sort_command(table))
            break
    table.require_fields("rank_id", "server_id")


_SORT = (
    "import json, sys; p = sys.argv[1]; t = json.load(open(p)); s = t['server_list']; "
    "s.sort(key=lambda x: x['server_id']); d = [y for x in s for y in sorted(x['device'], key=lambda y: "
    "int(y['rank_id']))]; [y.update(rank_id=str(n)) for n, y in enumerate(d)]; json.dump(t, open(p, 'w'), indent=1)"
)


def _sort_command(table: RankTable) -> str:
    """Of a table with a server_list; else in words."""
    if table.form not in ("1.0", "1.2"):
        return "order the hosts as `sort` does in the C locale, and number the ranks anew."
    path = quote_value(table.path)
    return f'`cp -p {path} {path}.old && python3 -c "{_SORT}" {path}`'
