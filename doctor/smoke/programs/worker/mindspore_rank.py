"""One rank of MindSpore: the stages ``collectives`` and ``learning``, with the events of the torch stages."""

from __future__ import annotations

import faulthandler
import math
import random
import signal
import socket
import time
from typing import Any

from doctor.smoke.programs.process_groups import Plan
from doctor.smoke.programs.recorder_page import STAGES
from doctor.smoke.programs.worker.batch import block_count, block_samples, sample_rows
from doctor.smoke.programs.worker.collective_test import ODD_COUNT, TestPattern
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.main import OTHER_LIBRARIES
from doctor.smoke.programs.worker.mindspore_comm import (
    MindSporeComm,
    join_mindspore_ranks,
    load_mindspore,
    mindspore,
    np,
)
from doctor.smoke.programs.worker.orders import EventWriter, Orders
from doctor.smoke.programs.worker.processes import cpu_binding
from doctor.smoke.programs.worker.rng import HIDDEN, MASKED_PER_ROW, SEQUENCE_LENGTH, VOCABULARY
from doctor.smoke.programs.worker.stage_collectives import roots_to_test
from doctor.smoke.programs.worker.values import digest, finite_or_none, json_number

TIMED_CALLS = 3
"""Of a collective that is timed."""
SHAPES = {
    "token": (VOCABULARY, HIDDEN), "position": (SEQUENCE_LENGTH, HIDDEN), "query": (HIDDEN, HIDDEN),
    "key": (HIDDEN, HIDDEN), "value": (HIDDEN, HIDDEN), "output": (HIDDEN, VOCABULARY),
}  # fmt: skip
"""The parameters of the model: one layer of attention."""


