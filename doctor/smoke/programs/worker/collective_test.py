"""The collectives of one process group with contents that are known beforehand, compared on the CPU."""

from __future__ import annotations

import math
import time
from typing import Any, Callable, Tuple

from doctor.smoke.programs.secondary_errors import is_secondary
from doctor.smoke.programs.worker.comm import ProcessGroup
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import dist, torch
from doctor.smoke.programs.worker.values import digest, json_number

UNSUPPORTED_MESSAGES = (
    "nsupported", "not support", "nvalid scalar type", "not implemented", "Cannot use ReduceOp", "only supports",
)  # fmt: skip
"""Parts of torch's messages about a dtype or an operation that a backend lacks. Any other error is a failure."""
ODD_COUNT = 1021
"""Elements of a message whose length neither a power of two nor the pattern's period divides."""
MAX_REPORTED = 50
"""Wrong results that one rank reports for one group."""

SUMS, SURE_ELEMENTS = ("all_reduce", "reduce", "reduce_scatter"), 3
"""Labels of sums, and wrong elements that tell whose part of them is wrong."""

LONE_RANKS = 64
"""The largest world in which sums of one element are of values that tell who gave them."""

Case = Tuple[Callable[[], object], Any, Any]
"""The call, the tensor that holds its result, and the expected result, or None where this rank gets none."""


def lone_value(rank: int) -> int:
    """What a rank gives to a sum of one element: odd, unlike all others', and exact in the sum of single precision."""
    return 4099 + 2 * (138 * (rank + 1) ** 3 % 6007)


