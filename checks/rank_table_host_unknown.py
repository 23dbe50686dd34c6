from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.network import HostAddresses
from doctor.job import RankTable, limit_items, match_servers


@check(severity=WARNING, area="ranks")
def rank_table_host_unknown(table: RankTable, hosts: PerHost[HostAddresses]) -> Iterator[Finding]:
    """The rank table and the list of hosts name the same hosts.

    ## Why it matters
    A host that only the rank table names is not examined. A host that only the list names takes no part in the job. An
    entry that matches no host may be an old address.

    ## What to do
    If only some of the job's hosts are checked, hosts that only the table names are expected. Else compare both lists:
    an entry's server_id or host_ip must be a host's name, or an address that only this host has. `cp -p {rank_table}
    {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCCL documentation, `server_id`, `host_ip`; entries are matched by name, then by the addresses of the host.
    """
    here, nowhere = match_servers(table, hosts, hosts)
    if nowhere:
        which = limit_items(f"{server.server_id or server.path}" for server in nowhere)
        yield Finding("in the rank table, but not among the checked hosts: {which}", which=which)
    strange = [host for host in hosts if host not in here]
    if strange:
        yield Finding("checked, but not in the rank table: {which}", hosts=strange, which=limit_items(strange))
    for host, servers in here.items():
        if len(servers) > 1:
            which = limit_items(server.path for server in servers)
            yield Finding("several entries match {host}: {which}", hosts=(host,), host=host, which=which)
    table.require_fields("server_id", "host_ip")
