from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke import SmokeCollectives
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.buffers import describe_damage
from doctor.smoke.numerics.collective_values import blame_ranks, soak_note
from doctor.smoke.results.trouble_findings import describe_ranks


@check(severity=ERROR, area="smoke")
def smoke_collective_wrong(run: SmokeRun, collectives: PerHost[SmokeCollectives]) -> Iterator[Finding]:
    """Every collective returns the correct values.

    ## Why it matters
    A collective that loses, repeats or changes values does not fail: the job goes on with gradients that are a little
    wrong, and its loss stalls or diverges days later. Ranks that are mapped to the wrong device or in the wrong order
    give the same symptoms.

    ## What to do
    On {host}: `npu-smi info -t ecc -i N` or `nvidia-smi -q -d ECC` for memory errors, `dmesg -T` for PCIe and machine
    check errors, `hccn_tool -i N -stat -g` or `ethtool -S` for bad packets. Compare driver, firmware, CANN, NCCL and
    torch with the other hosts. If all values are those of another rank, the mapping is wrong: compare the rank table,
    RANK and the visible devices. Run `doctor smoke` again without this host; if it passes, take the host out of the
    job.

    ## Source
    Each rank puts in small numbers of its own (a formula of rank and place), so that every result is known in advance,
    exactly, in every dtype. The fewest ranks that explain all wrong values are named: the rank whose segment is wrong,
    the root, the one that alone has another sum. One wrong element in a whole run proves only that it changed on the
    rank that has it or on its way there, so that all members are named: `doctor smoke --for 10m` repeats collectives
    on fresh data, counts, and names the rank that is wrong more than once. This verdict can be wrong where what a
    rank sends is always changed on its way to the same other rank: that one is named.
    """
    wrong = [event for fact in collectives.values() for event in fact.wrong]
    for blame in blame_ranks(wrong, run.groups, run.plan.world):
        first = blame.events[0]
        ops = sorted({event.op for event in blame.events})
        name, members = run.groups.get(first.gid, (f"group {first.gid}", tuple(range(run.plan.world))))
        kind = describe_damage(first, members)
        yield Finding(
            "{blame} {who}: {op} ({numel} x {dtype}, group {group}) returned {observed} at element {index} "
            "on rank {seen}, expected {expected}{looks}; wrong elements in total: {wrong}, in {ops}{soaked}",
            hosts=run.hosts(blame.ranks),
            blame="the fault lies with" if len(blame.ranks) == 1 else "the fault lies with one of",
            who=describe_ranks(run, blame.ranks),
            ranks=list(blame.ranks),
            op=first.op,
            numel=first.numel,
            dtype=first.dtype,
            group=name,
            index=first.index,
            seen=first.rank,
            observed=first.got,
            expected=first.expected,
            looks=f" ({kind})" if kind else "",
            wrong=sum(event.wrong for event in blame.events),
            soaked=soak_note(collectives.values(), blame.ranks),
            ops=ops,
        )
