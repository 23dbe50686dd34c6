from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.gpu import GpuInventory
from doctor.facts.host_settings import HostSettings

REASONS = {
    "hw_slowdown": "hardware slowdown",
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power brake of the power supply",
    "sw_thermal_slowdown": "heat",
}


@check(severity=WARNING, area="devices")
def gpu_clocks_throttled(inventory: GpuInventory, settings: HostSettings | None) -> Iterator[Finding]:
    """No GPU lowers its clocks because of heat or of its power supply.

    ## Why it matters
    One slow GPU makes every rank of the job as slow as itself. A hardware slowdown halves the clocks, or worse.

    ## What to do
    On {host}: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {gpu}`.
    - heat: `ipmitool sdr type Fan` shows the fans; have one that stands still replaced, and clean the air ducts.
    - power brake of the power supply: `ipmitool sdr type 'Power Supply'` shows the power supplies; connect one that
      has no power, or have it replaced.

    ## Source
    `clocks_event_reasons` of `nvidia-smi -q -x` (clocks_throttle_reasons before driver 535). Reasons that an operator
    chooses, such as a power limit or application clocks, and an idle GPU are no finding.
    """
    if settings and settings.is_portable:
        raise Skip("a laptop lowers its clocks on battery")
    for gpu in inventory.gpus:
        if gpu.throttles:
            reasons = sorted({REASONS[reason] for reason in gpu.throttles})
            yield Finding(
                "GPU {gpu} lowers its clocks: {observed}; expected no such reason",
                gpu=gpu.index,
                case=[reason for reason in reasons if reason != REASONS["hw_slowdown"]],
                observed=reasons,
            )
    inventory.require("clocks_event_reasons")
