from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.nvlink import FabricManager


@check(severity=ERROR, area="links")
def fabric_manager_not_running(
    manager: FabricManager, cards: GpuCards, inventory: GpuInventory | None
) -> Iterator[Finding]:
    """The fabric manager runs on every host with NVSwitches.

    ## Why it matters
    It sets up the NVSwitches. Without it CUDA fails with `cudaErrorSystemNotReady` (802, system not yet initialized),
    although nvidia-smi lists all GPUs.

    ## What to do
    On {host}: `systemctl enable --now nvidia-fabricmanager`. If it is not installed, of exactly the driver's version:
    `v=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0); apt-get install -y
    "nvidia-fabricmanager-${v%%.*}=$v*" || dnf install -y nvidia-fabric-manager-$v`. If it ends: `journalctl -u
    nvidia-fabricmanager`.

    ## In a container
    The service is that of the machine on which the container of {host} runs. There, as root: `systemctl enable --now
    nvidia-fabricmanager`. It must have exactly the driver's version.

    ## Source
    NVIDIA Fabric Manager User Guide. NVSwitches: /proc/driver/nvidia-nvswitch/devices, or bridges of vendor 10de on the
    PCI bus. Where all GPUs report the fabric state Completed, a fabric manager elsewhere has set them up.
    """
    switches = manager.switches or cards.switches
    if not switches:
        raise Skip("the host has no NVSwitch")
    registered = [gpu.fabric_state == "Completed" for gpu in inventory.gpus] if inventory else []
    if not manager.is_running and not (registered and all(registered)):
        yield Finding(
            "the fabric manager is {observed}, on a host with {switches} NVSwitches",
            observed="not running" if manager.is_installed else "not installed",
            state=manager.state or "unknown",
            switches=switches,
            expected="running",
        )
