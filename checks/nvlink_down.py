from collections import Counter, defaultdict
from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import below_usual
from doctor.engine.grouping import lists_by_key
from doctor.facts.gpu import GpuCards, GpuInventory
from doctor.facts.nvlink import NvLinks, board_size

ADVISORY = ("inventory",)


@check(severity=WARNING, area="links", advisory=ADVISORY)
def nvlink_down(
    links: PerHost[NvLinks], cards: PerHost[GpuCards], inventory: PerHost[GpuInventory] | None
) -> Iterator[Finding]:
    """Every GPU has as many active NVLinks as its peers, at the same rate.

    ## Why it matters
    NCCL sends less through the GPU with fewer links, or takes PCIe: collectives are several times slower on that host,
    and the job is as slow as that host.

    ## What to do
    On {host}: `nvidia-smi nvlink -s -i {gpu}`, `nvidia-smi nvlink -e -i {gpu}` and `dmesg | grep -iE 'xid|nvlink'`.
    Take the host out of the job (in Slurm: `scontrol update NodeName={host} State=DRAIN Reason=nvlink`), then
    `reboot`; if the links stay down, have the GPU or its baseboard replaced. For the vendor: `nvidia-smi -q -i
    {gpu} | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    `nvidia-smi nvlink -s`. The norm is the same GPU, of the same product, on most of the other hosts; behind
    NVSwitches, and on a baseboard with all of its GPUs (eight of SXM, of H200 and B200; four of GB200), where all GPUs
    are alike, the GPU with the most links; of fewer GPUs of a baseboard, that with none at all. A GPU whose links have
    all failed lists none of them (leptonai/gpud issue 1085); one whose links cannot be read is unknown, and not
    compared. A GPU that has no bridge on any host has no finding, nor one in MIG mode. Where a host lists fewer GPUs
    than most, the links to the others are down: not compared. Rates: each GPU's slowest link, among all GPUs of its
    product.
    """
    rates = lists_by_key(
        (own.products.get(gpu, ""), ((host, gpu), rate))
        for host, own in links.items()
        for gpu, rate in own.rates.items()
    )
    for of_product in rates.values():
        template = "an NVLink of GPU {gpu} runs at {observed} GB/s; those of {count} of {total} GPUs at {expected} GB/s"
        yield from below_usual(dict(of_product), template, "gpu")
    alike: defaultdict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for own in links.values():
        for gpu, count in own.active.items():
            alike[gpu, own.products.get(gpu, "")][count] += 1
    listed = Counter(len(own.active) + len(own.unread) for own in links.values())
    usual = max(listed, key=lambda number: (listed[number], number))  # at a tie, whichever host comes first
    for host, own in links.items():
        has_switch = host in cards and cards[host].switches > 0
        if len(own.active) + len(own.unread) < usual and not has_switch:
            continue
        reported = inventory[host].gpus if inventory and host in inventory else ()
        mig = [gpu.index for gpu in reported if gpu.mig == "Enabled"]
        for gpu, count in own.active.items():
            others = alike[gpu, own.products.get(gpu, "")] - Counter((count,))
            common, hosts = others.most_common(1)[0] if others else (0, 0)
            norm = common if hosts > others.total() / 2 and others.total() > 1 else 0
            product = own.products.get(gpu, "")
            alike_here = [n for other, n in own.active.items() if own.products.get(other, "") == product]
            here = len(alike_here) + len(own.unread)
            board = board_size(product)
            is_full = board == here or bool(board and not count)
            expected = max(norm, max(own.active.values()) if has_switch else 0, max(alike_here) if is_full else 0)
            if count < expected and gpu not in mig:
                yield Finding(
                    "GPU {gpu} has {observed} active NVLinks; its peers have {expected}",
                    hosts=[host],
                    gpu=gpu,
                    observed=count,
                    expected=expected,
                    down=own.inactive.get(gpu, ()),
                )
