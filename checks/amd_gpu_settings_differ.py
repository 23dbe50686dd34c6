from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing, differing_devices
from doctor.facts.amd_smi import AmdGpu, AmdGpus

CAUSES: dict[str, tuple[str, ...]] = {"amd-gpu-link-lost": ()}
SETTINGS = {
    "driver": "driver",
    "compute partition": "compute_partition",
    "memory partition": "memory_partition",
    "number of PCIe lanes": "pcie_width_max",
}
"""Each with the field of `AmdGpu` that has it."""
ADJUSTABLE = ("compute partition", "memory partition", "driver")
"""What a command changes; the rest is hardware."""


@check(severity=WARNING, area="devices", follows_from=CAUSES)
def amd_gpu_settings_differ(amd: PerHost[AmdGpus]) -> Iterator[Finding]:
    """AMD GPUs are of one product, with one driver, one partition mode and, on each host, as many XGMI links.

    ## Why it matters
    In another partition mode a host has another number of devices, each with a part of the memory and of the speed. The
    memory is too small for a rank, or all ranks wait for the slowest. Another driver may miss what RCCL uses on the
    other hosts. Where a bridge of XGMI links is missing, its GPUs talk over PCIe, and the job is as slow as that host.

    ## What to do
    - Compute partition: on {host}, while no program uses the GPUs: `amd-smi set --gpu all --compute-partition
      {expected}`.
    - Memory partition: on {host}, while no program uses the GPUs: `amd-smi set --gpu all --memory-partition
      {expected}`.
    - Driver: install the driver {expected} on {host}; `amd-smi static --driver` shows the one that is there.
    - Hardware: `amd-smi list` and `amd-smi topology` on {host} show what differs; put in what is missing, or leave the
      host out.

    ## Source
    `amd-smi list`, `amd-smi static` and `amd-smi topology` with `--json`, or `rocm-smi`; the majority is the norm, of
    hosts and of four or more GPUs.
    A link that is missing on a host whose GPUs all reach each other is of amd-gpu-link-lost. The verdict can be wrong
    where the hosts were bought with other bridges.
    """
    complete = {host: fact.gpus for host, fact in amd.items() if not fact.unread}
    counts = {host: str(len(gpus)) for host, gpus in complete.items()}
    links = {host: str(count) for host, gpus in complete.items() if (count := _xgmi_links(gpus)) is not None}
    products = {host: " and ".join(sorted({gpu.name for gpu in gpus if gpu.name})) for host, gpus in complete.items()}
    template = "its AMD GPUs differ in {setting}: {observed}; {count} of {total} hosts have {expected}"
    for setting, texts in {"number of GPUs": counts, "number of XGMI links": links, "product": products}.items():
        values = {host: text for host, text in texts.items() if text}
        if len(values) > 1:
            yield from differing(values, template, setting=setting, case="Hardware")
    of_one = "AMD GPU {gpu} differs in {setting}: {observed}; {count} of {total} GPUs have {expected}"
    for setting, field in SETTINGS.items():
        of_each = {
            (host, gpu.index): str(value)
            for host, gpus in complete.items()
            for gpu in gpus
            if (value := getattr(gpu, field))
        }
        case = setting.capitalize() if setting in ADJUSTABLE else "Hardware"
        yield from differing_devices(of_each, template, of_one, "gpu", setting=setting, case=case)


def _xgmi_links(gpus: tuple[AmdGpu, ...]) -> int | None:
    """Pairs of GPUs with a link of XGMI between them; None where the tool shows no links."""
    kinds = {tuple(sorted((gpu.index, peer))): kind for gpu in gpus for peer, kind, _ in gpu.links}
    return sum(kind == "XGMI" for kind in kinds.values()) if kinds else None
