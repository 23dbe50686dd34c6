from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.facts.smoke.further_stages import SmokeDevices
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.figures import collective_speeds
from doctor.smoke.results.trouble_findings import describe_ranks
from doctor.smoke.speed.device_speeds import comparable_times, describe_rate, floor_of, rate
from doctor.smoke.speed.rank_speeds import megabytes

LARGE, EIGHT = 1 << 30, 8
"""Bytes of a sum, and devices of one host, for which a least speed is stated."""


@check(severity=WARNING, area="smoke")
def smoke_device_below_floor(
    run: SmokeRun,
    devices: PerHost[SmokeDevices] | None,
    collectives: PerHost[SmokeCollectives] | None,
    started: PerHost[SmokeStart] | None,
) -> Iterator[Finding]:
    """Every device's memory, and the sums of a host's eight devices, are as quick as is published for them at least.

    ## Why it matters
    A fleet in which all devices are slow in the same way has no outlier. Examples are a memory clock that is held down
    on all hosts, a virtual machine that gets a part of the bandwidth, or PCIe in place of NVLink.

    ## What to do
    On {host}: `nvidia-smi -q -d CLOCK,PERFORMANCE,ECC,ROW_REMAPPER` (memory clock, throttle reasons), who else uses the
    GPU (`nvidia-smi`), then `dcgmi diag -r memory_bandwidth`, which tests with the same limit. Where sums are slow:
    `nvidia-smi nvlink -s` and `nvidia-smi topo -m` (NV between each two), the service `nvidia-fabricmanager`, and
    NCCL_P2P_DISABLE or NCCL_P2P_LEVEL in the job's environment. End what else uses it
    (`kill <pid>`); reset the GPUs while no program uses them: `nvidia-smi -r`. Where the test fails again, have the GPU
    replaced. For the vendor: `nvidia-smi -q | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    The limit of NVIDIA's own test `memory_bandwidth` for this product, in nvvs/diag-skus.yaml.in of
    https://github.com/NVIDIA/DCGM. Of sums: three quarters of the bus bandwidth that Azure demands of eight such GPUs
    in https://github.com/Azure/azurehpc-health-checks (conf/, check_nccl_allreduce), for an all_reduce of 1 GiB and
    more: run with `--max-bytes 1G`. Products that are not in those files have no limit here; there is none of an NPU.
    """
    found = [*slow_memories(run, devices or {}), *slow_sums(run, collectives or {}, started or {})]
    if not found:
        raise Skip("no vendor states a least speed for these devices")
    yield from (finding for finding in found if finding)


def slow_memories(run: SmokeRun, devices: Mapping[str, SmokeDevices]) -> Iterator[Finding | None]:
    """By host and model that has a limit, a finding, or None where all are quick enough."""
    for (test, model), times in comparable_times(devices.values()).items():
        floor = floor_of("memory", model) if test == "memory" else None
        by_host: dict[str, dict[int, float]] = {}
        for rank, event in times.items() if floor else ():
            by_host.setdefault(run.plan.host_of(rank), {})[rank] = rate(event)
        for host, rates in by_host.items():
            below = {rank: value for rank, value in sorted(rates.items()) if value < (floor or 0.0)}
            if not below:
                yield None
                continue
            yield Finding(
                "{who}: the memory of {model} moves {observed}; expected at least {expected}",
                hosts=[host],
                who=describe_ranks(run, list(below)),
                ranks=list(below),
                model=model,
                observed=describe_rate(min(below.values()), 1.0, "memory"),
                expected=describe_rate(floor or 0.0, 1.0, "memory"),
            )


def slow_sums(
    run: SmokeRun, collectives: Mapping[str, SmokeCollectives], started: Mapping[str, SmokeStart]
) -> Iterator[Finding | None]:
    """By group of eight devices of one host and model that has a limit, a finding, or None where it is quick enough."""
    models = {joined.rank: joined.device.name for start in started.values() for joined in start.joined}
    groups = {"world": tuple(range(run.plan.world)), **dict(run.groups.values())}
    for speed in collective_speeds(run, collectives):
        ranks = groups.get(speed.group, ())
        hosts, names = {run.plan.host_of(rank) for rank in ranks}, {models.get(rank, "") for rank in ranks}
        if speed.op != "all_reduce" or speed.bytes < LARGE or (len(ranks), len(hosts), len(names)) != (EIGHT, 1, 1):
            continue
        [model], [host] = names, hosts
        floor = floor_of("all_reduce", model)
        if floor and speed.busbw >= floor:
            yield None
        elif floor:
            yield Finding(
                "{who}: a sum of {size} among the {model} runs at {observed} of bus bandwidth; expected at least "
                "{expected}",
                hosts=[host],
                who=describe_ranks(run, list(ranks)),
                ranks=list(ranks),
                model=model,
                size=megabytes(speed.bytes),
                observed=describe_rate(speed.busbw, 1.0, "memory"),
                expected=describe_rate(floor, 1.0, "memory"),
            )
