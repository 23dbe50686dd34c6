from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.job import RankTable, limit_items


@check(severity=ERROR, area="ranks")
def rank_table_number_unquoted(table: RankTable) -> Iterator[Finding]:
    """All ids, counts and ports of the rank table are written as text, in quotes.

    ## Why it matters
    The parsers of versions 1.0, 1.2 and of the group_list take text only. A bare number ends the job at its start with
    EI0017, `json object property value of Name[rank_id] is not string`.

    ## What to do
    For {field} write {expected}, in quotes, instead of {observed}. In a generator, wrap the numbers in `str()`. `cp -p
    {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the
    hosts.

    ## Source
    HCOMM `topoinfo_ranktableParser.cc` (GetJsonProperty, GetJsonArrayMemberProperty). Numbers belong to version 2.0.
    """
    bare: dict[str, list[str]] = defaultdict(list)
    example: dict[str, tuple[str, str]] = {}
    for problem in table.problems:
        if problem.kind == "unquoted":
            bare[problem.field].append(problem.path)
            example.setdefault(problem.field, (problem.observed, problem.expected))
    for field, places in sorted(bare.items()):
        observed, expected = example[field]
        yield Finding(
            "{field} is a bare number: {places}",
            field=field,
            places=limit_items(places),
            observed=observed,
            expected=expected,
        )
    table.require_fields()
