"""Which rank of which job this process is, by what its launcher put into the environment. Pure.

Launchers nest: torchrun under srun, mpirun in an allocation. The innermost one made the processes, so it is believed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from doctor.engine.sanitize import printable
from doctor.environment.launchers import ENVIRONMENT, KINDS, Adopted, Kind, Reader, environment


def adopt(environ: Mapping[str, str], kinds: Sequence[Kind] = KINDS) -> Adopted | None:
    """This process as its innermost launcher describes it; None where there was none. Never raises."""
    reader = Reader(environ)
    found = [kind for kind in kinds if all(mark in reader.environ for mark in kind.marks)]
    names = tuple(kind.name for kind in found)
    by_hand = 0 if {"torchrun", "msrun"} & set(names) else _by_hand(reader)  # those set the same variables
    # Of what a launcher started as a single process, a loop in a shell has made more.
    inner = [kind for kind in found if by_hand < 2 or reader.text(kind.size) != "1"]
    seen = names + (("environment",) if by_hand else ())
    if not seen:
        return None
    kind = inner[0] if inner else ENVIRONMENT
    adopted = kind.read(reader)
    notes = (*adopted.notes, *_nesting(kind, seen), *(contradiction(reader, adopted) if inner else ()))
    return msgspec.structs.replace(adopted, seen=seen, notes=notes, problems=tuple(dict.fromkeys(reader.problems)))


def told(environ: Mapping[str, str], rank: int, world: int, local: int = -1, job: str = "") -> Adopted:
    """The same for processes that a program starts by itself, as with ``torch.multiprocessing.spawn``."""
    given = {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local if local >= 0 else rank)}
    kept = {name: environ[name] for name in ("MASTER_ADDR", "MASTER_PORT", "DEVICE_ID") if name in environ}
    reader = Reader({**kept, **given})
    adopted = environment(reader)
    identity = f"spawn {job or adopted.identity}"
    return msgspec.structs.replace(
        adopted, launcher="spawn", identity=identity, seen=("spawn",), problems=tuple(dict.fromkeys(reader.problems))
    )


def _by_hand(reader: Reader) -> int:
    """The world's size that variables of no launcher tell, 0 without them."""
    for rank, world in (("RANK", "WORLD_SIZE"), ("RANK_ID", "RANK_SIZE")):
        if rank in reader.environ:
            size = reader.text(world)
            return max(int(size), 1) if re.fullmatch(r"[0-9]{1,9}", size, re.ASCII) else 1
    return 0


def _nesting(kind: Kind, seen: tuple[str, ...]) -> tuple[str, ...]:
    outer = [name for name in seen if name not in (kind.name, "environment")]
    if not outer:
        return ()
    shown = "a loop in a shell" if kind is ENVIRONMENT else kind.name
    return (f"started by {shown} inside of {' and '.join(outer)}: the ranks are those of {shown}",)


def contradiction(reader: Reader, adopted: Adopted) -> tuple[str, ...]:
    """A script that reads RANK would take itself for another rank than the launcher does."""
    says = {"RANK": adopted.rank, "WORLD_SIZE": adopted.world} if adopted.role == "rank" else {}
    wrong = [
        f"{name} is {printable(reader.text(name), 40)}"
        for name, value in says.items()
        if reader.text(name, str(value)) != str(value)
    ]
    if not wrong:
        return ()
    real = f"{adopted.launcher} made this rank {adopted.rank} of {adopted.world}"
    return (f"{' and '.join(wrong)}, but {real}: a program that reads the variables is another rank",)