class MindSporeRank:
    """What the stages of one rank share."""

    def __init__(self, plan: Plan, comm: MindSporeComm, events: EventWriter) -> None:
        self.plan, self.comm, self.events = plan, comm, events
        self.checked: dict[str, tuple[dict[str, None], int]] = {}
        self.pattern = TestPattern(comm.size)

    # ---- collectives

    def elements(self, rank: int, dtype: str, count: int) -> Any:
        """What this rank sends: the values of `TestPattern`."""
        period = self.pattern.period
        values = (7 * np.arange(count) + 3 * rank) % period
        return np.where(values < 11, values + 1, 0).astype(dtype)

    def compare(self, label: str, result: Any, expected: Any, root: int = -1) -> None:
        """Emits ``wrong`` with the first element that differs."""
        dtypes, count = self.checked.get(label, ({}, 0))
        dtypes[str(expected.dtype)] = None
        self.checked[label] = (dtypes, count + 1)
        wrong = np.flatnonzero(result != expected)
        if len(wrong):
            index = int(wrong[0])
            self.events.emit(
                "wrong", gid=0, op=label, dtype=str(expected.dtype), numel=int(expected.size), wrong=len(wrong),
                index=index, root=root, expected=json_number(expected[index]), got=json_number(result[index]), offset=0,
            )  # fmt: skip

    def test(
        self, op: str, dtype: str = "float32", count: int = ODD_COUNT, reduction: str = "sum", root: int = 0
    ) -> float:
        """Runs one collective and compares its result. Returns the seconds that it took."""
        comm = self.comm
        mine = self.elements(comm.rank, dtype, count)
        if op == "broadcast":
            expected = self.elements(root, dtype, count)
        elif op == "all_gather":
            expected = np.concatenate([self.elements(rank, dtype, count) for rank in range(comm.size)])
        else:
            stack = np.stack([self.elements(rank, dtype, count) for rank in range(comm.size)])
            expected = getattr(stack, reduction)(0).astype(dtype)
        started = time.perf_counter()
        if op == "broadcast":
            result = comm.broadcast(mine, root)
        else:
            result = comm.all_gather(mine) if op == "all_gather" else comm.all_reduce(mine, reduction)
        seconds = time.perf_counter() - started
        self.compare(
            op if reduction == "sum" else f"{op} {reduction}", result, expected, root if op == "broadcast" else -1
        )
        return round(seconds, 7)

    def collectives(self) -> None:
        """Every collective that MindSpore has on CPUs, in every dtype, and the speed of large ones."""
        for root in roots_to_test(list(range(self.comm.size))):
            self.test("broadcast", root=root)
        for dtype in ("float32", "float16", "int8", "int32", "int64"):
            self.test("all_reduce", dtype)
            self.test("all_gather", dtype)
        for reduction in ("max", "min"):
            self.test("all_reduce", reduction=reduction)
        for op in ("all_reduce", "all_gather", "broadcast"):
            parts = self.comm.size if op == "all_gather" else 1
            count = max(1, self.plan["max_bytes"] // 4 // parts)
            seconds = [self.test(op, count=count) for _ in range(TIMED_CALLS)]
            if self.comm.rank == 0:
                self.events.emit("speed", gid=0, op=op, bytes=count * parts * 4, seconds=seconds)
        self.comm.barrier()
        self.checked["barrier"] = ({}, 1)
        for label, (dtypes, count) in self.checked.items():
            self.events.emit("checked", gid=0, op=label, dtypes=list(dtypes), count=count)

    # ---- learning

    def learning(self) -> None:
        """A data-parallel training with Adam; what the ranks have learned is compared bit for bit."""
        comm, seed = self.comm, self.plan["seed"]
        weights = comm.broadcast(initial_weights(seed + (1000 + comm.rank if comm.rank else 0)), 0)
        learner = Learner(weights)
        blocks = list(range(block_count(comm.size)))
        for step in range(self.plan["learn_steps"]):
            comm.recorder.step = step
            loss, gradient = learner.gradient(seed, step, blocks[comm.rank :: comm.size], len(blocks))
            total = comm.all_reduce(np.append(gradient, np.float32(loss)))
            if comm.rank == 0:
                self.events.emit("learn", step=step, loss=finite_or_none(total[-1]))
            learner.update(total[:-1])
        held = [digest(learner.weights.tobytes()), digest(learner.last.tobytes())]
        every = comm.all_gather(np.array([value - (1 << 63) for value in held], np.int64))
        error = None
        if len(set(map(tuple, every.reshape(comm.size, 2).tolist()))) > 1:
            error = self.learned_error(learner, blocks)
        self.events.emit(
            "learned", pp=0, tp=0, params=held[0], gradient=held[1], steps=self.plan["learn_steps"], error=error
        )

    def learned_error(self, learner: Learner, blocks: list[int]) -> float | None:
        """How far the learned parameters are from those of the serial run, as a share of what they changed by.

        Or the last gradient, as a share of its norm, if that is further.
        """
        seed, start = self.plan["seed"], initial_weights(self.plan["seed"])
        serial = Learner(start.copy())
        for step in range(self.plan["learn_steps"]):
            serial.update(serial.gradient(seed, step, blocks, len(blocks))[1])
        norm = np.linalg.norm
        errors = (
            norm(learner.weights - serial.weights) / norm(serial.weights - start),
            norm(learner.last - serial.last) / norm(serial.last),
        )
        return finite_or_none(max(map(float, errors)))


def initial_weights(seed: int) -> Any:
    """The model's parameters, one after the other."""
    count = sum(math.prod(shape) for shape in SHAPES.values())
    return (np.random.RandomState(seed).standard_normal(count) * 0.3).astype(np.float32)


class Learner:
    """The model with its optimizer. Weights and gradients are flat float32 arrays."""

    def __init__(self, weights: Any) -> None:
        self.weights, self.steps = weights, 0
        self.mean = self.square = np.zeros_like(weights)
        self.last = self.mean
        """The last reduced gradient."""
        self.value_and_grad = mindspore.value_and_grad(attention_loss, 0)

    def gradient(self, seed: int, step: int, blocks: list[int], count: int) -> tuple[float, Any]:
        """The loss of these blocks and its gradient, as shares of those of all ``count`` blocks."""
        tokens, selected, targets = make_tokens(seed, step, blocks, count)
        arguments = [mindspore.Tensor(array) for array in (self.weights, tokens, selected, targets)]
        loss, gradient = self.value_and_grad(*arguments)
        share = np.float32(len(blocks) / count)
        return float(loss.asnumpy()) * float(share), gradient.asnumpy() * share

    def update(self, gradient: Any) -> None:
        """One step of Adam, as in the learning stage of torch."""
        self.steps, self.last = self.steps + 1, gradient
        self.mean = np.float32(0.9) * self.mean + np.float32(0.1) * gradient
        self.square = np.float32(0.99) * self.square + np.float32(0.01) * gradient * gradient
        scale = np.sqrt(self.square / np.float32(1 - 0.99**self.steps)) + np.float32(1e-8)
        self.weights = self.weights - np.float32(0.02 / (1 - 0.9**self.steps)) * self.mean / scale


def make_tokens(seed: int, step: int, blocks: list[int], count: int) -> tuple[Any, Any, Any]:
    """One-hot tokens of the rows, the masked positions (rows x masked x positions), and the tokens there."""
    samples, rows, masked = block_samples(seed, step, count), [], []
    for block in blocks:
        chooser = random.Random(f"{seed} {step} {block}")
        for row in sample_rows(samples[block]):
            rows.append(row)
            masked.append(sorted(chooser.sample(range(SEQUENCE_LENGTH), MASKED_PER_ROW)))
    tokens, positions = np.array(rows), np.array(masked)
    hidden = tokens.copy()
    np.put_along_axis(hidden, positions, 0, 1)  # 0 is the masked token
    one_hot, places = np.eye(VOCABULARY, dtype=np.float32), np.eye(SEQUENCE_LENGTH, dtype=np.float32)
    return one_hot[hidden], places[positions], one_hot[np.take_along_axis(tokens, positions, 1)]


def attention_loss(weights: Any, tokens: Any, selected: Any, targets: Any) -> Any:
    """The mean cross-entropy of the masked tokens."""
    ops, parts, start = mindspore.ops, {}, 0
    for name, shape in SHAPES.items():
        parts[name] = weights[start : start + math.prod(shape)].reshape(shape)
        start += math.prod(shape)
    rows = ops.matmul(tokens, parts["token"]) + parts["position"]
    query, key, value = (ops.matmul(rows, parts[name]) for name in ("query", "key", "value"))
    scores = ops.matmul(query, key.swapaxes(1, 2)) / math.sqrt(HIDDEN)
    rows = rows + ops.matmul(ops.softmax(scores, -1), value)
    logits = ops.matmul(ops.matmul(selected, rows), parts["output"])
    return -(ops.log_softmax(logits, -1) * targets).sum() / (targets.shape[0] * targets.shape[1])


def run_mindspore_rank(orders: Orders, rank: int, events: EventWriter, recorder: FlightRecorder) -> None:
    """All stages of one rank."""
    plan = orders["plan"]
    faulthandler.register(signal.SIGUSR1, file=orders["stacks"][str(rank)], all_threads=True, chain=False)
    events.emit("bound", **cpu_binding())
    events.emit("stage", stage="start", seconds=0.0)
    recorder.stage, started = STAGES.index("rendezvous"), time.monotonic()
    join_mindspore_ranks(orders, events, rank)
    comm = MindSporeComm(rank, len(plan["places"]), recorder)
    recorder.mark("compute")
    state = MindSporeRank(plan, comm, events)
    comm.barrier()
    seconds = round(time.monotonic() - started, 3)
    events.emit(
        "joined", seconds=seconds, host=socket.gethostname(), device={"index": -1, "name": "cpu", "id": ""},
        torch=f"MindSpore {mindspore.__version__}", numpy=np.__version__, world=comm.size,
    )  # fmt: skip
    events.emit("stage", stage="rendezvous", seconds=seconds)
    for name in ("collectives", "learning"):
        if name in plan["stages"]:
            recorder.stage, recorder.step, started = STAGES.index(name), 0, time.monotonic()
            recorder.mark("compute")
            getattr(state, name)()
            comm.barrier()
            events.emit("stage", stage=name, seconds=round(time.monotonic() - started, 3))
    recorder.stage = STAGES.index("teardown")
    comm.barrier()
    events.emit("done")
    recorder.mark("done")


OTHER_LIBRARIES["mindspore"] = (load_mindspore, run_mindspore_rank)
