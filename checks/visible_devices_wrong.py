import re
from collections.abc import Iterator, Mapping

from doctor import ERROR, Finding, PerHost, Skip, check, filled
from doctor.analysis.majority import differing
from doctor.facts.gpu import GpuCards
from doctor.facts.npu import NpuInventory
from doctor.job import LaunchConfig


@check(severity=ERROR, area="ranks")
def visible_devices_wrong(
    npus: PerHost[NpuInventory] | None, gpus: PerHost[GpuCards] | None, launch: LaunchConfig
) -> Iterator[Finding]:
    """The devices that ASCEND_RT_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES name exist, each once, and are enough.

    ## Why it matters
    CUDA ignores the list from the first number that is no device; CANN refuses it. The ranks behind it end with
    "invalid device ordinal" or "no CUDA-capable device", and all others wait for them.

    ## What to do
    On {host}: name devices that exist, as many as there are ranks: `export {variable}=0,1,...`, or unset it. `npu-smi
    info` and `nvidia-smi -L` list the devices.

    ## Source
    CUDA C++ Programming Guide, "CUDA Environment Variables" (only devices before the first invalid index are visible);
    CANN documentation, ASCEND_RT_VISIBLE_DEVICES. Names such as GPU-8f2c are not judged.
    """
    judged = False
    for variable, devices in (("ASCEND_RT_VISIBLE_DEVICES", npus), ("CUDA_VISIBLE_DEVICES", gpus)):
        for host, inventory in (devices or {}).items():
            value = launch.environ_of(host).get(variable, "")
            numbers = [int(part) for part in value.split(",") if part] if _is_list(value) else []
            if not numbers:
                continue
            judged = True
            existing = _numbers(inventory)
            absent = [number for number in numbers if number not in existing]
            ranks = launch.ranks_per_host
            if absent and existing:
                expected = filled("numbers from 0 to {0}", max(existing))
                text = "{variable} names device {absent}, and the host has {count}"
            elif len(set(numbers)) < len(numbers):
                expected, text = "each device once", "{variable} names a device twice"
            elif isinstance(ranks, int) and launch.launchers and ranks > len(numbers):
                expected, text = (
                    filled("{0} devices, one for each rank", ranks),
                    "{variable} names {named} devices for {ranks} ranks",
                )
            else:
                continue
            yield Finding(
                text,
                hosts=(host,),
                variable=variable,
                absent=absent,
                count=len(existing),
                named=len(numbers),
                ranks=ranks if isinstance(ranks, int) else 0,
                observed=value,
                expected=expected,
            )
    if not npus and not gpus:
        alone = list(_of_launch_alone(launch))
        judged = bool(alone)
        yield from (finding for finding in alone if finding is not None)
    yield from _differing_counts(launch, npus or {}, gpus or {})
    if not judged:
        raise Skip("no variable lists devices by number for a host that has them")


def _of_launch_alone(launch: LaunchConfig) -> Iterator[Finding | None]:
    """Where no host is looked at: for each list, whether it has too few devices; a device twice is told elsewhere."""
    for variable in ("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        value, ranks = launch.env.get(variable, ""), launch.ranks_per_host
        named = value.count(",") + 1 if _is_list(value) else 0
        if not named or not isinstance(ranks, int) or not launch.launchers:
            continue
        if ranks <= named:
            yield None
            continue
        yield Finding(
            "{variable} names {named} devices for {ranks} ranks",
            variable=variable,
            named=named,
            ranks=ranks,
            host="the job's hosts",
            observed=value,
            expected=filled("{0} devices, one for each rank", ranks),
        )


def _differing_counts(
    launch: LaunchConfig, npus: Mapping[str, NpuInventory], gpus: Mapping[str, GpuCards]
) -> Iterator[Finding]:
    """Hosts whose own variable leaves other numbers of devices than on most hosts."""
    for variable, devices in (("ASCEND_RT_VISIBLE_DEVICES", npus), ("CUDA_VISIBLE_DEVICES", gpus)):
        counts = {
            host: value.count(",") + 1 if _is_list(value) else len(_numbers(devices[host]))
            for host, environ in launch.env_by_host.items()
            if host in devices and (_is_list(value := environ.get(variable, "")) or not value)
        }
        is_given = any(launch.env_by_host[host].get(variable) for host in counts)
        if is_given and len(counts) > 1:
            template = "{variable} leaves {observed} devices; {count} of {total} hosts have {expected}"
            yield from (finding.as_warning() for finding in differing(counts, template, variable=variable))


def _is_list(value: str) -> bool:
    return bool(re.fullmatch(r"\s*[0-9]{1,4}(\s*,\s*[0-9]{1,4})*\s*", value, re.ASCII))


def _numbers(inventory: NpuInventory | GpuCards) -> frozenset[int]:
    return frozenset(inventory.devices if isinstance(inventory, NpuInventory) else range(inventory.pci))
