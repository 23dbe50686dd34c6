from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.job import NotARankTable, RankTableFile, read_rank_table


@check(severity=ERROR, area="ranks")
def rank_table_version_unknown(file: RankTableFile) -> Iterator[Finding]:
    """The rank table has a form that doctor can check: version 1.0, 1.2 or 2.0, a group_list, or a serving stack's.

    ## Why it matters
    HCCL chooses its parser by the version. Without one it expects a `group_list` and stops at a `server_list`. A table
    of another form (1.1 exists) is not checked: every other check of the table is unknown for it.

    ## What to do
    Set `"version": "1.0"` for servers, `"1.2"` for A3 super pods, `"2.0"` with a rank_list for the 950 family. `cp -p
    {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the
    hosts.

    ## Source
    HCOMM `topoinfo_ranktableParser.cc` (GetRanktableVersion); HCCL documentation, rank table configuration.
    """
    try:
        read_rank_table(file.path, file.text)
    except NotARankTable as why:
        if why.form:
            return
        if why.root_cause != "rank-table-version-unknown":
            raise
        yield Finding(
            "{path}: {why}",
            path=file.path,
            why=why.reason,
            expected="1.0, 1.2, 2.0 with a rank_list, or a group_list without version",
        )
