from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.npu_counters import NpuFrequencies

BUSY = 50
"""Per cent: from here on a card has no reason of its own for a lower clock."""
LEAST = 0.8


@check(severity=WARNING, area="devices")
def npu_clock_throttled(frequencies: NpuFrequencies) -> Iterator[Finding]:
    """Every NPU that computes runs at its rated clock.

    ## Why it matters
    Heat and a lack of power lower the clock under load. A synchronous step takes as long as on its slowest NPU: one
    card at half of its clock halves the speed of the whole job.

    ## What to do
    On {host}: `npu-smi info -t common -i {card}` shows clock, temperature and power. `ipmitool sdr type Fan` shows
    the fans; have one that stands still replaced, and clean the air ducts. `ipmitool sdr type 'Power Supply'` shows
    the power supplies; connect one that has no power, or have it replaced. Report a card that stays slow to the
    vendor. For the vendor: `npu-smi info -t board -i {card}` and `cat /sys/class/dmi/id/product_serial`.

    ## Source
    `Aicore curFreq(MHZ)` against `Aicore Freq(MHZ)` of `npu-smi info -t common`, where `Aicore Usage Rate(%)` is 50 or
    more. An idle card lowers its clock by itself, and is not judged; a finding is a clock below 80 % of the rated one.
    """
    for card, clock in frequencies.running.items():
        if clock.usage >= BUSY and clock.megahertz < LEAST * clock.rated:
            yield Finding(
                "NPU card {card} computes ({usage} %) at {observed} MHz; expected {expected}",
                card=card,
                usage=clock.usage,
                observed=clock.megahertz,
                expected=f"{clock.rated} MHz",
            )
