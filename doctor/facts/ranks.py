"""The rank table as it lies on the hosts."""

from __future__ import annotations

from doctor.engine.fact import Absent, Fact, ProbeAnswer, ProbeArguments, ask


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
