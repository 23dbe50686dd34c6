import statistics
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.facts.npu_table import NpuTable

HOT = 75
"""Degrees Celsius; idle NPUs show 26 to 58 in published tables, NPUs at work up to 70."""
ABOVE_MEDIAN = 20


@check(severity=WARNING, area="devices")
def npu_temperature_high(tables: PerHost[NpuTable]) -> Iterator[Finding]:
    """No NPU is far hotter than the others of its type.

    ## Why it matters
    A hot NPU lowers its clock, and every step of a synchronous job waits for it. A blocked air duct, a dead fan or a
    cooling plate without flow shows before the job starts.

    ## What to do
    `npu-smi info -t temp -i {card} -c {chip}` on {host}. `ipmitool sdr type Fan` shows the fans; have one that
    stands still replaced, and clean the air ducts. Check the flow of the coolant.

    ## Source
    Temp(C) of `npu-smi info`, compared with the median of the fleet's NPUs of the same name. The limits, 75 C and 20
    above the median, are our own: Huawei publishes none for these sensors, and asks for less than 90 C before a test of
    computing power (Ascend DMI, computing power test), as the clock is lowered above.
    """
    values: dict[str, list[int]] = {}
    for table in tables.values():
        for state in table.npus:
            if state.temperature is not None:
                values.setdefault(state.name, []).append(state.temperature)
    if not any(len(heats) > 1 for heats in values.values()):
        raise Skip("a single NPU cannot be compared")
    medians = {name: statistics.median(heats) for name, heats in values.items()}
    for host, table in tables.items():
        for state in table.npus:
            heat = state.temperature
            if heat is not None and heat >= HOT and heat >= (median := medians[state.name]) + ABOVE_MEDIAN:
                yield Finding(
                    "NPU {npu} is at {observed} C; the median of {count} NPUs is {expected} C",
                    hosts=[host],
                    npu=state.device,
                    card=state.npu,
                    chip=state.chip,
                    count=len(values[state.name]),
                    observed=heat,
                    expected=int(median),
                )
