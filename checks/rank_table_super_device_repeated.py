from collections import defaultdict
from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.job import Rank, RankTable, limit_items


@check(severity=ERROR, area="ranks")
def rank_table_super_device_repeated(table: RankTable) -> Iterator[Finding]:
    """Every device of a super pod has a unique super_device_id.

    ## Why it matters
    HCCL stops at a super_device_id that is empty or not a number (EI0014), and at two equal ones in one super pod
    (`devices have same superDeviceId`). It finds devices by this number: a wrong number selects another device.

    ## What to do
    {edit}
    `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew
    from the hosts. `npu-smi info -t spod-info -i {card} -c {chip}` on {owner} shows the super_device_id of NPU
    {npu}, called SDID there.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetSingleSuperDeviceId, CheckSuperPodInfo); HCCL documentation, A3.
    """
    if table.form != "1.2":
        raise Skip("only version 1.2 has super_device_id")
    if table.super_pods is None and all(rank.super_device_id is None for rank in table.ranks):
        table.require_fields("super_device_id")
        raise Skip("the table lists no super pods: HCCL treats the hosts as single servers")
    bad: list[tuple[str, str]] = []
    owners: dict[tuple[str, int], list[Rank]] = defaultdict(list)
    for rank in table.ranks:
        text = rank.super_device_id
        if text is not None and text.isascii() and text.isdecimal() and len(text) < 11 and int(text) < 1 << 32:
            owners[rank.super_pod_id, int(text)].append(rank)
        elif text is not None or table.super_pods is not None:
            bad.append((rank.host, filled("{0} ({1})", text or "nothing", rank)))
    if bad:
        hosts, observed = tuple(dict.fromkeys(host for host, _ in bad)), limit_items(text for _, text in bad)
        yield Finding(
            "super_device_id cannot be used",
            hosts=hosts,
            observed=observed,
            expected="the device's SDID, a whole number",
        )
    coded = {path: number for server in table.servers for path, number in server.coded_ids().items()}
    for (pod, number), ranks in sorted(owners.items()):
        if len(ranks) > 1:
            wrong = [rank for rank in ranks if coded.get(rank.path, number) != number] or ranks
            yield Finding(
                "{ranks} have the same super_device_id {id} in super pod {pod}",
                hosts=tuple(dict.fromkeys(rank.host for rank in wrong)),
                id=number,
                pod=pod or '""',
                ranks=limit_items(ranks, 4),
                places=[rank.path for rank in wrong],
                edit=table.edit(wrong[-1], "super_device_id", coded.get(wrong[-1].path)),
                owner=wrong[-1].host,
                npu=wrong[-1].device_id,
                card=None if wrong[-1].device_id is None else wrong[-1].device_id // 2,
                chip=None if wrong[-1].device_id is None else wrong[-1].device_id % 2,
            )
    table.require_fields("super_device_id")
