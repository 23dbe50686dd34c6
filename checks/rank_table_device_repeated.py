from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, RankTable, limit_items, table_family


@check(severity=ERROR, area="ranks")
def rank_table_device_repeated(
    table: RankTable, launch: LaunchConfig, products: PerHost[NpuProduct] | None
) -> Iterator[Finding]:
    """Every device_id in the rank table appears once per host, and is a number that the product has.

    ## Why it matters
    HCCL refuses a device_id that appears twice on a host, above 7 on the A1 family, or above 15 on A2 and A3. The
    number is the physical one, N of /dev/davinciN: a container that sees two devices may have 6 and 7.

    ## What to do
    `ls /dev/davinci[0-9]*` on the host shows the numbers; `npu-smi info -m` shows which device has which number.
    {free} Or `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}`, which writes
    the table anew from the hosts.

    ## Source
    HCOMM `topoinfo_ranktableConcise.cc` (GetSingleDevice), `topoinfo_ranktableStandard.cc` (GetCloudDevList).
    """
    by_host: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for rank in table.ranks:
        if rank.device_id is not None:
            by_host[rank.host][rank.device_id].append(str(rank))
    for host, devices in sorted(by_host.items()):
        for device, ranks in sorted(devices.items()):
            if len(ranks) > 1:
                rank_names = limit_items(ranks, 4)
                yield Finding(
                    "{host} device {device} is given to {ranks}",
                    hosts=(host,),
                    host=host,
                    device=device,
                    ranks=rank_names,
                    free=_free(devices, len(ranks) - 1),
                )
    highest = {host: max(devices) for host, devices in by_host.items()}
    if any(7 < number <= 15 for number in highest.values()) and table.form != "group_list":
        last = 7 if table_family(table, launch, products) == "A1" else 15
    else:
        last = 15 if table.form != "group_list" else 7
    for host, number in sorted(highest.items()):
        if number > last:
            expected = filled("0 to {0}", last)
            yield Finding(
                "{host} has no device {device}",
                hosts=(host,),
                host=host,
                device=number,
                observed=number,
                expected=expected,
                free="",
            )
    table.require_fields("device_id")


def _free(devices: Mapping[int, Collection[str]], needed: int) -> str:
    """The numbers that the table leaves out between those of the host, where they are as many as are needed."""
    gaps = [number for number in range(max(devices) + 1) if number not in devices]
    gaps = gaps or [max(devices) + 1] if needed == 1 else gaps
    text = "The table gives {0} to no rank: give it to one of these ranks, the one whose device_ip is that device's."
    return filled(text, ", ".join(map(str, gaps))) if len(gaps) == needed else ""
