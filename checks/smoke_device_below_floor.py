from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.smoke.further_stages import SmokeDevices
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import describe_ranks
from doctor.smoke.speed.device_speeds import comparable_times, describe_rate, memory_floor, rate


@check(severity=WARNING, area="smoke")
def smoke_device_below_floor(run: SmokeRun, devices: PerHost[SmokeDevices]) -> Iterator[Finding]:
    """Every device's memory is as quick as its vendor expects at least.

    ## Why it matters
    A fleet in which all devices are slow in the same way has no outlier. Examples are a memory clock that is held down
    on all hosts, and a virtual machine that gets a part of the bandwidth.

    ## What to do
    On {host}: `nvidia-smi -q -d CLOCK,PERFORMANCE,ECC,ROW_REMAPPER` (memory clock, throttle reasons), who else uses the
    GPU (`nvidia-smi`), then `dcgmi diag -r memory_bandwidth`, which tests with the same limit. End what else uses it
    (`kill <pid>`); reset the GPUs while no program uses them: `nvidia-smi -r`. Where the test fails again, have the GPU
    replaced. For the vendor: `nvidia-smi -q | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    The limit of NVIDIA's own test `memory_bandwidth` for this product, in nvvs/diag-skus.yaml.in of
    https://github.com/NVIDIA/DCGM. Products that are not in that file have no limit here.
    """
    rates: dict[str, dict[int, float]] = {}
    for (test, model), times in comparable_times(devices.values()).items():
        if test == "memory" and memory_floor(model):
            rates.setdefault(model, {}).update({rank: rate(event) for rank, event in times.items()})
    if not rates:
        raise Skip("no vendor states a least speed for these devices")
    for model, by_rank in rates.items():
        floor = memory_floor(model) or 0.0
        below: dict[str, list[int]] = {}
        for rank in sorted(rank for rank, value in by_rank.items() if value < floor):
            below.setdefault(run.plan.host_of(rank), []).append(rank)
        for host, ranks in below.items():
            yield Finding(
                "{who}: the memory of {model} moves {observed}; expected at least {expected}",
                hosts=[host],
                who=describe_ranks(run, ranks),
                ranks=ranks,
                model=model,
                observed=describe_rate(min(by_rank[rank] for rank in ranks), 1.0, "memory"),
                expected=describe_rate(floor, 1.0, "memory"),
            )
