"""The switches that the host's own interfaces hang from, as the host's LLDP daemon has heard them."""

from __future__ import annotations

import re
from collections.abc import Collection

from doctor.engine.fact import Absent, Fact, ProbeAnswer, run
from doctor.engine.grouping import sets_by_key
from doctor.engine.sanitize import strip_control_chars

MAX_NEIGHBOURS = 256
MAX_NAME = 60
_LINE = re.compile(r"lldp\.([^\s=]{1,15}?)\.(via|chassis\.mac|chassis\.name)=(.{1,255})")


class SwitchNeighbours(Fact, frozen=True):
    """The switch at the other end of each interface, by LLDP. Absent where no LLDP daemon (lldpd) runs.

    Raw output, of ``lldpctl -f keyvalue`` (https://lldpd.github.io/, lldpctl(8))::

        lldp.eth0.via=LLDP
        lldp.eth0.rid=1
        lldp.eth0.chassis.mac=86:ac:5e:b5:66:80
        lldp.eth0.chassis.name=leaf1
        lldp.eth0.port.descr=Ethernet1/7

    What neighbours send is untrusted: their names serve to compare and to be shown, and decide nothing.
    """

    probe = run("lldpctl -f keyvalue", requires="lldpctl", root=True, timeout=10, limit=1 << 18)

    by_interface: dict[str, tuple[str, ...]]
    """The names of the switches, sorted; the hardware address of one without a name."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> SwitchNeighbours:
        names: dict[tuple[str, int], str] = {}
        counts: dict[str, int] = {}  # lldpctl without its daemon prints nothing, and ends with 1
        for line in answer.text(codes=(0, 1)).splitlines():
            match = _LINE.fullmatch(line)
            if match is None:
                continue
            interface, key, value = match.groups()
            if key == "via":
                counts[interface] = counts.get(interface, 0) + 1
            elif len(names) < MAX_NEIGHBOURS:
                neighbour = interface, counts.get(interface, 0)
                if key == "chassis.name" or neighbour not in names:
                    names[neighbour] = strip_control_chars(value, MAX_NAME)
        if not names:
            raise Absent("no LLDP neighbour was heard")
        by_interface = sets_by_key((interface, name) for (interface, _), name in names.items())
        return cls(by_interface={interface: tuple(sorted(switches)) for interface, switches in by_interface.items()})

    def switch_of(self, interface: str, members: Collection[str] = ()) -> str:
        """The switch that an interface hangs from; of a bond, of its ``members``. Empty where it is not known.

        Two switches of one bond are one place: ``leaf1, leaf2``.
        """
        names = self.by_interface.get(interface) or tuple(
            sorted({name for member in members for name in self.by_interface.get(member, ())})
        )
        return ", ".join(names)
