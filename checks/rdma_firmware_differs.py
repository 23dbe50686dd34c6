from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, joined
from doctor.analysis.majority import differing
from doctor.facts.rdma import RdmaPorts

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="versions", single_host=ONE_HOST)
def rdma_firmware_differs(adapters: PerHost[RdmaPorts]) -> Iterator[Finding]:
    """RDMA adapters of one kind have the same firmware on all hosts.

    ## Why it matters
    Versions differ in speed, in congestion control and in faults; a fault that one host alone has is hard to trace.

    ## What to do
    On {host}: install the firmware {expected} (`mlxfwmanager`, `flint`), and restart the host.

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
            template = "the firmware of its {board} is {observed}; {count} of {total} hosts have {expected}"
            yield from differing(versions, template, board=board)
