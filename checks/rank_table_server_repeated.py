from collections.abc import Iterator

from doctor import ERROR, Finding, check, filled
from doctor.engine.addresses import means_own_host
from doctor.job import RankTable, limit_items
from doctor.job.rank_table.model import MAX_SERVER_ID


@check(severity=ERROR, area="ranks")
def rank_table_server_repeated(table: RankTable) -> Iterator[Finding]:
    """Every host of the rank table has a unique server_id that refers to no other host.

    ## Why it matters
    HCCL refuses an id that is empty, longer than 64 characters, or repeated (EI0014). An id of 127.x.x.x or
    `localhost` comes from a generator that resolved the host's own name in /etc/hosts: every host gets the same one.

    ## What to do
    Use the host's own address or name, or fix its line in /etc/hosts. `cp -p {rank_table} {rank_table}.old && doctor
    rank-table {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetSingleServer); MindSpore models `hccl_tools.py` (gethostbyname).
    """
    first: dict[str, str] = {}
    unread = {problem.path for problem in table.problems if problem.kind != "unquoted"}
    for server in table.servers:
        name = server.server_id
        if f"{server.path}.server_id" in unread:
            continue
        if not name:
            yield Finding(
                "{path} has an empty server_id", path=server.path, observed='""', expected="the host's address or name"
            )
        elif len(name) > MAX_SERVER_ID:
            limit = filled("at most {0} characters", MAX_SERVER_ID)
            yield Finding("the server_id of {path} is too long", path=server.path, observed=name, expected=limit)
        elif name in first:
            both = [first[name], server.path]
            yield Finding("the server_id {name} appears twice: {places}", hosts=(name,), name=name, places=both)
        first.setdefault(name, server.path)
    loose = [server.server_id for server in table.servers if means_own_host(server.server_id)]
    if loose and len(table.servers) > 1:
        yield Finding(
            "on every host, {ids} refers to that host itself",
            ids=limit_items(loose),
            expected="the host's own address or name",
        )
    table.require_fields("server_id")
