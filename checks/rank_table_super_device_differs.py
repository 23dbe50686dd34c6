from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.job import RankTable, limit_items
from doctor.job.rank_table.model import coded_id

OTHER_DEVICE = "the super_device_id {sdid} of {rank} is that of another device"
OTHER_HOST = "the super_device_id {sdid} of {rank} is that of another host"
CAUSES = {"rank-table-super-device-repeated": ("place",)}


@check(severity=WARNING, area="ranks", follows_from=CAUSES)
def rank_table_super_device_differs(table: RankTable) -> Iterator[Finding]:
    """Each super_device_id matches the device and the host of its entry.

    ## Why it matters
    The number (SDID) encodes the host's position in the super pod, the chip, the die and the device_id. Where it names
    another device or another host than its entry, entries were most likely swapped or copied.

    ## What to do
    {edit}
    `cp -p {rank_table} {rank_table}.old && doctor rank-table {all_hosts} --out {rank_table}` writes the table anew
    from the hosts. `npu-smi info -t spod-info -i {card} -c {chip}` on {host} shows the number of NPU {npu} as SDID.

    ## Source
    The public driver source: server << 22 | chip << 18 | die << 16 | device, device = 2 * chip + die. Numbers that do
    not follow that coding, such as the 0 to 7 of the documentation's example, are not checked.
    """
    if table.form != "1.2":
        raise Skip("only version 1.2 has super_device_id")
    coded = 0
    for server in table.servers:
        places = defaultdict(list)
        coded_here = server.coded_ids()
        for rank in server.ranks:
            sdid, npu = coded_id(rank.super_device_id), rank.device_id
            if sdid is None:
                continue
            coded += 1
            places[sdid >> 22].append(str(rank))
            if npu is None or not (coded_here[rank.path] - sdid if coded_here else npu - sdid & 0xFFFF):
                continue
            is_of_host = not coded_here or coded_here[rank.path] >> 22 == sdid >> 22
            yield Finding(
                OTHER_DEVICE if is_of_host else OTHER_HOST,
                hosts=(server.server_id,),
                sdid=sdid,
                rank=str(rank),
                place=rank.path,
                host=server.server_id,
                npu=npu,
                card=npu // 2,
                chip=npu % 2,
                edit=table.edit(rank, "super_device_id", coded_here.get(rank.path)),
                observed=filled("device {0}", sdid & 0xFFFF) if is_of_host else sdid,
                expected=filled("device {0}", npu) if is_of_host else coded_here[rank.path],
            )
        if len(places) > 1 and not coded_here:
            ranks_by_host = {
                filled("server {0} of the super pod", place): limit_items(ranks, 4)
                for place, ranks in sorted(places.items())
            }
            yield Finding(
                "the super_device_ids of {host} are those of several hosts",
                hosts=(server.server_id,),
                host=server.server_id,
                npu=0,
                card=0,
                chip=0,
                edit="",
                observed=ranks_by_host,
            )
    if not coded:
        raise Skip("no super_device_id follows the hardware's coding")
    table.require_fields("super_device_id", "device_id")
