from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, joined
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST)
def rdma_firmware_differs(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """RDMA adapters of one kind have the same firmware on all hosts.

    ## Why it matters
    Another version has other faults and another congestion control: one host alone becomes slow or fails, and that is
    hard to trace.

    ## What to do
    Stop the jobs of {host}. Get the image of firmware {expected} for {board} from the card's vendor. For each of
    {devices}, of NVIDIA: `flint -d {first_device} -i <image> burn`; of another vendor: `devlink dev info` shows the
    cards, and `devlink dev flash pci/<address> file <image>` writes it. Then `reboot`.

    ## Source
    `fw_ver` and `board_id` of /sys/class/infiniband/NAME; adapters with the same board_id are compared, and the
    majority is the norm.
    """
    for board in sorted({device.board for own in adapters.values() for device in own.devices if device.board}):
        versions = {
            host: joined(" and ", sorted({device.firmware for device in own.devices if device.board == board}))
            for host, own in adapters.items()
            if any(device.board == board and device.firmware for device in own.devices)
        }
        if len(versions) > 1:
            template = "{devices} ({board}): firmware {observed}; {count} of {total} hosts have {expected}"
            for finding in differing(versions, template, board=board):
                agreeing = [host for host, version in versions.items() if version == finding.values.get("expected")]
                usual = {card.firmware for host in agreeing for card in adapters[host].devices if card.board == board}
                cards = [device for host in finding.hosts for device in adapters[host].devices if device.board == board]
                others = [card for card in cards if card.firmware not in usual] or cards
                devices = sorted({card.name for card in others})
                yield finding.with_values(devices=devices, first_device=devices[0])
