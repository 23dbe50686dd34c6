from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.job import RankTable, RankTableProblem, limit_items


@check(severity=ERROR, area="ranks")
def rank_table_field_missing(table: RankTable) -> Iterator[Finding]:
    """Every field that the form of the rank table requires is present and of the right type.

    ## Why it matters
    HCCL stops at the first field that is missing or of another type (EI0017: Config ... is missing in the ranktable
    file; EI0014 for an invalid number), on every rank, before any communication.

    ## What to do
    `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from
    the hosts. To add the field by hand: `device` and `devices` hold objects; ids are whole numbers written as text, and
    each rank has its own: the first of the job `"rank_id": "0"`. In a group_list, every group and every pod has a name
    of its own.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` and `topoinfo_ranktableStandard.cc`; HCCL documentation, rank table tables of
    910, A2 and A3. `server_count` is required by the documentation for 1.0; recent versions only warn.
    """
    absent_paths: dict[str, list[str]] = defaultdict(list)
    broken: dict[tuple[str, str], list[RankTableProblem]] = defaultdict(list)
    for problem in table.problems:
        if problem.kind == "missing":
            absent_paths[problem.field].append(problem.path)
        elif problem.kind == "value":
            broken[problem.field, problem.expected].append(problem)
    for field, places in sorted(absent_paths.items()):
        yield Finding("{field} is missing: {places}", field=field, places=limit_items(places))
    for (field, expected), problems in sorted(broken.items()):
        places, observed = limit_items(p.path for p in problems), limit_items((p.observed or '""' for p in problems), 3)
        yield Finding(
            "{field}: not what the form requires, at {places}",
            field=field,
            places=places,
            observed=observed,
            expected=expected,
        )
