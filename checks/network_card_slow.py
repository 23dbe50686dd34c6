from collections.abc import Iterator

from doctor import WARNING, Finding, PerHost, check
from doctor.analysis.majority import differing
from doctor.facts.host_settings import NetworkCards


@check(severity=WARNING, area="connectivity")
def network_card_slow(cards: PerHost[NetworkCards]) -> Iterator[Finding]:
    """Every network card has the speed that it has on the other hosts, in both directions at once.

    ## Why it matters
    A card that negotiated 1 in place of 25 Gbit/s loads data and starts jobs more slowly, and with Gloo or TCP slows
    every collective. With half duplex it collides.

    ## What to do
    On {host}: `ethtool {interface}`. Check the cable or transceiver and the settings of the switch port; both ends must
    negotiate, or have the same speed set.

    ## Source
    `speed` (Mbit/s) and `duplex` of /sys/class/net/NAME (Linux ABI, sysfs-class-net), of cards with a link; the
    majority of hosts with a card of that name is the norm.
    """
    for name in sorted({name for own in cards.values() for name in own.cards}):
        speeds = {host: f"{own.cards[name].megabits} Mbit/s" for host, own in cards.items() if name in own.cards}
        for host, own in cards.items():
            if name in own.cards and own.cards[name].duplex == "half":
                yield Finding(
                    "{interface} is {observed}; expected {expected}",
                    hosts=[host],
                    interface=name,
                    observed="half duplex",
                    expected="full duplex",
                )
        if len(speeds) > 2:
            yield from differing(
                speeds, "{interface} has {observed}; {count} of {total} hosts have {expected}", interface=name
            )
