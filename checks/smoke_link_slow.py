from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check, seconds_text
from doctor.engine.quantities import times_text
from doctor.facts.smoke.further_stages import SmokePairs
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import ACCELERATORS, pressure_note
from doctor.smoke.speed.rank_speeds import compare_links, describe_end, megabytes


@check(severity=WARNING, area="smoke")
def smoke_link_slow(run: SmokeRun, pairs: PerHost[SmokePairs]) -> Iterator[Finding]:
    """No two hosts exchange data more slowly than most pairs.

    ## Why it matters
    One bad link between two healthy hosts (a cable, an uplink of a switch, a route with a detour) slows down each ring
    that passes over it. Tests of whole collectives hardly show it: the library may not use that link today, and does
    tomorrow.

    ## What to do
    Both hosts are fast with their other partners, so check the path between them. Compare `tracepath {other}` from
    {one}, and back, with a fast pair: an extra hop, a smaller MTU? Then check the counters of the switch ports on that
    path (CRC and symbol errors, pauses, drops) and how traffic is spread over its uplinks (ECMP, LAG members).
    - NPU: `hccn_tool -i {device} -lldp -g` names the port, `hccn_tool -i {device} -traceroute -g` the path.

    Measure again: `doctor smoke {all_hosts} --select smoke-link-slow`.

    ## Source
    All hosts exchange messages pairwise, in rounds in which each has one partner; suspicious pairs repeat it up to
    three times within two seconds while all other hosts are idle, in turn with pairs that are not suspected, and have
    to be slower than those each time: what disturbs the hosts at that moment disturbs both. When hosts that are slow
    with all their partners are set aside, a pair is named that takes 1.5 times as long as the median or more, and at
    least half as much more each time it is measured, with a chance below one in 1000 that a healthy fleet shows such
    anywhere (an exponential tail of the noise, Bonferroni's correction; as in `net-path-slow`). With more than 32
    hosts only some of the pairs meet. This verdict can be wrong where a host is busy during the measurements of one
    pair only.
    """
    for link, size, when in (path for path in compare_links(pairs) if path[0].kind == "link"):
        first_rank, other = link.hosts
        yield Finding(
            "{first} and {second} take {ratio} times as long as most pairs to exchange {size}{when}: {seconds} against "
            "{norm}; both are fast with most others, so the path between them is slow{pressure}",
            accelerator=ACCELERATORS[run.plan.backend],
            hosts=run.hosts(link.hosts),
            pressure=pressure_note(run, run.hosts(link.hosts)),
            first=describe_end(run, first_rank),
            second=describe_end(run, other),
            one=run.plan.host_of(first_rank),
            other=run.plan.host_of(other),
            ranks=list(link.hosts),
            when=when,
            size=megabytes(size),
            ratio=times_text(link.ratio),
            seconds=seconds_text(link.seconds),
            norm=seconds_text(link.peer_seconds),
            sigmas=round(link.sigmas, 1),
        )
