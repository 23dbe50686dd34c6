import re
import shlex
from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.kernel_log import KernelLog


@check(severity=WARNING, area="links")
def network_card_failed(log: KernelLog) -> Iterator[Finding]:
    """The kernel's log, up to 24 hours back, holds no fault that a network card reported of itself.

    ## Why it matters
    A card that stops takes its rail with it: NCCL waits for it until a timeout. A transceiver that is too hot or a slot
    that gives too little power takes the link down under load only, in the middle of a job.

    ## What to do
    {remedy}

    On {host}: `dmesg | grep -iE 'mlx5|bnxt|hns3|ice |netdev'`. Module (cable error, high temperature): reseat or
    replace the transceiver, or improve its cooling; `mlxlink -d {device} -m` reads it. Insufficient power: the slot,
    riser or power cable. Health, firmware or reset errors, and NETDEV WATCHDOG (a queue of the card stood still):
    update driver and firmware. Then restart the host with a power cycle (`ipmitool chassis power cycle`). Replace the
    card when they return.

    ## Source
    Messages of drivers/net/ethernet/mellanox/mlx5/core: health.c (poll_health, print_health_info, fatal sensors,
    mlx5_error_sw_reset), events.c (mlx5_pcie_event, port_module, temp_warn), cmd.c (a command without an answer of the
    firmware); of amazon/ena, infiniband/hw/efa, broadcom/bnxt, intel/ice with irdma, and hisilicon/hns3;
    net/sched/sch_generic.c (dev_watchdog), of every driver; drivers/base/dd.c (really_probe): a driver that did not
    take its card; intel/e1000e and igb (a queue of the card hangs).
    """
    for fault in log.merged_faults("network-card-failed"):
        device = fault.device
        yield Finding(
            "the network card{where} reported a fault, {count} times in 24 hours, last {age}: {text}",
            where=filled(" at {0}", device) if ":" in device else filled(" {0}", device) if device else "",
            device=device or "DEVICE",
            **fault.values,
            remedy=_remedy(fault.text, device),
        )


def _remedy(text: str, device: str) -> str:
    """What to do about one message: of the power of the slot, of the transceiver, or of the card itself."""
    if re.search(r"(?:Detected )?insufficient power", text, re.IGNORECASE):
        return (
            "The card gets too little power. Switch the host off, and reseat the card in its slot, the riser and the "
            "power cable. If the message comes again, replace the riser or cable, then the card."
        )
    if re.search(r"\bPort module event\b", text, re.IGNORECASE):  # also one that needs more power than the port has
        reads = filled("; `mlxlink -d {0} -m` reads it", shlex.quote(device)) if "mlx5" in text and device else ""
        return filled("Reseat or replace the transceiver or cable, or improve its cooling{0}.", reads)
    return (
        "Update driver and firmware of the card, restart the host with a power cycle (`ipmitool chassis power cycle`), "
        "and have it replaced when it "
        "returns."
    )
