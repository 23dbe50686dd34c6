from collections.abc import Iterator, Mapping

from doctor import WARNING, Finding, PerHost, check
from doctor.facts.hccn.fleet import Npu, families, flatten_by_npu, group_by_host, port_use
from doctor.facts.hccn.link_state import DeviceLinks
from doctor.facts.hccn.optics import OpticalModule, Optics
from doctor.facts.hccn.super_pod import SuperPodId
from doctor.facts.npu import NpuProduct
from doctor.facts.reported_value import readings_outside
from doctor.facts.visit import Reachability
from doctor.job import LaunchConfig

NO_ANSWER = "No module or no answer"


@check(severity=WARNING, area="links")
def optics_out_of_range(
    optics: PerHost[Optics],
    links: PerHost[DeviceLinks] | None,
    products: PerHost[NpuProduct],
    pods: PerHost[SuperPodId] | None,
    reach: PerHost[Reachability],
    launch: LaunchConfig,
) -> Iterator[Finding]:
    """Every optical module in use is present, answers, and works within its own limits.

    ## Why it matters
    Weak light, a hot module or a lost lane come before flapping links and error CQEs (EI0013): the job becomes slower,
    and fails later.

    ## What to do
    On {host}: `hccn_tool -i {npu} -optical -g` shows the module.
    - No module or no answer: reseat it, then replace it.
    - Low Rx power: clean the fibre on both ends, then compare the Tx power at its other end.
    - High temperature: `ipmitool sdr type Fan` shows the fans; have one that stands still replaced, and clean the
      air ducts. If it stays high, replace the module.
    - Low SNR: clean the fibre on both ends, then replace the module, then the one at its other end.
    - Another value: replace the module.

    ## Source
    The module's own thresholds and its loss of signal and lock flags. Signal to noise (SNR): less than 18 dB, which is
    an alarm in MindCluster's toolkit for faults; it can be wrong while a link comes up. A missing module counts where
    most NPUs of the same product have one (boards with a backplane have none); modules on a port that is down and that
    the job does not use do not count.
    """
    family = families(launch, products)
    use = port_use(optics, launch, products, reach, pods)
    idle = {
        host_npu
        for host_npu, state in flatten_by_npu(links or {}).items()
        if state == "DOWN" and not use.get(host_npu[0])
    }
    for (host, npu), module in flatten_by_npu(optics).items():
        for finding in _module_findings(npu, module) if (host, npu) not in idle else ():
            yield finding.with_host(host)
    for product in sorted(set(family.values())):
        product_optics = {host: fact for host, fact in optics.items() if family.get(host) == product}
        empty: dict[Npu, str] = {(host, npu): "" for host, fact in product_optics.items() for npu in fact.empty}
        count = len(flatten_by_npu(product_optics))
        for host, _, npus in group_by_host(empty) if count > len(empty) else ():
            template = "no optical module in NPU {npus}; {count} NPUs of {family} have one"
            yield Finding(template, hosts=[host], npu=npus[0], npus=npus, count=count, family=product, case=NO_ANSWER)


def _module_findings(npu: int, module: OpticalModule) -> Iterator[Finding]:
    if not module.reachable:
        yield Finding("the optical module of NPU {npu} does not answer on its control link", npu=npu, case=NO_ANSWER)
    for quantity, lanes in readings_outside(module.readings).items():
        first_reading = next(iter(lanes.values()))
        if first_reading.unit == "dB":
            yield Finding(
                "the optical module of NPU {npu} has {observed} dB; expected {expected} dB or more",
                npu=npu,
                what=quantity,
                observed={name: reading.value for name, reading in lanes.items()},
                expected=first_reading.low,
                case="Low SNR",
            )
            continue
        yield Finding(
            "the optical module of NPU {npu} has {observed} {unit}; expected {low} to {high} {unit}",
            npu=npu,
            what=quantity,
            observed={name: reading.value for name, reading in lanes.items()},
            low=first_reading.low,
            high=first_reading.high,
            unit=first_reading.unit,
            case=first_reading.case(quantity),
        )
    raised: Mapping[str, str] = {name: hex(bits) for name, bits in module.flags.items() if bits}
    if raised:
        template = "the optical module of NPU {npu} reports {observed}; expected no loss of signal or lock"
        yield Finding(template, npu=npu, observed=raised, case="Low Rx power")
