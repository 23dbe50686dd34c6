from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.analysis.majority import below_usual
from doctor.analysis.outliers.rates import Count, high_rates
from doctor.engine.grouping import lists_by_key
from doctor.engine.quantities import DAY
from doctor.facts.npu import NpuProduct
from doctor.facts.npu_fabric import HCCS_COUNTERS, NpuHccs

ADVISORY = ("products",)
LEAST = 100
"""Packets; fewer say nothing of a link that carries billions."""


@check(severity=ERROR, area="devices", advisory=ADVISORY)
def hccs_unhealthy(hccs: PerHost[NpuHccs], products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """Every NPU chip reports that its HCCS links are healthy, with all their lanes, and has few damaged packets.

    ## Why it matters
    HCCS carries all traffic between the NPUs of one host. With a link down, collectives inside the host fail or fall
    back to a slower way, and the whole job waits for this host. A link with half of its lanes has half of the rate. A
    link with damaged packets sends them again; it becomes slower, and fails in time.

    ## What to do
    `npu-smi info -t hccs -i {card} -c {chip}` on {host} shows lanes and counts, which may still grow. Stop the jobs
    there and restart the host (`reboot`); if the fault comes back, report it to the vendor. For the vendor: `npu-smi
    info -t board -i {card}` and `cat /sys/class/dmi/id/product_serial`.

    ## Source
    `hccs health status`, `hccs lane mode`, `hccs link lane list` and `hccs first error lane` of `npu-smi info -t hccs`
    (npu_info_print_ext.c of github.com/hicann/driver). A link that uses fewer lanes than the same link of most chips of
    hosts like it is a warning, and so is a lane with an error beside the state OK. Hosts of one family with as many
    chips are alike; what a chip has on most of them is its design. For `hccs error count` and `hccs retry count`, since
    the NPU was started, the vendor names no limit: a warning is a link with 100 or more, and ten times as many as the
    middle of the fleet's hosts, each with the middle of its links.
    """
    for host, own in hccs.items():
        for finding in _of_states(own):
            yield finding.with_host(host)
    families = {host: product.family for host, product in (products or {}).items()}
    lanes = lists_by_key(
        ((families.get(host), len(own.health), link), ((host, name), count))
        for host, own in hccs.items()
        for name, counts in own.lanes.items()
        for link, count in enumerate(counts)
    )
    template = "HCCS link {link} of NPU card {card} chip {chip} uses {observed} lanes; expected {expected}"
    for (_, _, link), numbers in lanes.items():
        for finding in below_usual(dict(numbers), template, "place", link=link):
            card, _, chip = finding.values.pop("place").partition("-")
            if finding.values["observed"] or 2 * finding.values["count"] > finding.values["total"]:
                yield finding.with_values(card=int(card), chip=int(chip)).as_warning()
    for counter in HCCS_COUNTERS:
        yield from _of_counts(counter, hccs)


def _of_counts(counter: str, hccs: PerHost[NpuHccs]) -> Iterator[Finding]:
    links = {
        (host, f"{name}-{link}"): Count(count, DAY)
        for host, own in hccs.items()
        for name, counts in own.counts.get(counter, {}).items()
        for link, count in enumerate(counts)
    }
    for (host, name), high in high_rates(links, least=LEAST).items():
        card, chip, link = map(int, name.split("-"))
        yield Finding(
            "HCCS link {link} of NPU card {card} chip {chip}: {counter} {observed}; the median of {total} links is "
            "{expected}",
            hosts=[host],
            card=card,
            chip=chip,
            link=link,
            counter=counter,
            observed=high.count,
            expected=high.usual,
            total=len(links),
        ).as_warning()


def _of_states(hccs: NpuHccs) -> Iterator[Finding]:
    for name, state in hccs.health.items():
        card, _, chip = name.partition("-")
        if state != "OK":
            yield Finding(
                "the HCCS links of NPU card {card} chip {chip} report {observed}; expected {expected}",
                card=int(card),
                chip=int(chip),
                errors=sum(hccs.counts.get(HCCS_COUNTERS[0], {}).get(name, ())),
                observed=state,
                expected="OK",
            )
        elif name in hccs.first_error_lane:
            yield Finding(
                "lane {observed} of the HCCS links of NPU card {card} chip {chip} had an error; expected {expected}",
                card=int(card),
                chip=int(chip),
                observed=hccs.first_error_lane[name],
                expected="none",
            ).as_warning()
