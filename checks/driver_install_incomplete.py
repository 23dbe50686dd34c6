from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu import NpuProduct
from doctor.facts.npu_table import NpuTable
from doctor.facts.versions import INSTALL, NpuVersions

ADVISORY = ("product",)


@check(severity=ERROR, area="versions", advisory=ADVISORY)
def driver_install_incomplete(
    versions: NpuVersions, table: NpuTable | None, product: NpuProduct | None
) -> Iterator[Finding]:
    """The installation of the NPU driver is complete.

    ## Why it matters
    An interrupted installation leaves parts of two versions behind. It seems to work, but fails under a real job.

    ## What to do
    On {host}, while no job runs, install the driver package again and read its last lines:
    `./Ascend-hdk-{package}-npu-driver_{driver}_linux-$(uname -m | tr _ -).run --full`, then `reboot`.

    ## Source
    `Driver_Install_Status=complete` in /etc/ascend_install.info, and the warning that npu-smi prints below its table
    when that is missing (public source of npu-smi). Older drivers write no status.
    """
    status = versions.install_status
    if status == "complete":
        return
    if versions.is_note_a_folder:
        raise Skip("/etc/ascend_install.info is an empty folder, which a container engine made in its place")
    if status == "":
        raise Unreadable(filled("{0} has no line with a value", INSTALL))
    if status is None and not (table and table.incomplete_install):
        raise Skip("this driver records no installation status")
    yield Finding(
        "the installation of NPU driver {driver} is incomplete",
        driver=versions.driver,
        package=product.package if product else None,
        observed=status or "no status",
        expected="complete",
    )
