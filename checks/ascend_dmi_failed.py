from collections.abc import Iterator

from doctor import DAY, WARNING, Finding, Skip, ago_text, check, filled
from doctor.facts.vendor_tests import AscendDiagnosis

RECENT = 7 * DAY
MAX_SENTENCES = 4


@check(severity=WARNING, area="devices")
def ascend_dmi_failed(diagnosis: AscendDiagnosis) -> Iterator[Finding]:
    """The last saved diagnosis of Ascend DMI passed.

    ## Why it matters
    Ascend DMI tests bandwidth, computing power, memory and links against Huawei's own reference values, which are not
    published otherwise. What it has failed is a fault by the vendor's judgement.

    ## What to do
    On {host}, while no job runs: `ascend-dmi --dg -i bandwidth,aiflops,hbm,device,network -q -fmt json` to test again.
    Bandwidth below the reference: end other programs on the NPU (`fuser -v /dev/davinci[0-9]*` lists them) and stop
    npu-exporter; `lspci -vv -d 19e5: | grep -E 'LnkCap|LnkSta'` shows PCIe lanes that are missing: reseat the card.
    Where it fails again: `reboot`, and have the card of that device replaced. For the vendor: its message, `npu-smi
    info -t board -i 0` with the number of the card, and `cat /sys/class/dmi/id/product_serial`.

    ## Source
    MindCluster ToolBox, Ascend DMI, fault diagnosis (toolboxug_0204 and 0155): with `-fmt json` the result is saved in
    /var/log/ascend_check/environment_check_before.txt. Results older than seven days are left out.
    """
    if diagnosis.age > RECENT:
        raise Skip(filled("the saved result of ascend-dmi is from {0}", ago_text(diagnosis.age)))
    for group in diagnosis.groups:
        if group.result.upper() == "FAIL":
            yield Finding(
                "ascend-dmi: {group} failed {age}: {observed}",
                group=group.name,
                age=ago_text(diagnosis.age),
                observed=[*group.failures[:MAX_SENTENCES], *(["..."] if len(group.failures) > MAX_SENTENCES else [])],
                expected="PASS",
            )
