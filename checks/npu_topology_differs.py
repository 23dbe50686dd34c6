from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, Skip, check
from doctor.analysis.majority import differing
from doctor.facts.npu import NpuProduct
from doctor.facts.npu_fabric import NpuTopology

ONE_HOST = "only one host: nothing to compare"


@check(severity=WARNING, area="devices", single_host=ONE_HOST)
def npu_topology_differs(topologies: PerHost[NpuTopology], products: PerHost[NpuProduct] | None) -> Iterator[Finding]:
    """On all hosts of one product each pair of NPUs is connected in the same way.

    ## Why it matters
    A card behind another PCIe switch, or one whose HCCS links did not come up, shows as SYS or PHB where its peers show
    HCCS or PIX. Its traffic goes through the processors, and the whole job waits for it.

    ## What to do
    `npu-smi info -t topo` on {host}; put the card into the slot that it has on the other hosts, or have its HCCS links
    checked.

    ## Source
    `npu-smi info -t topo` (print_npu_topo_info of github.com/hicann/driver), compared with what most hosts have.
    """
    families = {host: product.family for host, product in (products or {}).items()}
    compared = False
    for family in sorted({families.get(host, "") for host in topologies}):
        hosts = {host: fact.relations for host, fact in topologies.items() if families.get(host, "") == family}
        pairs = sorted({pair for relations in hosts.values() for pair in relations})
        for pair in pairs if len(hosts) > 1 else ():
            compared = True
            values = {host: relations[pair] for host, relations in hosts.items() if pair in relations}
            if len(values) > 1:
                yield from differing(
                    values,
                    "NPUs {pair} are connected by {observed}; on {count} of {total} hosts by {expected}",
                    pair=pair.replace("-", ", "),
                )
    if not compared:
        raise Skip("a single host cannot be compared")
