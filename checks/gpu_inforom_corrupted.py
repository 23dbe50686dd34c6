from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.facts.gpu import NvidiaSmi


@check(severity=WARNING, area="devices")
def gpu_inforom_corrupted(tool: NvidiaSmi) -> Iterator[Finding]:
    """The information ROM of every GPU is intact.

    ## Why it matters
    The ROM keeps which rows of memory were replaced and which pages retired. Where it is damaged, the GPU forgets this
    at a reset, and damaged memory is used again.

    ## What to do
    On {host}: `nvidia-smi -q | grep -A 6 -i inforom`, and reset the GPU (`nvidia-smi -r`) while no program uses it. If
    the warning stays, have the vendor write the ROM anew, or replace the GPU.

    ## Source
    Manual of nvidia-smi, return value 14, and its warning "infoROM is corrupted at gpu ...". DCGM takes it for a
    warning as well (DCGM_FR_CORRUPT_INFOROM).
    """
    tool.require_report()
    for bus in tool.damaged:
        yield Finding(
            "the infoROM of {gpu} is corrupted: nvidia-smi prints this warning",
            gpu=filled("the GPU at {0}", bus) if bus else "a GPU",
            device=bus or None,
        )
