from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check, filled, joined
from doctor.facts.smoke.collectives import SmokeCollectives
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.collective_values import (
    Blame,
    blame_ranks,
    describe_damage,
    second_round_note,
    soak_note,
    sums_for_averages,
)
from doctor.smoke.results.trouble_findings import ACCELERATORS, describe_ranks


@check(severity=ERROR, area="smoke")
def smoke_collective_wrong(run: SmokeRun, collectives: PerHost[SmokeCollectives]) -> Iterator[Finding]:
    """Every collective returns the correct values.

    ## Why it matters
    A collective that loses, repeats or changes values does not fail: the job goes on with gradients that are a little
    wrong, and its loss stalls or diverges days later. Ranks that are mapped to the wrong device or in the wrong order
    give the same symptoms.

    ## What to do
    On {host}: `dmesg -T` for PCIe and machine check errors, `grep . /sys/class/net/*/statistics/*errors` for bad
    packets.
    - NPU: `for i in $(seq 0 7); do npu-smi info -t ecc -i $i; done` for memory errors, `hccn_tool -i {device} -stat -g`
      for bad packets.
    - GPU: `nvidia-smi -q -d ECC`.

    Compare driver, firmware, collective library and torch with the other hosts. If all values are those of another
    rank, the mapping is wrong: compare the rank table, RANK and the visible devices. Run `doctor smoke` again without
    this host; if it passes, take the host out of the job.

    ## Source
    Each rank puts in small numbers of its own (a formula of rank and place), so that every result is known in advance,
    exactly, in every dtype. After wrong values the same collectives run again, with fresh data, in halves of the hosts,
    then in halves of the wrong half, and so on down to a rank, a host or a pair of hosts: adaptive group testing (Hwang
    1972, https://doi.org/10.1080/01621459.1972.10481257). That a wrong group holds the culprit is certain; a group
    counts as right after three times the calls that brought one wrong value before, which leaves a chance of 5 %
    (e^-3). Where nothing is wrong again, the fewest ranks are named that explain all wrong values: the rank whose
    segment is wrong, the root, the one that alone has another sum or more wrong than any one host sent. What a rank
    gives is read again behind the call, and what is wrong is read twice: a rank of two readings that differ is named
    alone, as no other rank writes there. One wrong element in a whole run proves only that it changed on the rank that
    has it or on its way there: with gloo, whose ranks pass sums along a ring, that rank and the one that sends to it
    are named, with others all members; `doctor smoke --for 10m` repeats collectives and counts.
    With two hosts of one rank each there is nothing to divide, and both are named. What pairs of hosts exchange to
    measure their speed (random numbers, other ones on every rank) is compared element by element, too; where one
    direction of one pair alone is wrong, both ends are named, as their way may be at fault. This verdict can be wrong
    where several faults occur now and then. An average that is the sum on every rank is none of a device: torch_npu
    2.0.1, v2.1.0-6.0.rc1 and v2.2.0-6.0.rc1 have no entry for AVG in their table of reductions and take SUM
    (ProcessGroupHCCL.cpp of these branches, https://gitee.com/ascend/pytorch); later ones refuse AVG, or divide.
    """
    wrong = [event for fact in collectives.values() for event in fact.wrong]
    rounds = [event for fact in collectives.values() for event in fact.second_rounds]
    summed, wrong = sums_for_averages(wrong, run.groups, run.plan.world)
    if summed:
        first = summed[0]
        yield Finding(
            "all_reduce with ReduceOp.AVG returns the sum on every rank ({observed} for {expected}): the library adds "
            "and does not divide. No device is at fault; average by SUM and a division, or update {backend}",
            hosts=run.hosts(tuple(event.rank for event in summed)),
            observed=first.got,
            expected=first.expected,
            backend="torch_npu" if run.plan.backend == "hccl" else run.plan.backend,
        )
    for blame in blame_ranks(wrong, run.groups, run.plan.world, rounds, run.plan.host_of, run.plan.backend):
        first = blame.events[0]
        ops = sorted({event.op for event in blame.events})
        name, members = run.groups.get(first.gid, (filled("group {0}", first.gid), tuple(range(run.plan.world))))
        kind = describe_damage(first, members)
        yield Finding(
            "{blame} {who}: {op} ({numel} x {dtype}, group {group}) returned {observed} at element {index} "
            "on rank {seen}, expected {expected}{looks}; wrong elements in total: {wrong}, in {ops}{soaked}{second}",
            hosts=run.hosts(blame.ranks),
            accelerator=ACCELERATORS[run.plan.backend],
            blame=describe_place(run, blame),
            who=describe_ranks(run, blame.ranks),
            ranks=list(blame.ranks),
            tie=blame.kind in ("one of", "between"),
            op=first.op,
            numel=first.numel,
            dtype=first.dtype,
            group=name,
            index=first.index,
            seen=first.rank,
            observed=first.got,
            expected=first.expected,
            looks=filled(", {0}", kind) if kind else "",
            wrong=sum(event.wrong for event in blame.events),
            soaked=soak_note(collectives.values(), blame.ranks),
            second=second_round_note(rounds, blame),
            ops=ops,
        )


def describe_place(run: SmokeRun, blame: Blame) -> str:
    """What stands before the ranks: how much is known of where values change."""
    hosts = run.hosts(blame.ranks)
    if blame.kind == "outward":
        return filled(
            "the fault lies with what {0} exchanges with other hosts, and not with what it does alone:", hosts[0]
        )
    if blame.kind == "between":
        way = (
            filled("the way between {0}", joined(" and ", hosts)) if len(hosts) > 1 else "what passes between two ranks"
        )
        return filled("the fault lies with {0}:", way)
    return "the fault lies with" if blame.kind == "ranks" else "the fault lies with one of"
