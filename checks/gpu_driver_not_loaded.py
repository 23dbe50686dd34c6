from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.versions import driver_to_install

ADVISORY = ("fleet", "listed")


@check(severity=ERROR, area="devices", advisory=ADVISORY)
def gpu_driver_not_loaded(
    cards: GpuCards, fleet: PerHost[GpuCards] | None, listed: GpuInventory | None
) -> Iterator[Finding]:
    """The NVIDIA driver is loaded on every host with NVIDIA GPUs.

    ## Why it matters
    Without it no process gets a GPU: `torch.cuda.is_available()` is False, and nvidia-smi reports that it could not
    communicate with the driver.

    ## What to do
    On {host}: `modprobe nvidia`. If `lsmod | grep nouveau` prints a line: `rmmod nouveau; modprobe nvidia`. If the
    module was not built for the running kernel (`dkms status`): `dkms autoinstall -k $(uname -r) && modprobe nvidia`,
    or install driver {version} again: `sh ./NVIDIA-Linux-$(uname -m)-{version}.run`.

    ## In a container
    The driver is that of the machine on which the container of {host} runs. There, as root: `modprobe nvidia`; `doctor
    check` there has the reason when that fails. Nothing is to be installed in the container.

    ## Source
    /proc/driver/nvidia/version, which the loaded module provides (README of the NVIDIA driver). A sandbox may not show
    that file: where nvidia-smi lists GPUs, the driver is loaded.
    """
    if cards.pci and not cards.driver and not (listed and listed.gpus):
        yield Finding(
            "the NVIDIA driver is not loaded, on a host with {gpus} GPUs",
            gpus=cards.pci,
            version=driver_to_install(cards, fleet),
            observed=filled("no {0}", "/proc/driver/nvidia/version"),
            expected="the module nvidia is loaded",
        )
