from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.first_stages import SmokeStart
from doctor.smoke.model import SmokeRun
from doctor.smoke.results.trouble_findings import HALTED, HELD_BACK, NO_ROOM, REFUSING, TAKEN, failure_findings


@check(severity=ERROR, area="smoke")
def smoke_network_silent(run: SmokeRun, started: PerHost[SmokeStart] | None) -> Iterator[Finding]:
    """Everything that one rank sends reaches the other.

    ## Why it matters
    Every rank has entered the collective, but the data does not arrive. A link drops packets, a firewall refuses new
    ports, or a switch drops jumbo frames. Small messages often pass, so that the job starts and hangs at its first
    large one.

    ## What to do
    {remedy}

    {pings} Where it fails: `ip -br address` and `ip route`, then the cable and the switch port. Where it passes: `nft
    list ruleset` and `iptables-save` for rules that drop, `ping -c 3 -M do -s 1472 {peer}` from the other end for
    full-size packets (8972 with an MTU of 9000), `ip -s link` for drops. Where the library took the wrong interface,
    name it in the job's script: HCCL_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME.

    - NPU: `hccn_tool -i {device} -net_health -g` and `hccn_tool -i {device} -link -g` as well.

    ## Source
    All members entered and none came out for longer than ten times the longest normal transfer and at least 3 s; or
    half a second, if the kernel's counters show that a waiting rank's socket sends the same bytes again. Time in which
    connections of the waiting ranks carry bytes does not count: slow is not silent. Then every host connects to every
    other: where that fails for all pairs of a host, the host is named, else the pair. Where no part that hangs together
    holds more than half of the hosts, no host is to blame: the finding names all parts. A host that has the address of
    an end of such a link as well, since the run began, is named; so is one whose own kernel refuses at once to send to
    a host that it has a connection with, unless most hosts do; so is one end whose `netem` or `tbf` (`tc qdisc show`)
    limits what it sends to less than 10 Mbit/s, drops 2 % or delays by 0.1 s, where most hosts have none; so is one end
    of all such links that resends what its own ranks have for each other, too; so is one whose kernel holds bytes for a
    peer with room and has none on the way, twice, as its own rules refuse them (`tcp_info`). Where a host announces no
    room though its ranks have read all that came, the pair is named, as its peer or a firewall between them can do that
    as well. Where no socket and no new connection shows a broken link, bytes may only be late: the run waits for 27 s
    more. Then a host is named to whose ranks bytes have come that they do not read, at two looks, and no other. Where
    the kernel of an end had no room for a neighbour meanwhile, no link is named, and a host only where most hosts had
    room. This verdict can be wrong where a link is cut for seconds only: a job waits longer than this run does.
    """
    yield from failure_findings(
        run,
        lambda failure: (
            "data does not arrive in {call}: {links}"
            if failure.op
            else "data does not arrive in a collective that was not recorded: {links}"
        ),
        "network",
        remedies=(NO_ROOM, TAKEN, REFUSING, HELD_BACK, HALTED),
    )
