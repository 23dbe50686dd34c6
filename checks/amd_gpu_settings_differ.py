from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.amd_smi import AmdGpu, AmdGpus

ONE_HOST = "only one host: nothing to compare"
SETTINGS = {
    "product": "name",
    "driver": "driver",
    "compute partition": "compute_partition",
    "memory partition": "memory_partition",
}
"""Each with the field of `AmdGpu` that has it."""


@check(severity=WARNING, area="devices", single_host=ONE_HOST)
def amd_gpu_settings_differ(amd: PerHost[AmdGpus]) -> Iterator[Finding]:
    """AMD GPUs of all hosts are of one product, with one driver and one partition mode.

    ## Why it matters
    In another partition mode a host has another number of devices, each with a part of the memory and of the speed:
    ranks do not fit, or wait for the slowest. Another driver may miss what RCCL uses on the other hosts.

    ## What to do
    On {host}: `amd-smi list`, `amd-smi static --driver`, `amd-smi partition`. Set the mode of the other hosts while no
    program uses the GPUs: `amd-smi set --compute-partition` and `--memory-partition`; install the driver of the others.

    ## Source
    `amd-smi static --json` and `amd-smi list --json`; the majority is the norm.
    """
    complete = {host: fact.gpus for host, fact in amd.items() if not fact.unread}
    counts = {host: str(len(gpus)) for host, gpus in complete.items()}
    by_setting = {
        name: {host: _together(gpus, field) for host, gpus in complete.items()} for name, field in SETTINGS.items()
    }
    for setting, texts in {"number of GPUs": counts, **by_setting}.items():
        values = {host: text for host, text in texts.items() if text}
        if len(values) > 1:
            template = "the {setting} of its AMD GPUs is {observed}; {count} of {total} hosts have {expected}"
            yield from differing(values, template, setting=setting)


def _together(gpus: tuple[AmdGpu, ...], field: str) -> str:
    """The values of a host's GPUs, as one text; empty where none has one."""
    return " and ".join(sorted({text for gpu in gpus if (text := getattr(gpu, field))}))
