"""The UB ports of NPUs of the 950 family, whose hccn_tool has other commands than that of all families before it."""

from __future__ import annotations

from doctor.engine.fact import Absent, Fact
from doctor.facts.hccn.tool import per_npu, per_npu_probe

_OTHER_FAMILY = "no NPU of the 950 family"
_SCRIPT = f"""grep -qsx 0xd806 /sys/bus/pci/devices/*/device || {{ echo '{_OTHER_FAMILY}'; exit 0; }}
ask -g -dev_info -i "$1\""""


def _parse_ports(text: str) -> dict[str, str]:
    """The link status by die and port, from the table with these columns. Raises: Absent, ValueError."""
    if _OTHER_FAMILY in text:
        raise Absent("only NPUs of the 950 family have UB ports that hccn_tool lists")
    ports: dict[str, str] = {}
    header: list[str] = []
    is_open = False  # a table has a line below its rows
    for line in text.splitlines():
        is_open = bool(header) and (is_open or line.strip().startswith("|")) and not line.strip().startswith("+")
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        names = [cell.replace(" ", "") for cell in cells]  # of one tool's releases and documents: UDie ID, UdieID
        if "PortID" in names and "LinkStatus" in names:
            header = [name.lower() for name in names]
        elif header and len(cells) == len(header):
            row = dict(zip(header, cells, strict=True))
            name = f"{int(row.get('udieid') or 0)}/{int(row['portid'])}"
            if name in ports:
                raise ValueError("a port that is listed twice")
            ports[name] = row["linkstatus"]
        elif cells:
            header = []
    if not ports and "Interface Name" in text:
        raise Absent("the NPU has no UB port, as a single card")
    if not ports or is_open:
        raise ValueError
    return ports


class UbPorts(Fact, frozen=True):
    """The link of every UB port of each NPU (``hccn_tool -g -dev_info -i N``).

    Raw output, for each NPU, from hccn_tool (docs/en/Ascend_950_HCCN_Tool of github.com/hicann/driver)::

        +---------+---------+---------------------+-----------+-------------+------------+
        | UDie ID | Port ID | Speed Ability(Gbps) | Port Type | Link Status | Media Type |
        +---------+---------+---------------------+-----------+-------------+------------+
        | 0       | 4       | 400                 | UB        | UP          | Electrical |
        +---------+---------+---------------------+-----------+-------------+------------+
    """

    probe = per_npu_probe(_SCRIPT, root=True, stand_in="")

    by_npu: dict[int, dict[str, str]]
    """By NPU, then by die and port, ``0/4``: UP or DOWN."""
    read = per_npu(_parse_ports)
