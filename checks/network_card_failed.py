from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.kernel_log import DAY, KernelLog, format_age

FAILED = (
    r"mlx5_core(?: ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]))?.{0,80}?"
    r"(health compromised|firmware internal error|health recovery flow aborted|Detected insufficient power"
    r"|Port module event\[error\])"
)


@check(severity=WARNING, area="links")
def network_card_failed(log: KernelLog) -> Iterator[Finding]:
    """No network card has reported a fault of its own in the last 24 hours.

    ## Why it matters
    A card whose firmware stops takes its rail with it: NCCL waits for it until a timeout. A transceiver that is too hot
    or a slot that gives too little power takes the link down under load only, in the middle of a job.

    ## What to do
    On {host}: `dmesg | grep mlx5_core`. Module (cable error, high temperature): reseat or replace the transceiver, or
    improve its cooling; `mlxlink -d {device} -m` reads it. Insufficient power: the slot, riser or power cable. Health
    or firmware errors: update the firmware (`mlxfwmanager`), restart the host with a power cycle, and have the card
    replaced when they return.

    ## Source
    Messages of drivers/net/ethernet/mellanox/mlx5/core: health.c (poll_health, print_health_info,
    mlx5_health_try_recover), events.c (mlx5_pcie_event, port_module).
    """
    failures = log.matching(FAILED, DAY)
    for device in dict.fromkeys(match[1] or "" for _, match in failures):
        of_device = [(line, match) for line, match in failures if (match[1] or "") == device]
        line, match = of_device[0]
        yield Finding(
            "the network card{where} reported a fault, {count} times in 24 hours, last {age}: {text}",
            where=f" at {device}" if device else "",
            device=device or "DEVICE",
            count=len(of_device),
            age=format_age(line.age),
            text=match.string[:160],
        )
