from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.amd_smi import AmdGpus


@check(severity=ERROR, area="devices")
def amd_gpu_ecc_errors(amd: AmdGpus) -> Iterator[Finding]:
    """No AMD GPU has errors that could not be corrected, or too many damaged pages of memory.

    ## Why it matters
    Such an error ends the program that meets it, or makes it compute wrongly; more tend to follow. A deferred error is
    damaged memory that no program has used yet. A GPU that has retired more pages than its driver allows is at its end.

    ## What to do
    On {host}: `amd-smi metric -e -g {gpu}` shows the part, `amd-smi bad-pages -g {gpu}` the pages. Reset the GPU
    while no program uses it: `amd-smi reset -G -g {gpu}`. Have it replaced when the errors return. For the vendor:
    `amd-smi static --board -g {gpu}`.

    ## Source
    `total_uncorrectable_count` and `total_deferred_count` of `amd-smi metric --ecc --json` (amd-smi's documentation);
    AMD's node-scraper takes any uncorrectable error for a fault. Where amd-smi is not installed: `rocm-smi
    --showrasinfo`. Deferred errors alone are a warning. The counts are since the driver was loaded. Pages:
    `bad_page_threshold_exceeded` of `amd-smi static --ras`, which amd-smi shows to root since ROCm 7.0.2.
    """
    for gpu in amd.gpus:
        if gpu.uncorrectable or gpu.deferred:
            yield Finding(
                "AMD GPU {gpu} ({bus}) has {observed} uncorrected and {deferred} deferred errors; expected {expected}",
                gpu=gpu.index,
                bus=gpu.bus,
                observed=gpu.uncorrectable or 0,
                deferred=gpu.deferred or 0,
                expected=0,
            ).as_warning(not gpu.uncorrectable)
        if gpu.retires_too_many:
            yield Finding(
                "AMD GPU {gpu} ({bus}) has retired more pages of its memory than its driver allows",
                gpu=gpu.index,
                bus=gpu.bus,
                observed="bad page threshold exceeded",
                expected="not exceeded",
            )
