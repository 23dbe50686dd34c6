from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.network import HostAddresses
from doctor.job import RankTable, limit_items, match_servers


@check(severity=WARNING, area="ranks")
def rank_table_host_unknown(table: RankTable, hosts: PerHost[HostAddresses]) -> Iterator[Finding]:
    """The rank table and the list of hosts mean the same hosts.

    ## Why it matters
    A host that is in one list only is either not examined, or takes no part in the job while others wait for it. An
    entry that means no host may be an old address.

    ## What to do
    Compare both lists. An entry's server_id or host_ip has to be a host's name, or an address that it alone has; when
    only some of the job's hosts are looked at, the first finding is to be expected.

    ## Source
    HCCL documentation, `server_id`, `host_ip`; entries are matched by name, then by the addresses of the host.
    """
    here, nowhere = match_servers(table, hosts, hosts)
    if nowhere:
        which = limit_items(f"{server.server_id or server.path}" for server in nowhere)
        yield Finding("in the rank table, and none of the hosts looked at: {which}", which=which)
    strange = [host for host in hosts if host not in here]
    if strange:
        yield Finding("looked at, and not in the rank table: {which}", hosts=strange, which=limit_items(strange))
    for host, servers in here.items():
        if len(servers) > 1:
            which = limit_items(server.path for server in servers)
            yield Finding("several entries mean {host}: {which}", hosts=(host,), host=host, which=which)
    table.require_fields("server_id", "host_ip")
