from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.nic_rings import NicRings

LEAST_SHARE = 1e-4
"""Of lost packets. TCP that loses so many reaches 1.2 segments / (round-trip time x square root of the share): with
1460 bytes and 0.1 ms 14 Gbit/s (Mathis and others, 1997), less than what today's cards carry."""
LEAST_DROPS = 1000
"""Fewer since the host was started say nothing."""


@check(severity=WARNING, area="connectivity")
def receive_ring_full(cards: NicRings) -> Iterator[Finding]:
    """No network card drops packets because its receive buffers are full while it could have more of them.

    ## Why it matters
    A burst, as when many ranks send to one host, finds the ring full. Packets are lost and sent again after a timeout,
    and every collective over TCP waits for them.

    ## What to do
    On {host}, while no job runs (the link may be down for a second): `ethtool -G {interface} rx {maximum}`. To keep it
    with NetworkManager: `nmcli connection modify "$(nmcli -g GENERAL.CONNECTION device show {interface})"
    ethtool.ring-rx {maximum}`; with systemd-networkd, RxBufferSize={maximum} in the .link file of the card. If
    `ethtool -S {interface}` still counts drops, the CPUs that receive are busy: see `cat /proc/interrupts`.

    ## In a container
    The card is the machine's that {host} runs on, and so is its ring: `ethtool -G {interface} rx {maximum}` there.

    ## Source
    Linux, include/uapi/linux/if_link.h: rx_missed_errors are "packets dropped by the device due to lack of buffer
    space", and rx_fifo_errors on fast cards those for which no buffer was available; of mlx5 it is rx_out_of_buffer.
    Red Hat, Monitoring and tuning NIC ring buffers: a larger ring where drops grow. The counters are read twice, a
    second apart; since the host was started one packet in 10,000 counts. A ring below its maximum alone is the driver's
    choice, and a card that drops packets at its maximum is not reported.
    """
    for name, ring in cards.rings.items():
        if ring.current >= ring.maximum:
            continue
        since_start = ring.dropped >= LEAST_DROPS and ring.dropped >= LEAST_SHARE * max(ring.packets, 1)
        if ring.growth or since_start:
            yield Finding(
                "{interface} dropped {observed} packets {when}, expected {expected}: its receive ring was full; the "
                "ring has {current} of {maximum} buffers",
                interface=name,
                observed=ring.growth or ring.dropped,
                when="within a second" if ring.growth else "since the host was started",
                current=ring.current,
                maximum=ring.maximum,
                expected=0,
            )
