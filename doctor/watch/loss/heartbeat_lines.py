"""What HCCL's heartbeat says in the logs of a job, as a failure of its run. It reads no file of the job."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from doctor.diagnose.run import diagnose_found
from doctor.diagnose.signature import load_signatures
from doctor.smoke.model import UNKNOWN_HOST, Failure, Layout, RankPlacement, SmokePlan, SmokeRun

CHECK = "smoke-rank-blocked"
HEARTBEAT = "hccl-heartbeat-exception"
"""The signature of what HCCL's heartbeat says."""


def heartbeat_run(lines: Sequence[tuple[int, bytes]], names: Sequence[str], ranks: int) -> dict[str, object]:
    """`doctor.smoke.model.SmokeRun` as builtins, with the failure that the lines name; empty where they name none.

    ``lines``: file and line; ``names``: of the files, which may tell their ranks; ``ranks``: how many are known.
    """
    if not lines:
        return {}
    with tempfile.TemporaryDirectory(prefix="doctor-heartbeat-") as folder:
        for number in sorted({file for file, _ in lines}):
            path = Path(folder, str(number), Path(names[number]).name[-100:] or "log")
            path.parent.mkdir()
            path.write_bytes(b"\n".join(line for file, line in lines if file == number) + b"\n")
        causes = diagnose_found([folder], load_signatures()).causes
    cause = next((cause for cause in causes if cause.signature == HEARTBEAT), None)
    if cause is None:
        return {}
    culprits = tuple(sorted({culprit.rank for culprit in cause.culprits if culprit.rank is not None}))
    failure = Failure("blocked", culprits, certainty="evidence", stage="training", text=cause.summary)
    world = max(ranks, *(rank + 1 for rank in culprits), 1)
    plan = SmokePlan(
        backend="hccl",
        places=tuple(RankPlacement(rank, UNKNOWN_HOST) for rank in range(world)),
        layouts=(Layout(dp=world),),
        stages=("training",),
    )
    run = SmokeRun(plan=plan, failures=(failure,), ended="trouble", watched=True)
    built: dict[str, object] = msgspec.to_builtins(run, str_keys=True)
    return built
