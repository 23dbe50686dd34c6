from collections import Counter
from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.analysis.majority import leader
from doctor.facts.npu_fabric import NpuHccs


@check(severity=ERROR, area="devices")
def hccs_unhealthy(hccs: NpuHccs) -> Iterator[Finding]:
    """Every NPU chip reports that its HCCS links are healthy, with all their lanes.

    ## Why it matters
    HCCS carries all traffic between the NPUs of one host. With a link down, collectives inside the host fail or fall
    back to a slower way, and the whole job waits for this host. A link with half of its lanes has half of the rate.

    ## What to do
    `npu-smi info -t hccs -i {card} -c {chip}` on {host} shows the lanes. Stop the jobs there and restart the host
    (`reboot`); if the fault comes back, report it to the vendor. For the vendor: `npu-smi info -t board -i {card}` and
    `dmidecode -s system-serial-number`.

    ## Source
    `hccs health status`, `hccs lane mode`, `hccs link lane list` and `hccs first error lane` of `npu-smi info -t hccs`
    (npu_info_print_ext.c of github.com/hicann/driver). A link that uses fewer lanes than the same link of most chips of
    the host is a warning, and so is a lane with an error beside the state OK.
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
    for name, link, observed, expected in _reduced_links(hccs):
        card, _, chip = name.partition("-")
        yield Finding(
            "HCCS link {link} of NPU card {card} chip {chip} uses {observed} lanes; expected {expected}",
            card=int(card),
            chip=int(chip),
            link=link,
            observed=observed,
            expected=expected,
        ).as_warning()
    for name, lane in hccs.first_error_lane.items():
        card, _, chip = name.partition("-")
        if hccs.health.get(name) == "OK":
            yield Finding(
                "lane {observed} of the HCCS links of NPU card {card} chip {chip} had an error; expected {expected}",
                card=int(card),
                chip=int(chip),
                observed=lane,
                expected="none",
            ).as_warning()


def _reduced_links(hccs: NpuHccs) -> Iterator[tuple[str, int, int, int]]:
    """Chip, link, its lanes, and those of the same link of most chips. Links that no chip uses are none."""
    for link in range(max(map(len, hccs.lanes.values()), default=0)):
        lanes = {name: counts[link] for name, counts in hccs.lanes.items() if link < len(counts)}
        for usual in leader(Counter(lanes.values())):
            yield from ((name, link, count, usual) for name, count in lanes.items() if count < usual)
