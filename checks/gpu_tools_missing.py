from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.container import HostContainer
from doctor.facts.gpu import GpuCards
from doctor.facts.versions import driver_to_install

ADVISORY = ("fleet",)


@check(severity=ERROR, area="devices", advisory=ADVISORY)
def gpu_tools_missing(
    cards: GpuCards, place: HostContainer | None, fleet: PerHost[GpuCards] | None
) -> Iterator[Finding]:
    """Every host with NVIDIA GPUs has nvidia-smi.

    ## Why it matters
    It comes with the driver. Where there is a GPU but not the tool, the driver is not installed, or only in part, and
    the GPUs' health cannot be read.

    ## What to do
    On {host}, while no program uses the GPUs, install the package of driver {version} with nvidia-smi:
    `sh ./NVIDIA-Linux-$(uname -m)-{version}.run`, or that of the distribution, by which the other hosts have it.

    ## Source
    PCI devices of vendor 10de in the display class, against nvidia-smi in the search path and in /usr/bin.
    """
    if cards.pci and not cards.tool and place and place.engine:
        raise Skip("the container was not given nvidia-smi: container-devices-missing reports GPUs without a driver")
    if cards.pci and not cards.tool:
        yield Finding(
            "nvidia-smi is not installed, on a host with {gpus} GPUs",
            gpus=cards.pci,
            version=driver_to_install(cards, fleet),
        )
