from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, seconds_text
from doctor.engine.quantities import times_text
from doctor.facts.smoke.further_stages import SmokePairs
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import ACCELERATORS, pressure_note
from doctor.smoke.speed.rank_speeds import compare_links, describe_end, megabytes


@check(severity=WARNING, area="smoke")
def smoke_host_slow(run: SmokeRun, pairs: PerHost[SmokePairs]) -> Iterator[Finding]:
    """No host exchanges data more slowly with the others than they do with each other.

    ## Why it matters
    A ring or a tree of ranks is as quick as its slowest member. One slow host slows every collective: its card runs at
    a tenth of its speed, its PCIe slot has half the lanes, or its CPU is busy with something else. The time of the
    whole collective does not show which host it is.

    ## What to do
    On {host}, look at `tc -s qdisc show` (a line with netem or tbf slows it: `tc qdisc del dev NIC root`),
    `ip -s link` (errors, drops), `grep . /sys/class/net/*/speed`, `grep . /sys/class/net/*/statistics/*errors
    /sys/class/net/*/statistics/*dropped`, `lspci -vv | grep -E 'LnkCap|LnkSta'` (a
    width or speed below what the card can do), `top -b -n 1 | head -20`.
    - NPU: `hccn_tool -i {device} -speed -g`, `hccn_tool -i {device} -link_stat -g`, `hccn_tool -i {device} -stat -g`,
      `hccn_tool -i {device} -optical -g`.
    - GPU: `ibstat`, `nvidia-smi topo -m`.

    A port with errors or below the speed of the others: clean and reseat its cable or transceiver on both ends, then
    replace it, then look at the switch port. A PCIe width below the card's: reseat the card. Other load: end it. Then
    measure again: `doctor smoke {all_hosts} --select smoke-host-slow`.

    ## Source
    All hosts exchange messages pairwise, in rounds in which each has one partner; with more than 32 hosts, in as many
    rounds as are needed to distinguish them. A host is named when its exchanges with most of its partners are slower
    than those of the others among themselves, by 15 %, with a chance below one in 1000 that a healthy fleet shows such
    anywhere (an exponential tail of the noise, Bonferroni's correction; as in `net-path-slow`). Slow exchanges are
    measured again up to three times within two seconds, with no other pair at work, and have to be slower than other
    pairs each time, by half of the excess at least: a program that keeps a host busy for a moment slows it down, and is
    no fault of the host. With `--for` all is measured again when rank 0's all_reduce takes 1.5 times as long as in the
    quickest interval before, and while its calls take five times as long as usual. This verdict can be wrong where a
    program keeps the host busy for longer. There is no
    table of what a network should do: hosts are compared with each other, so a fleet that is slow as a whole is not
    detected, nor is it known which of only two hosts is slow.
    """
    for slow_end, size, when in (path for path in compare_links(pairs) if path[0].kind == "host"):
        rank = slow_end.hosts[0]
        yield Finding(
            "exchanges of {size} with {who} take {ratio} times as long as those between the other hosts: "
            "{seconds} against {norm}, with {slow} of {tried} partners{when}{pressure}",
            hosts=[run.plan.host_of(rank)],
            accelerator=ACCELERATORS[run.plan.backend],
            who=describe_end(run, rank),
            pressure=pressure_note(run, [run.plan.host_of(rank)]),
            rank=rank,
            when=when,
            size=megabytes(size),
            ratio=times_text(slow_end.ratio),
            seconds=seconds_text(slow_end.seconds),
            norm=seconds_text(slow_end.peer_seconds),
            slow=slow_end.slow_paths,
            tried=len(slow_end.paths),
            sigmas=round(slow_end.sigmas, 1),
        )
