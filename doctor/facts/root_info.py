"""The files that tell ranks the addresses of NPUs: the 950 family's, of its own host, and the rank table as it lies."""

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


def hash_rank_table(arguments: ProbeArguments) -> dict[str, object]:
    """Runs on the host: whether the rank table file is there, and its SHA-256."""
    path = arguments.get("rank_table", "")
    if not path:
        return {"path": ""}
    import hashlib  # here: it loads OpenSSL's library

    try:
        with open(path, "rb") as file:
            sha256 = hashlib.sha256(file.read(64 << 20)).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return {"path": path, "present": False, "sha256": ""}
    return {"path": path, "present": True, "sha256": sha256}


class RankTableOnHost(Fact, frozen=True):
    """Whether the rank table lies at the job's path on the host, and which one it is.

    Raw output, as JSON::

        {"path": "/job/hccl.json", "present": true,
         "sha256": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}
    """

    probe = ask(hash_rank_table, job=True)

    path: str
    present: bool
    sha256: str
    """Of its bytes; empty when it is not there."""

    @classmethod
    def read(cls, answer: ProbeAnswer) -> RankTableOnHost:
        data = answer.json()
        if not data["path"]:
            raise Absent("no rank table was given")
        return cls(path=data["path"], present=data["present"], sha256=data["sha256"])
