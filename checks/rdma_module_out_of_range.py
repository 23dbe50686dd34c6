from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import unlike_fec
from doctor.facts.rdma_modules import RdmaModule, RdmaModules
from doctor.facts.reported_value import readings_outside

MOST_BER = 1e-12
"""The default threshold of NVIDIA's ibdiagnet (IBUtils2, "Bit Error Rate": 10^-12)."""


@check(severity=WARNING, area="links")
def rdma_module_out_of_range(modules: PerHost[RdmaModules]) -> Iterator[Finding]:
    """Every RDMA port's module works within its own limits, and its link has as few bit errors as it must.

    ## Why it matters
    Weak light, a hot module or bits that FEC cannot correct come before a link that flaps: packets are sent again, the
    job becomes slower, and fails later. Ports whose FEC differs cost latency, or do not come up again.

    ## What to do
    On {host}: `mlxlink -d {device} -m -c` shows the module.
    - Low Rx power: clean the fibre on both ends, then compare the Tx power at its other end.
    - High temperature: `ipmitool sdr type Fan` shows the fans; have one that stands still replaced, and clean the
      air ducts. If it stays high, replace the module.
    - Another value: replace the module.
    - Bit errors: reseat and clean the cable on both ends, then replace it.
    - Another FEC: set it as on the other ports (`mlxlink -d {device} --fec`), on the switch as well.

    ## Source
    `mlxlink -m -c` of NVIDIA's MFT, or mstlink: the module's own limits behind each value, and the tool's
    recommendation. Bit errors: the effective rate, behind FEC, of ports that are active; more than 1e-12, the threshold
    of NVIDIA's ibdiagnet. FEC against that of three quarters of the hosts, at the same speed and kind of cable. Loss of
    light and lock flags are not judged: working copper cables raise them. The verdict can be wrong shortly after a
    cable was plugged in: the rate counts since then.
    """
    active = {
        (host, device): module
        for host, fact in modules.items()
        for device, module in fact.by_device.items()
        if module.state == "Active"
    }
    for (host, device), module in active.items():
        for finding in _of_port(device, module):
            yield finding.with_host(host)
    yield from unlike_fec({port: (module.speed, module.technology, module.fec) for port, module in active.items()})


def _of_port(device: str, module: RdmaModule) -> Iterator[Finding]:
    for quantity, lanes in readings_outside(module.readings).items():
        first = next(iter(lanes.values()))
        yield Finding(
            "the module of {device} has {observed} {unit}; expected {low} to {high} {unit}",
            device=device,
            observed={name: reading.value for name, reading in lanes.items()},
            low=first.low,
            high=first.high,
            unit=first.unit,
            case=first.case(quantity),
        )
    if module.effective_ber is not None and module.effective_ber > MOST_BER:
        yield Finding(
            "the link of {device} has an effective bit error rate of {observed}; expected {expected} or less",
            device=device,
            observed=f"{module.effective_ber:.0e}",
            expected=f"{MOST_BER:.0e}",
            case="Bit errors",
        )
    if module.advice:
        yield Finding("mlxlink says of the active port {device}: {observed}", device=device, observed=module.advice)
