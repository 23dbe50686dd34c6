"""The file from which HCCL of the 950 family learns the addresses of a host's NPUs."""

from __future__ import annotations

import os

import msgspec

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, Unreadable, ask
from doctor.engine.sanitize import strip_control_chars
from doctor.engine.texts import filled

ROOT_INFO = "/etc/hccl_rootinfo.json"


def read_root_info(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: the file's counts and devices, and whether its topology file exists."""
    path = ROOT_INFO
    if not os.path.isfile(path):
        return {"there": False}
    import json  # here: most hosts have no such file

    try:
        with open(path, errors="replace") as file:
            tree = json.loads(file.read(1 << 24))
    except OSError as error:
        return {"there": True, "refused": error.strerror or "not readable"}
    except ValueError as error:
        return {"there": True, "not_json": str(error)[:100]}
    if not isinstance(tree, dict):
        return {"there": True, "problem": "not an object"}
    ranks = tree.get("rank_list")
    ranks = ranks if isinstance(ranks, list) else None
    count, topology = tree.get("rank_count"), tree.get("topo_file_path")
    devices = [rank.get("device_id") for rank in ranks or [] if isinstance(rank, dict)]
    return {
        "there": True,
        "count": int(str(count)) if str(count).isdigit() else None,
        "listed": None if ranks is None else len(ranks),
        "devices": [int(str(device)) for device in devices if str(device).isdigit()],
        "topology": topology[:500] if isinstance(topology, str) else "",
        "topology_exists": isinstance(topology, str) and os.path.isfile(topology),
    }


class _Answer(msgspec.Struct, frozen=True):
    there: bool
    refused: str = ""
    not_json: str = ""


class HcclRootInfo(Fact, frozen=True):
    """What /etc/hccl_rootinfo.json states, and whether the topology file that it names exists.

    Raw output, as JSON::

        {"there": true, "count": 2, "listed": 2, "devices": [0, 1],
         "topology": "/usr/local/Ascend/driver/topo/950/atlas_850_1.json", "topology_exists": true}
    """

    probe = ask(read_root_info, job=True)

    problem: str = ""
    """Why it is not JSON; empty when it is."""
    count: int | None = None
    """Its rank_count."""
    listed: int | None = None
    """Entries of its rank_list; None when it has none."""
    devices: tuple[int, ...] = ()
    """Their device_id."""
    topology: str = ""
    """Its topo_file_path; empty when it has none."""
    topology_exists: bool = False

    @classmethod
    def read(cls, answer: ProbeAnswer) -> HcclRootInfo:
        data, info = msgspec.convert(answer.json(), _Answer), msgspec.convert(answer.json(), cls)
        if not data.there:
            raise Absent(filled("there is no {0}", ROOT_INFO))
        if data.refused:
            raise Unreadable(f"{ROOT_INFO}: {strip_control_chars(data.refused, 80)}")
        problem = strip_control_chars(data.not_json or info.problem, 120)
        problem = filled("not JSON: {0}", problem) if data.not_json else problem
        return msgspec.structs.replace(info, problem=problem, topology=strip_control_chars(info.topology))