class TestPattern:
    """What each rank sends: element i of rank r is (7i + 3r) mod 11, plus 1. Its period makes it cheap to generate.

    In worlds of more than 11 ranks the modulus is as large as the world, and what would be above 11 is 0. So no two
    ranks ever send the same, and a sum is at most 66, which every dtype holds exactly.
    """

    def __init__(self, world_size: int) -> None:
        self.period = max(11, world_size)
        while self.period % 3 == 0 or self.period % 7 == 0:
            self.period += 1

    def period_of(self, rank: int) -> torch.Tensor:
        """One period of what this rank sends."""
        value = (7 * torch.arange(self.period) + 3 * rank) % self.period
        return torch.where(value < 11, value + 1, torch.zeros_like(value)).to(torch.int16)  # thousands of them are held

    def tile(self, values: torch.Tensor, dtype: torch.dtype, count: int, start: int = 0) -> torch.Tensor:
        """``count`` elements from element ``start`` on, given one period. As bool, an odd number is true."""
        values = values % 2 == 1 if dtype == torch.bool else values.to(dtype)
        values = values.roll(-(start % self.period))
        return values.repeat(count // self.period + 1)[:count]


class CollectiveTest:
    """Runs the collectives of one group, compares every result, and collects times."""

    def __init__(self, ctx: RankContext, group: ProcessGroup) -> None:
        self.ctx, self.comm, self.group = ctx, ctx.comm, group
        self.size, self.group_rank = len(group), group.ranks.index(ctx.rank)
        self.pattern = TestPattern(ctx.world_size)
        self.periods = {rank: self.pattern.period_of(rank) for rank in group.ranks}
        self.reduced: dict[str, torch.Tensor] = {}  # kind of reduction -> one period of its result
        self.checked: dict[str, tuple[dict[str, None], int]] = {}  # label -> dtypes, number of comparisons
        self.unsupported: set[tuple[str, torch.dtype]] = set()
        self.seconds: dict[tuple[str, int], list[float]] = {}  # op, bytes -> seconds
        self.reported = 0
        self.local = torch.empty(0)
        """What our rank sends in this call."""
        self.offset = 0
        """Of the values in their period: another one, other data."""
        self.wrong_counts: dict[str, int] = {}
        """By collective: results that were wrong."""
        self.wrong_sources: dict[int, int] = {}
        """By the rank whose elements should have been there: results that were wrong."""

    def has_ring(self) -> bool:
        """Whether its members can send around a ring: there are others, and each may form a pair with the next one."""
        ranks = self.group.ranks
        return self.size > 1 and all(map(self.comm.can_form, zip(ranks, ranks[1:] + ranks[:1])))

    def elements(self, rank: int, dtype: torch.dtype, count: int, start: int = 0) -> torch.Tensor:
        """What this rank sends."""
        return self.pattern.tile(self.periods[rank], dtype, count, start + self.offset)

    def local_input(self, dtype: torch.dtype, count: int) -> torch.Tensor:
        """What our rank sends, on its device."""
        self.local = self.elements(self.ctx.rank, dtype, count).to(self.ctx.device)
        return self.local

    def expected_reduction(self, reduction: str, dtype: torch.dtype, count: int, start: int = 0) -> torch.Tensor:
        """The sum, avg, max or min over all ranks of the group."""
        kind = "any" if dtype == torch.bool else reduction
        if kind not in self.reduced:
            self.reduced[kind] = self.reduce_periods(kind)
        return self.pattern.tile(self.reduced[kind], dtype, count, start + self.offset)

    def reduce_periods(self, kind: str) -> torch.Tensor:
        """One period of the reduction over all ranks. ``any``: a sum of truth values is whether any is true."""
        stack = torch.stack(list(self.periods.values()))
        if kind == "any":
            return (stack % 2).max(0)[0]
        if kind in ("sum", "avg"):
            return stack.sum(0) / (self.size if kind == "avg" else 1)
        extreme: torch.Tensor = getattr(stack, kind)(0)[0]
        return extreme

    def poisoned(self, expected: torch.Tensor) -> torch.Tensor:
        """A buffer for a result, in which every element is wrong until it is written."""
        return (~expected if expected.dtype == torch.bool else expected + 13).to(self.ctx.device)

    # Each of these returns the call, the tensor that holds its result, and the expected result.

    def broadcast(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        tensor = self.local_input(dtype, count)
        return lambda: self.comm.broadcast(tensor, root, self.group), tensor, self.elements(root, dtype, count)

    def reduce(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        tensor = self.local_input(dtype, count)
        expected = self.expected_reduction("sum", dtype, count) if root == self.ctx.rank else None
        return lambda: self.comm.reduce(tensor, root, self.group), tensor, expected

    def all_reduce(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        tensor, op = self.local_input(dtype, count), getattr(dist.ReduceOp, reduction.upper())
        expected = self.expected_reduction(reduction, dtype, count)
        if count == 1 and self.ctx.world_size <= LONE_RANKS:
            tensor = torch.tensor([lone_value(self.ctx.rank)], dtype=dtype, device=self.ctx.device)
            expected = torch.tensor([sum(map(lone_value, self.group.ranks))], dtype=dtype)
        return lambda: self.comm.all_reduce(tensor, self.group, op), tensor, expected

    def all_gather(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        tensor = self.local_input(dtype, count)
        expected = torch.cat([self.elements(rank, dtype, count) for rank in self.group.ranks])
        out = self.poisoned(expected)
        return lambda: self.comm.all_gather(out, tensor, self.group), out, expected

    def reduce_scatter(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        tensor = self.local_input(dtype, count * self.size)
        expected = self.expected_reduction("sum", dtype, count, self.group_rank * count)
        out = self.poisoned(expected)
        return lambda: self.comm.reduce_scatter(out, tensor, self.group), out, expected

    def all_to_all(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        tensor, start = self.local_input(dtype, count * self.size), self.group_rank * count
        expected = torch.cat([self.elements(rank, dtype, count, start) for rank in self.group.ranks])
        out = self.poisoned(expected)
        return lambda: self.comm.all_to_all(out, tensor, self.group), out, expected

    def send_recv(self, dtype: torch.dtype, count: int, root: int, reduction: str) -> Case:
        """Around the ring; every second rank receives first, so that no rank waits forever."""
        ranks, tensor = self.group.ranks, self.local_input(dtype, count)
        next_rank, previous_rank = ranks[(self.group_rank + 1) % self.size], ranks[self.group_rank - 1]
        expected = self.elements(previous_rank, dtype, count)
        out = self.poisoned(expected)

        def send_and_receive() -> None:
            if self.group_rank % 2:
                self.comm.recv(out, previous_rank)
                self.comm.send(tensor, next_rank)
            else:
                self.comm.send(tensor, next_rank)
                self.comm.recv(out, previous_rank)

        return send_and_receive, out, expected

    def run(
        self,
        op: str,
        dtype: torch.dtype | None = None,
        nbytes: int = 0,
        root: int | None = None,
        reduction: str = "sum",
        repeats: int = 0,
    ) -> None:
        """Runs one collective and compares its result; with ``repeats``, that often, and timed.

        Without ``nbytes`` the message has ODD_COUNT elements. Without ``root`` the root is the group's first rank.
        """
        dtype = dtype or torch.float32
        label = op if reduction == "sum" else f"{op} {reduction}"
        if (label, dtype) in self.unsupported:
            return
        parts = self.size if op in ("all_gather", "reduce_scatter", "all_to_all") else 1
        count = max(1, nbytes // parts // 4) if nbytes else ODD_COUNT
        root = self.group.ranks[0] if root is None else root
        try:
            call, result, expected = getattr(self, op)(dtype, count, root, reduction)
            initial = result.clone() if repeats > 1 else None
            for repeat in range(max(1, repeats)):
                if repeat:
                    result.copy_(initial)
                    self.comm.synchronize()
                started = time.perf_counter()
                call()
                if repeats:
                    elapsed = round(time.perf_counter() - started, 7)
                    self.seconds.setdefault((op, count * parts * 4), []).append(elapsed)
                self.compare(op, label, root, result, expected, 0.01 if reduction == "avg" else 0)
            if self.local is not result:  # what our rank gave has changed in its memory, or has not
                before = self.elements(self.ctx.rank, self.local.dtype, self.local.numel())
                if not torch.equal(self.local.cpu(), before):
                    self.compare(op, label, root, self.local, before, 0, reread="input")
        except (RuntimeError, ValueError, TypeError) as error:
            self.report_unsupported(label, dtype, error)

    def report_unsupported(self, label: str, dtype: torch.dtype, error: Exception) -> None:
        """Reports what the backend lacks, so that it is left out from now on; raises any other error."""
        text = str(error).strip().splitlines()[0] if str(error).strip() else ""
        unsupported = any(part in text for part in UNSUPPORTED_MESSAGES)
        if not unsupported or is_secondary(text):
            raise error
        self.ctx.recorder.mark("compute")
        self.unsupported.add((label, dtype))
        self.ctx.emit("unsupported", gid=self.group.number, op=label, dtype=str(dtype)[6:], text=text[:300])

    def compare(
        self,
        op: str,
        label: str,
        root: int,
        result: torch.Tensor,
        expected: torch.Tensor | None,
        tolerance: float,
        peer: int = -1,
        reread: str = "",
    ) -> None:
        """Emits ``wrong`` with the first element that differs by more than the tolerance.

        ``peer``: who sent it, in an exchange of two ranks. ``reread``: see `CollectiveWrong`.
        """
        dtype = str(result.dtype)[6:]
        dtypes, comparisons = self.checked.get(label, ({}, 0))
        self.checked[label] = ({**dtypes, dtype: None}, comparisons + 1)
        self.ctx.compared_results += 1
        if expected is None or torch.equal(result.cpu(), expected):
            return
        buffer, result = result, result.cpu().clone()
        differs = ~((result - expected).abs() <= tolerance) if tolerance else result != expected
        indices = differs.nonzero().flatten()
        if not len(indices):
            return
        reread = reread or ("result" if digest(buffer) != digest(result) else "")
        index = int(indices[0])
        # A library that adds and does not divide has no culprit that a second round could find.
        if label != "all_reduce avg" or not torch.equal(result, expected * self.size):
            peer_rank = self.ctx.rank if reread else peer
            source = peer_rank if peer_rank >= 0 else self.source_of(op, root, index, result.numel())
            self.count_wrong(op, label, dtype, result.numel(), source)
        if self.reported < MAX_REPORTED:
            self.reported += 1
            self.ctx.emit(
                "wrong", gid=self.group.number, op=label, dtype=dtype, numel=result.numel(), wrong=len(indices),
                index=index, root=root if op in ("broadcast", "reduce") else peer,
                expected=json_number(expected[index]), got=json_number(result[index]), offset=self.offset,
                reread=reread, giver=-1 if reread else self.giver_of(label, result, expected, indices),
            )  # fmt: skip

    def source_of(self, op: str, root: int, index: int, numel: int) -> int:
        """The rank that should have sent this element of the result; -1 where it comes from several."""
        ranks = self.group.ranks
        if op in ("all_gather", "all_to_all"):
            return ranks[index * self.size // numel]
        if op == "send_recv":
            return ranks[self.group_rank - 1]
        return root if op == "broadcast" else -1

    def giver_of(self, label: str, result: torch.Tensor, expected: torch.Tensor, indices: torch.Tensor) -> int:
        """The one member whose part of a sum is so many times as large, in all elements that differ; -1 for none.

        Of few elements that may be chance: what a rank sends are small numbers.
        """
        if label == "all_reduce" and result.numel() == 1 and self.ctx.world_size <= LONE_RANKS:
            difference = float(result) - float(expected)
            shares = {rank: difference / lone_value(rank) + 1 for rank in self.group.ranks}
            # Nothing, or what it gave with another exponent or sign: what one bit makes of it, or a lost part.
            givers = [rank for rank, share in shares.items() if abs(math.frexp(share)[0]) in (0, 0.5)]
            return givers[0] if len(givers) == 1 else -1
        if label not in SUMS or len(indices) < SURE_ELEMENTS or result.dtype == torch.bool:
            return -1
        start = self.group_rank * result.numel() if label == "reduce_scatter" else 0
        differences = (result.double() - expected.double())[indices]
        givers = []
        for rank in self.group.ranks:
            part = self.elements(rank, torch.float64, result.numel(), start)[indices]
            factor = float(differences[0] / part[0])
            if math.isfinite(factor) and torch.allclose(differences, factor * part, rtol=0.02, atol=0.0):
                givers.append(rank)
        return givers[0] if len(givers) == 1 else -1

    def count_wrong(self, op: str, label: str, dtype: str, numel: int, source: int) -> None:
        """Counts a wrong result, by collective and by source; keeps which call it was, for a second round."""
        self.wrong_counts[op] = self.wrong_counts.get(op, 0) + 1
        if source >= 0:
            self.wrong_sources[source] = self.wrong_sources.get(source, 0) + 1
        self.ctx.wrong_calls[op, label.partition(" ")[2] or "sum", dtype, numel] = None
        self.ctx.wrong_results += 1

    def report(self, with_speed: bool) -> None:
        """Emits what was compared and, if asked, how long it took."""
        for label, (dtypes, count) in self.checked.items():
            self.ctx.emit("checked", gid=self.group.number, op=label, dtypes=list(dtypes), count=count)
        for (op, nbytes), seconds in self.seconds.items():
            if with_speed:
                self.ctx.emit("speed", gid=self.group.number, op=op, bytes=nbytes, seconds=seconds)
