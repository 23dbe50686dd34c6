from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.engine.grouping import lists_by_key
from doctor.facts.npu import NpuProduct
from doctor.facts.npu_counters import NpuCompatibility
from doctor.facts.versions import NpuVersions

ADVISORY = ("product", "versions")


@check(severity=WARNING, area="versions", advisory=ADVISORY)
def npu_firmware_incompatible(
    boards: NpuCompatibility, product: NpuProduct | None, versions: NpuVersions | None
) -> Iterator[Finding]:
    """npu-smi calls the firmware of every NPU card compatible with the driver.

    ## Why it matters
    The firmware that runs on the card is not that of the installed package: after an upgrade of only one of the two, or
    of one card. Devices then fail to start, or fail under load.

    ## What to do
    On {host}, while no job runs, install the firmware package that belongs to the driver again:
    `./Ascend-hdk-{package}-npu-firmware_{version}.run --full`, then `reboot`.

    ## Source
    `Compatibility` of `npu-smi info -t board`: OK, NOK, UNKNOWN or NOT SUPPORT (print_chip_compatibility_info of
    github.com/hicann/driver). It needs root; firmware before 23.0.RC2 states UNKNOWN.
    """
    bad = {card: state for card, state in boards.by_card.items() if state.upper() in ("NOK", "NOT OK")}
    alike = lists_by_key(((boards.firmware.get(card, "of unknown version"), bad[card]), card) for card in bad)
    for (firmware, state), cards in alike.items():
        yield Finding(
            "the firmware {firmware} of NPU card {cards} is not compatible with the driver",
            cards=cards,
            firmware=firmware,
            package=product.package if product else None,
            version=versions.firmware if versions else None,
            observed=state,
            expected="OK",
        )
