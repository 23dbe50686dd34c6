from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.npu import NpuInventory
from doctor.facts.root_info import ROOT_INFO, HcclRootInfo


@check(severity=ERROR, area="devices")
def hccl_rootinfo_stale(info: HcclRootInfo, inventory: NpuInventory | None) -> Iterator[Finding]:
    """/etc/hccl_rootinfo.json describes the NPUs that the host has.

    ## Why it matters
    HCCL of the 950 family reads this file before it asks the driver. One that was copied from another host, or written
    before a card or the driver changed, ends every job with `topo_file_path error` or `rankCount error`.

    ## What to do
    On {host}: generate the file again as it was installed, or move it away: `mv {path} {path}.old`. Without the file
    HCCL asks the driver.

    ## Source
    HCOMM `rank_info_detect_client.cc` (ConstructRankTable, CheckTopoFilePath, ParseFileToJson): the topology file must
    exist, and rank_count must be the length of rank_list.
    """
    template = "{path} is stale: {why}"
    if info.problem:
        yield Finding(template, path=ROOT_INFO, why=info.problem, expected="JSON")
        return
    if not info.topology_exists:
        yield Finding(
            template,
            path=ROOT_INFO,
            why="its topo_file_path does not exist" if info.topology else "it has no topo_file_path",
            observed=info.topology or "none",
            expected="a file that exists",
        )
    if info.listed is not None and info.count != info.listed:
        yield Finding(
            template,
            path=ROOT_INFO,
            why="rank_count is not the length of rank_list",
            observed="none" if info.count is None else info.count,
            expected=info.listed,
        )
    absent = sorted(set(info.devices) - set(inventory.devices)) if inventory and inventory.devices else []
    if absent:
        yield Finding(
            template,
            path=ROOT_INFO,
            why="it lists devices that the host does not have",
            observed=absent,
            expected=list(inventory.devices) if inventory else [],
        )
