"""Resumed trainings of several frameworks that lose one thing each: ``python -m tests.watch.resume_kinds [KIND ...]``.

Those of DeepSpeed, accelerate and safetensors need these libraries in the interpreter that runs the campaign.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.watch.data_campaign import Ranks, source_of
from tests.watch.resume_campaign import Resume, _seen, is_right

EXPECTED = {
    "optimizer": "moments-new moments",
    "second": "moments",
    "scheduler": "scheduler rate-restart",
    "generators": "generators",
    "others": "generators-rank",
    "position": "data-repeated data-again",
    "layer": "parameters",
    "": "",
}
"""By what is lost: the kinds of difference that name it."""


class Case(NamedTuple):
    """One pair of runs."""

    kind: str
    lost: str = ""
    worlds: tuple[int, int] = (2, 2)
    lag: str = ""
    """Set: a rank hears of the save before it saves itself."""

    @property
    def resume(self) -> Resume:
        return Resume(kinds=frozenset(EXPECTED[self.lost].split()))


SHARDED = ("optimizer", "second", "scheduler", "generators", "others", "position", "layer")
CASES = [
    *(Case(kind, lost) for kind in ("fsdp2", "fsdp1") for lost in SHARDED),
    *(Case("safetensors", lost) for lost in ("optimizer", "second", "position", "layer")),
    *(Case("accelerate", lost) for lost in ("optimizer", "second", "generators", "position", "layer")),
    *(Case("zero1", lost) for lost in ("optimizer", "scheduler", "generators", "position")),
    *(Case("zero3", lost) for lost in ("scheduler", "position", "layer")),
    *(Case("zero2", lost) for lost in ("optimizer", "position")),
    *(Case("fsdp2", lost, worlds) for lost, worlds in (("optimizer", (2, 3)), ("layer", (2, 1)), ("second", (2, 1)))),
    Case("fsdp2", "second", lag="1"),
    *(Case(kind) for kind in ("fsdp2", "fsdp1", "safetensors", "accelerate", "zero1", "zero2", "zero3")),
    Case("fsdp2", lag="1"),
    *(Case("fsdp2 root", "", worlds) for worlds in ((2, 2), (2, 3))),
    Case("fsdp2 root", "second"),
    *(Case("fsdp2", "", worlds) for worlds in ((2, 3), (2, 1), (3, 2))),
]


def main() -> None:
    """Runs those whose kind is named, or all."""
    chosen = [case for case in CASES if not sys.argv[1:] or case.kind in sys.argv[1:]]
    libraries = {"accelerate": "accelerate", "safetensors": "safetensors.torch", "zero": "deepspeed"}
    needed = [name for start, name in libraries.items() if any(case.kind.startswith(start) for case in chosen)]
    ranks, right = Ranks(sys.executable, *needed), {True: 0, False: 0}
    with tempfile.TemporaryDirectory() as folder:
        for case in chosen:
            place = Path(folder, f"{case.kind}-{case.worlds[0]}{case.lag}")
            first = not place.exists()
            row = run_case(ranks, case, place, first)
            print(row, flush=True)
            right[row.startswith("right")] += 1
    ranks.close()
    print(f"{right[True]} right, {right[False]} not, of {len(chosen)}")


def run_case(ranks: Ranks, case: Case, place: Path, first: bool) -> str:
    """A line of what came of it. ``place``: of the checkpoint, which is made once."""
    source = source_of("resumed_kinds")
    checkpoint = str(place / "ck")
    if first:
        (place / "marks").mkdir(parents=True)
        variables = {"CHECKPOINT": checkpoint, "GOES_ON": "0", "KIND": case.kind, "LAG": case.lag}
        answer = ranks.run(source, case.worlds[0], str(place / "marks"), **variables)
        if any(answer["codes"]):
            return f"broken {case}: saving: {str(answer)[-600:]}"
        _seen(place / "marks", place, "torchrun train.py")
    with tempfile.TemporaryDirectory() as marks:
        variables = {"CHECKPOINT": checkpoint, "GOES_ON": "1", "KIND": case.kind, "LOSE": case.lost}
        answer = ranks.run(source, case.worlds[1], marks, **variables)
        if any(answer["codes"]):
            return f"broken {case}: {str(answer)[-600:]}"
        report = _seen(Path(marks), place, "torchrun train.py")
    rows = [f"{row.level} {row.kind} {row.ranks or ''}" for row in report.differences] if report else "no resume"
    word = "right" if is_right(case.resume, report) else "WRONG"
    return f"{word} {case}: {rows} {report.uncompared if report else ''}"


if __name__ == "__main__":
    main()
