from collections import defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check, filled
from doctor.job import RankTable, limit_items


@check(severity=WARNING, area="ranks")
def rank_table_super_device_differs(table: RankTable) -> Iterator[Finding]:
    """Each super_device_id matches the device and the host of its entry.

    ## Why it matters
    The number (SDID) encodes the host's position in the super pod, the chip, the die and the device_id. Where it names
    another device or another host than its entry, entries were most likely swapped or copied.

    ## What to do
    Read it from the device: `npu-smi info -t spod-info -i ID -c CHIP`, line SDID.

    ## Source
    The public driver source: server << 22 | chip << 18 | die << 16 | device, device = 2 * chip + die. Numbers that do
    not follow that coding, such as the 0 to 7 of the documentation's example, are not checked.
    """
    if table.form != "1.2":
        raise Skip("only version 1.2 has super_device_id")
    coded = 0
    for server in table.servers:
        places = defaultdict(list)
        for rank in server.ranks:
            sdid = int(text) if (text := rank.super_device_id or "")[:10] == text and text.isdecimal() else 0
            place, chip, die, device = sdid >> 22, sdid >> 18 & 15, sdid >> 16 & 3, sdid & 0xFFFF
            if sdid < 1 << 16 or device != 2 * chip + die:
                continue
            coded += 1
            places[place].append(str(rank))
            if rank.device_id is not None and device != rank.device_id:
                yield Finding(
                    "the super_device_id {sdid} of {rank} is that of another device",
                    hosts=(server.server_id,),
                    sdid=sdid,
                    rank=str(rank),
                    observed=filled("device {0}", device),
                    expected=filled("device {0}", rank.device_id),
                )
        if len(places) > 1:
            ranks_by_host = {
                filled("host {0}", place): limit_items(ranks, 4) for place, ranks in sorted(places.items())
            }
            yield Finding(
                "the super_device_ids of {host} are those of several hosts",
                hosts=(server.server_id,),
                host=server.server_id,
                observed=ranks_by_host,
            )
    if not coded:
        raise Skip("no super_device_id follows the hardware's coding")
    table.require_fields("super_device_id", "device_id")
