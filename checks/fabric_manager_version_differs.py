from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check
from doctor.facts.gpu import GpuCards
from doctor.facts.nvlink import FabricManager


@check(severity=ERROR, area="versions")
def fabric_manager_version_differs(manager: FabricManager, cards: GpuCards) -> Iterator[Finding]:
    """The fabric manager has exactly the version of the NVIDIA driver.

    ## Why it matters
    It refuses to start with any other version; one that was started before an update ends at the next restart, and
    then no program can use the GPUs.

    ## What to do
    Install the package of the fabric manager in the version {expected} on {host}: `v=$(nvidia-smi
    --query-gpu=driver_version --format=csv,noheader -i 0); apt-get install -y "nvidia-fabricmanager-${v%%.*}=$v*" ||
    dnf install -y nvidia-fabric-manager-$v`. Hold both packages, and restart it: `systemctl restart
    nvidia-fabricmanager`.

    ## Source
    NVIDIA Fabric Manager User Guide: "Fabric Manager and the driver must have the same version"; `nv-fabricmanager
    --version` against /proc/driver/nvidia/version.
    """
    if not (manager.switches or cards.switches):
        raise Skip("the host has no NVSwitch")
    if manager.version and cards.driver_version and manager.version != cards.driver_version:
        yield Finding(
            "the fabric manager is {observed}; the driver is {expected}",
            observed=manager.version,
            expected=cards.driver_version,
        )
