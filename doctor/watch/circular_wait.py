"""Ranks that wait outside of collectives for what ranks that wait for them in collectives were to do. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from doctor.engine.sanitize import rank_names
from doctor.engine.texts import filled
from doctor.smoke.hang.detector import AMBIGUOUS, MAJORITY
from doctor.smoke.model import Failure, Snapshot

AT_KEY = "a call of the job's store, for a key that is not set"
FOR_RANK = re.compile(r"waits for rank (\d{1,7})")


class CircularWait(NamedTuple):
    """What the ranks of a job wait for, of whom some may wait for each other."""

    world: int
    store_port: str  # empty: not known
    snapshots: Mapping[int, Snapshot]
    waits: Mapping[int, str]  # by rank, as `Effort.kind`

    def _is_at_store(self, rank: int) -> bool:
        return bool(self.store_port) and self.waits.get(rank, "").endswith(f":{self.store_port}")

    def other_side(self, rank: int) -> list[int]:
        """Ranks in collectives that alone could end its wait: by a lock that they keep, or by a key of the store."""
        blocked = [number for number, snap in self.snapshots.items() if snap.state == "collective"]
        if owner := FOR_RANK.fullmatch(self.waits.get(rank, "")):
            return [number for number in blocked if number == int(owner[1])]
        at_store = [number for number in self.snapshots if number not in blocked and self._is_at_store(number)]
        return blocked if rank in at_store and len(blocked) + len(at_store) == self.world else []

    def judged(self, failure: Failure | None) -> Failure | None:
        """With those to blame: of a key that most wait for, the others; else both sides, as nothing tells which."""
        others = {number for rank in failure.culprit_ranks for number in self.other_side(rank)} if failure else set()
        if failure is None or not others:
            return failure
        if not all(map(self._is_at_store, failure.culprit_ranks)):
            text = "what {0} asked for is kept locked by {1}, which waits in a collective in turn: neither goes on"
            text = filled(text, rank_names(failure.culprit_ranks), rank_names(sorted(others)))
            return failure.blaming({*failure.culprit_ranks, *others}, text=text)
        at_store = [rank for rank in self.snapshots if rank not in others]
        blamed, why = (others, MAJORITY) if len(at_store) > len(others) else (self.snapshots, AMBIGUOUS)
        calls = failure.calls | dict.fromkeys(at_store, AT_KEY)
        failure = msgspec.structs.replace(failure, kind="mismatch", calls=calls, text="")
        return failure.blaming(blamed, evidence=(*failure.evidence, why))
