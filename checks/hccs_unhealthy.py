from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.npu_fabric import NpuHccs


@check(severity=ERROR, area="devices")
def hccs_unhealthy(hccs: NpuHccs) -> Iterator[Finding]:
    """Every NPU chip reports that its HCCS links are healthy.

    ## Why it matters
    HCCS carries all traffic between the NPUs of one host. With a link down, collectives inside the host fail or fall
    back to a slower way, and the whole job waits for this host.

    ## What to do
    `npu-smi info -t hccs -i {card} -c {chip}` on {host} shows the lanes. Restart the host while no job runs; when the
    state returns, report it to the vendor.

    ## Source
    `hccs health status` of `npu-smi info -t hccs`, OK or NOK (npu_info_print_ext.c of github.com/hicann/driver).
    """
    for name, state in hccs.health.items():
        card, _, chip = name.partition("-")
        if state != "OK":
            yield Finding(
                "the HCCS links of NPU card {card} chip {chip} report {observed}; expected {expected}",
                card=int(card),
                chip=int(chip),
                errors=hccs.errors.get(name, 0),
                observed=state,
                expected="OK",
            )
