from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.gpu import GpuInventory
from doctor.facts.host_settings import HostSettings

MARGIN = 3


@check(severity=WARNING, area="devices")
def gpu_too_hot(inventory: GpuInventory, settings: HostSettings | None) -> Iterator[Finding]:
    """Every GPU is cooler than the temperature at which it slows down.

    ## Why it matters
    At that temperature the clocks are lowered, and some degrees above it the GPU is switched off. Before a job the GPUs
    are idle: one that is hot now has no cooling.

    ## What to do
    On {host}: `nvidia-smi -q -d TEMPERATURE -i {gpu}`. `ipmitool sdr type Fan` shows the fans; have one that stands
    still replaced, and clean the air ducts.

    ## Source
    `gpu_temp` against `gpu_temp_slow_threshold`, and since Hopper `gpu_temp_tlimit`, of `nvidia-smi -q -x`; a finding
    from 3 degrees below.
    """
    if settings and settings.is_portable:
        raise Skip("a laptop runs near its limit")
    for gpu in inventory.gpus:
        if gpu.temperature is None or gpu.temperature_limit is None or gpu.temperature_limit <= MARGIN:
            continue
        if gpu.temperature >= gpu.temperature_limit - MARGIN:
            yield Finding(
                "GPU {gpu} is at {observed} C; it slows down at {expected} C",
                gpu=gpu.index,
                observed=gpu.temperature,
                expected=gpu.temperature_limit,
            )
    inventory.require("temperature")
