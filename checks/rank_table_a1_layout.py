from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, RankTable, limit_items, product_family


@check(severity=ERROR, area="ranks")
def rank_table_a1_layout(
    table: RankTable, launch: LaunchConfig, products: PerHost[NpuProduct] | None
) -> Iterator[Finding]:
    """On the A1 family every host has the same number of devices: 1, 2, 4 or 8, with 2 or 4 in one half.

    ## Why it matters
    On A1 hosts HCCL refuses a group of 3, 5, 6 or 7 devices, and a group whose hosts have unequal numbers. It also
    refuses two or four devices from both rings (0 to 3 and 4 to 7). A2 and A3 have no such rule.

    ## What to do
    In the rank table, list devices 0 to 3, or 4 to 7, or all eight, the same number on every host. `cp -p {rank_table}
    {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCCL documentation, cluster sizes of the Atlas training products; MindSpore models `hccl_tools.py`. A table of
    version 1.2 is never one of A1, and one that keeps the rule is sound on every family.
    """
    if table.form == "1.2" or (launch.product or _reported(products)) not in ("", "A1"):
        raise Skip("this rule applies to the A1 family only")
    findings = list(_broken_rules(table))
    if findings and product_family(launch, products) != "A1":
        raise Skip("this rule applies to the A1 family only")
    yield from findings
    table.require_fields("device_id", "server_id")


def _reported(products: PerHost[NpuProduct] | None) -> str:
    """The family that all hosts report; empty when they report none, or several."""
    families = {product.family for product in (products or {}).values()}
    return families.pop() if len(families) == 1 else ""


def _broken_rules(table: RankTable) -> Iterator[Finding]:
    counts: dict[str, int] = {}
    for server in table.servers:
        name, ids = server.server_id, sorted({rank.device_id for rank in server.ranks if rank.device_id is not None})
        counts[name] = len(server.ranks)
        if counts[name] not in (1, 2, 4, 8):
            expected = filled("{0}, {1}, {2} or {3}", 1, 2, 4, 8)
            yield Finding(
                "the rank table lists {count} devices of it: {observed}",
                hosts=(name,),
                count=counts[name],
                observed=ids,
                expected=expected,
            )
        elif counts[name] in (2, 4) and ids and ids[0] < 4 <= ids[-1]:
            expected = "all of them in 0 to 3, or all in 4 to 7"
            yield Finding(
                "its devices in the rank table lie in both halves", hosts=(name,), observed=ids, expected=expected
            )
    if len(set(counts.values())) > 1:
        hosts_by_count = {
            number: limit_items(sorted(h for h, n in counts.items() if n == number), 4)
            for number in sorted(set(counts.values()))
        }
        yield Finding(
            "the rank table lists different numbers of devices: {counts}",
            counts=hosts_by_count,
            expected="the same number on every host",
        )
