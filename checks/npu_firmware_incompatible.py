from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.npu_counters import NpuCompatibility


@check(severity=WARNING, area="versions")
def npu_firmware_incompatible(boards: NpuCompatibility) -> Iterator[Finding]:
    """npu-smi calls the firmware of every NPU card compatible with the driver.

    ## Why it matters
    The firmware that runs on the card is not that of the installed package: after an upgrade of only one of the two, or
    of one card. Devices then fail to start, or fail under load.

    ## What to do
    Install the firmware package that belongs to the driver on {host}, and restart the host:
    `./Ascend-hdk-<chip>-npu-firmware_<version>.run --full`.

    ## Source
    `Compatibility` of `npu-smi info -t board`: OK, NOK, UNKNOWN or NOT SUPPORT (print_chip_compatibility_info of
    github.com/hicann/driver). It needs root; firmware before 23.0.RC2 states UNKNOWN.
    """
    for card, state in boards.by_card.items():
        if state.upper() in ("NOK", "NOT OK"):
            yield Finding(
                "the firmware {firmware} of NPU card {card} is not compatible with the driver",
                card=card,
                firmware=boards.firmware.get(card, "of unknown version"),
                observed=state,
                expected="OK",
            )
