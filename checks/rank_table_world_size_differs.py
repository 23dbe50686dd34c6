from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.job import LaunchConfig, RankTable


@check(severity=ERROR, area="ranks")
def rank_table_world_size_differs(table: RankTable, launch: LaunchConfig) -> Iterator[Finding]:
    """The job has as many ranks as the rank table lists.

    ## Why it matters
    With fewer processes than entries the group waits for ranks that never start; with more, the last ones find no entry
    of their own and fail (EI0014).

    ## What to do
    {command}
    If the number is right and the table is not: `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts}
    --out {rank_table}`.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (ParserClusterInfo); MindSpore documentation, rank table start-up.
    """
    sizes = launch.stated_ranks
    if launch.world_size is not None and launch.world_size not in sizes.values():
        sizes["the world size"] = launch.world_size
    if not sizes:
        raise Skip("the number of ranks of the job is not known")
    table.require_fields()
    for name, number in sorted(sizes.items()):
        if number != len(table.ranks):
            yield Finding(
                "{name} differs from the number of entries in {path}",
                name=name,
                path=table.path,
                command=""
                if " " in name
                else filled("Where the job is launched: `export {0}={1}`.", name, len(table.ranks)),
                observed=number,
                expected=len(table.ranks),
            )
