from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import groupby

from doctor import ERROR, Finding, Skip, check
from doctor.job import RankTable, limit_items


@check(severity=ERROR, area="ranks")
def rank_table_super_pod_wrong(table: RankTable) -> Iterator[Finding]:
    """The super pods have unique names and list every host of the rank table once.

    ## Why it matters
    HCCL stops at an empty or repeated super_pod_id, at a super pod with a host that is not in the table, and at a host
    without a super pod. The hosts of one super pod must be adjacent.

    ## What to do
    In the rank table, put the hosts of one super pod together, in server_list as in super_pod_list. `npu-smi info -t
    spod-info -i 0 -c 0` on each host shows its Super Pod ID. `cp -p {rank_table} {rank_table}.old && doctor rank-table
    {all_hosts} --out {rank_table}` writes the table anew from the hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetSuperPodList, CheckSuperPodInfo); HCCL documentation, A3, last note.
    """
    if table.super_pods is None:
        raise Skip("the table lists no super pods")
    names = Counter(pod.super_pod_id for pod in table.super_pods)
    for name, times in sorted(names.items()):
        if times > 1 or not name:
            yield Finding(
                "the super_pod_id {id} appears {times} times", id=name or '""', times=times, expected="a name, once"
            )
    pods_of: dict[str, list[str]] = defaultdict(list)
    for pod in table.super_pods:
        for host in pod.servers:
            pods_of[host].append(pod.super_pod_id)
    server_ids = list(dict.fromkeys(server.server_id for server in table.servers))
    for template, hosts in (
        ("super pods list hosts that are not in server_list: {which}", sorted(set(pods_of) - set(server_ids))),
        ("no super pod lists {which}", sorted(set(server_ids) - set(pods_of))),
        ("listed more than once: {which}", sorted(host for host, pods in pods_of.items() if len(pods) > 1)),
    ):
        if hosts:
            yield Finding(template, hosts=tuple(hosts), which=limit_items(hosts))
    blocks = Counter(pod for pod, _ in groupby(pods_of[host][0] for host in server_ids if host in pods_of))
    split = sorted(pod for pod, times in blocks.items() if times > 1)
    if split:
        yield Finding("the hosts of super pods {pods} are not adjacent in server_list", pods=limit_items(split))
    table.require_fields("super_pod_list", "super_pod_id", "server_id")
