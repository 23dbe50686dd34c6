"""The program of every rank of a smoke run. Python 3.8 and later, torch, and torch_npu for NPUs; nothing of ours.

It arrives as text on stdin, after it one line of JSON: the orders. Read it from top to bottom: the black box that each
rank leaves its traces in, the collectives that write into it, the stages, and at the end the process that imports torch
once and becomes the ranks. Every stage says what it saw in one line of JSON an event; it judges nothing.
"""

# ruff: noqa: B905 - zip has had strict= since Python 3.10 only

import contextlib
import ctypes
import faulthandler
import fcntl
import gc
import importlib
import json
import math
import mmap
import multiprocessing
import os
import random
import select
import signal
import socket
import struct
import sys
import time
import traceback
import warnings
import zlib
from datetime import timedelta

STAGES = ("start", "rendezvous", "collectives", "pairs", "training", "learning", "loader", "pace", "native", "teardown")
STATES = ("start", "input", "compute", "collective", "done")
OPS = (
    "", "broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send", "recv", "barrier",
    "gather", "scatter",
)  # fmt: skip
DTYPES = ("", "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool")
CHANNELS = 1000000  # the group number of the channel src>dst is CHANNELS + src * world + dst

torch = None  # imported by `load`, so that its time can be told
dist = None
numpy = None

PLAN = {
    "stages": STAGES,
    "steps": 3,
    "learn_steps": 10,
    "seed": 1,
    "max_bytes": 1 << 20,
    "timeout": 60.0,
    "budget": 120.0,
}  # fmt: skip - what a plan does not say

IMPORTS = []  # modules that stages need, besides torch

STAGE_FUNCTIONS = {}  # what a rank does in a stage, by the stage's name


# ---- the black box: what a rank is doing, readable from outside whatever becomes of the rank

MAGIC = 0x444F4353
PAGE = 40960
HEAD = struct.Struct("<IIQ")  # magic, pid, start
NOW = struct.Struct("<QBBBBIIIiQQQ")  # stamp, state, stage, op, dtype, step, group, seq, root, numel, time, stamp
TIMES = struct.Struct("<QQQQ")  # nanoseconds of compute, network, input; calls so far
COUNT = struct.Struct("<III")  # group + 1, entered, done
CALL = struct.Struct("<IIBBBBiQII")  # group, seq, op, dtype, stage, 0, root, numel, step, 0
AT_NOW, AT_TIMES, AT_COUNTS, AT_RING = 64, 192, 256, 8192
SLOTS, RING = 512, 1024


class Box:
    """One rank's page. Written by its main thread alone; no lock, no thread, about two microseconds a collective."""

    def __init__(self, file, index):
        self.page = memoryview(mmap.mmap(file, (index + 1) * PAGE))[index * PAGE :]
        self.stamp = self.calls = self.step = self.stage = 0
        self.state = STATES.index("start")
        self.spent = [0, 0, 0]  # nanoseconds of compute, network, input
        self.slots = {}  # group -> [slot, entered, done]
        self.since = time.monotonic_ns()
        HEAD.pack_into(self.page, 0, MAGIC, os.getpid(), self.since)
        self.note("start")

    def note(self, state, group=0, seq=0, op=0, dtype=0, root=-1, numel=0):
        """Says what the rank does from now on, and books the time of what it did until now."""
        now = time.monotonic_ns()
        kind = (2, 2, 0, 1, 0)[self.state]
        self.spent[kind] += now - self.since
        self.since, self.state = now, STATES.index(state)
        self.stamp += 1
        TIMES.pack_into(self.page, AT_TIMES, *self.spent, self.calls)
        NOW.pack_into(
            self.page, AT_NOW, self.stamp, self.state, self.stage, op, dtype, self.step, group, seq, root, numel, now,
            self.stamp,
        )  # fmt: skip

    def enter(self, group, op, dtype, root, numel):
        slot = self.slots.setdefault(group, [len(self.slots) % SLOTS, 0, 0])
        slot[1] += 1
        code, kind = OPS.index(op), DTYPES.index(dtype) if dtype in DTYPES else 0
        place = AT_RING + self.calls % RING * CALL.size
        CALL.pack_into(self.page, place, group, slot[1], code, kind, self.stage, 0, root, numel, self.step, 0)
        self.calls += 1
        COUNT.pack_into(self.page, AT_COUNTS + slot[0] * COUNT.size, group + 1, slot[1], slot[2])
        self.note("collective", group, slot[1], code, kind, root, numel)

    def leave(self, group):
        slot = self.slots[group]
        slot[2] = slot[1]
        COUNT.pack_into(self.page, AT_COUNTS + slot[0] * COUNT.size, group + 1, slot[1], slot[2])
        self.note("compute")


class Voice:
    """One line of JSON an event, on a pipe that all ranks of the host share: each line is one write."""

    def __init__(self, file, rank):
        self.file, self.rank = file, rank

    def say(self, event, **values):
        line = json.dumps(dict(values, ev=event, rank=values.get("rank", self.rank)), separators=(",", ":"))
        os.write(self.file, line.encode("ascii") + b"\n")


def digest(data):
    """Eight bytes that tell two byte strings apart, as a number."""
    if not isinstance(data, bytes):
        data = raw(data)
    return zlib.crc32(data) | zlib.adler32(data) << 32


def raw(tensor):
    """A tensor's bytes, with or without NumPy."""
    tensor = tensor.detach().cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


# ---- collectives, each of them recorded


class Group:
    """A process group: its number, the same on every rank, its name, its members, and what torch calls it."""

    def __init__(self, number, name, ranks, handle):
        self.number, self.name, self.ranks, self.handle = number, name, ranks, handle

    def __len__(self):
        return len(self.ranks)


class Comm:
    """Plain torch.distributed calls between `enter` and `leave`. Roots and peers are global ranks."""

    def __init__(self, rank, world, box, voice, timeout, synchronize):
        self.rank, self.size, self.box, self.voice = rank, world, box, voice
        self.timeout, self.synchronize = timeout, synchronize
        self.world = Group(0, "world", list(range(world)), None)
        self.groups = {tuple(self.world.ranks): self.world}
        self.gather_into = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self.scatter_from = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def group(self, name, ranks):
        """The group of these ranks. Every rank of the world calls this, in the same order, member or not."""
        key = tuple(ranks)
        if key not in self.groups:
            # new_group does not take over the timeout of init_process_group.
            made = []
            self.call("barrier", None, self.world, lambda: made.append(dist.new_group(ranks, timeout=self.timeout)))
            self.groups[key] = Group(len(self.groups), name, list(ranks), made[0])
            if self.rank == 0:
                self.voice.say("group", gid=self.groups[key].number, name=name, ranks=list(ranks))
        return self.groups[key]

    def call(self, op, tensor, group, function, root=-1, number=None):
        """Every collective goes through here."""
        number = group.number if number is None else number
        dtype, numel = ("", 0) if tensor is None else (str(tensor.dtype)[6:], tensor.numel())
        self.box.enter(number, op, dtype, root, numel)
        function()
        self.synchronize()
        self.box.leave(number)

    def all_reduce(self, tensor, group, op=None):
        op = op or dist.ReduceOp.SUM
        self.call("all_reduce", tensor, group, lambda: dist.all_reduce(tensor, op=op, group=group.handle))

    def broadcast(self, tensor, root, group):
        self.call("broadcast", tensor, group, lambda: dist.broadcast(tensor, root, group=group.handle), root)

    def reduce(self, tensor, root, group):
        self.call("reduce", tensor, group, lambda: dist.reduce(tensor, root, group=group.handle), root)

    def all_gather(self, out, tensor, group):
        self.call("all_gather", tensor, group, lambda: self.gather(out, tensor, group))

    def gather(self, out, tensor, group):
        try:
            self.gather_into(out, tensor, group=group.handle)
        except RuntimeError as error:
            if "no support for _allgather_base" not in str(error):
                raise
            # gloo of torch 2.1 fills a list alone.
            pieces = [piece.view_as(tensor) for piece in out.chunk(len(group))]
            dist.all_gather(pieces, tensor, group=group.handle)

    def reduce_scatter(self, out, tensor, group):
        self.call("reduce_scatter", tensor, group, lambda: self.scatter_from(out, tensor, group=group.handle))

    def all_to_all(self, out, tensor, group):
        self.call("all_to_all", tensor, group, lambda: dist.all_to_all_single(out, tensor, group=group.handle))

    def barrier(self, group=None):
        group = group or self.world
        self.call("barrier", None, group, lambda: dist.barrier(group=group.handle))

    def send(self, tensor, peer):
        number = CHANNELS + self.rank * self.size + peer
        self.call("send", tensor, None, lambda: dist.send(tensor, peer), peer, number)

    def recv(self, tensor, peer):
        number = CHANNELS + peer * self.size + self.rank
        self.call("recv", tensor, None, lambda: dist.recv(tensor, peer), peer, number)

    def exchange(self, out, tensor, peer):
        """Both send and receive at once; in the record an all_to_all of two."""
        low, high = sorted((self.rank, peer))

        def both():
            swap = [dist.P2POp(dist.isend, tensor, peer), dist.P2POp(dist.irecv, out, peer)]
            for work in dist.batch_isend_irecv(swap):
                work.wait()

        self.call("all_to_all", tensor, None, both, -1, CHANNELS + low * self.size + high)


class Rank:
    """What the stages work with."""

    def __init__(self, plan, rank, device, box, voice, comm):
        self.plan, self.rank, self.world = plan, rank, len(plan["places"])
        self.device, self.box, self.voice, self.comm = device, box, voice, comm
        self.say = voice.say
        self.hosts = [place["host"] for place in plan["places"]]

    @property
    def leads(self):
        """Whether this rank speaks for all where all would say the same."""
        return self.rank == 0


def run_delay():
    """Seconds that this thread was ready to run and waited for a CPU; 0 where the kernel does not tell."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


# ---- stage: collectives


# Torch's words for a kind of data or an operation that a backend does not have. Anything else is a failure.
LACKS = ("nsupported", "not support", "nvalid scalar type", "not implemented", "Cannot use ReduceOp", "only supports")
COUNT_OF_ODD = 1021  # elements of a message that no power of two divides, nor the pattern's period


def partitions(plan):
    """Every way in which the layouts split the world into process groups: a name, and the groups, in one order."""
    found = {}
    for layout in plan["layouts"]:
        dp, tp, pp = (layout.get(word, 1) for word in ("dp", "tp", "pp"))
        ranks = [[[(p * dp + d) * tp + t for t in range(tp)] for d in range(dp)] for p in range(pp)]
        splits = {
            "tp%d" % tp: [ranks[p][d] for p in range(pp) for d in range(dp)],
            "dp%d" % dp: [[ranks[p][d][t] for d in range(dp)] for p in range(pp) for t in range(tp)],
            "pp%d" % pp: [[ranks[p][d][t] for p in range(pp)] for d in range(dp) for t in range(tp)],
        }
        for name, groups in splits.items():
            if 1 < len(groups[0]) < len(plan["places"]):
                found.setdefault(tuple(map(tuple, groups)), {})[name] = None
    return [("/".join(names), [list(group) for group in groups]) for groups, names in found.items()]


def folded(ranks):
    """Ranks in few letters: 0-3, 0-6/2 for every second, or all of them."""
    step = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1, step)):
        return "%d-%d%s" % (ranks[0], ranks[-1], "/%d" % step if step > 1 else "")
    return ",".join(map(str, ranks))


def make_groups(one):
    """Our group of every partition of the world, and whether we speak for all of that partition."""
    for name, groups in partitions(one.plan):
        made = [one.comm.group("%s %s" % (name, folded(ranks)), ranks) for ranks in groups]
        mine = next(group for group in made if one.rank in group.ranks)
        yield mine, mine is made[0] and one.rank == mine.ranks[0]


class Pattern:
    """What each rank sends: element i of rank r is (7i + 3r) mod 11, plus 1; its period makes it cheap to write down.

    In worlds of more than 11 ranks the modulus is as large as the world, and what would be above 11 is 0. So no two
    ranks ever send the same, and a sum is at most 66, which every kind of data holds exactly.
    """

    def __init__(self, world):
        self.period = max(11, world)
        while self.period % 3 == 0 or self.period % 7 == 0:
            self.period += 1

    def period_of(self, rank):
        value = (7 * torch.arange(self.period) + 3 * rank) % self.period
        return torch.where(value < 11, value + 1, torch.zeros_like(value))

    def spread(self, values, dtype, count, start=0):
        """One period as the elements from start on. As bool, odd is true."""
        values = values % 2 == 1 if dtype == torch.bool else values.to(dtype)
        values = values.roll(-(start % self.period))
        return values.repeat(count // self.period + 1)[:count]


class Drill:
    """The collectives of one group with contents that are known beforehand, compared on the CPU."""

    def __init__(self, one, group):
        self.one, self.comm, self.group = one, one.comm, group
        self.size, self.place = len(group), group.ranks.index(one.rank)
        self.pattern = Pattern(one.world)
        self.periods = {rank: self.pattern.period_of(rank) for rank in group.ranks}
        self.checked, self.lacking, self.times, self.complaints = {}, set(), {}, 0

    def of(self, rank, dtype, count, start=0):
        return self.pattern.spread(self.periods[rank], dtype, count, start)

    def mine(self, dtype, count):
        return self.of(self.one.rank, dtype, count).to(self.one.device)

    def reduced(self, how, dtype, count, start=0):
        stack = torch.stack(list(self.periods.values()))
        if dtype == torch.bool:
            values = (stack % 2).max(0)[0]  # a sum of truth values is whether any is true
        elif how in ("sum", "avg"):
            values = stack.sum(0) / (self.size if how == "avg" else 1)
        else:
            values = getattr(stack, how)(0)[0]
        return self.pattern.spread(values, dtype, count, start)

    def spoilt(self, expected):
        """Room for a result, in which every element is wrong until it is written."""
        return (~expected if expected.dtype == torch.bool else expected + 13).to(self.one.device)

    # Each of these gives the call, the tensor that holds its result, and what must be in it.

    def broadcast(self, dtype, count, root, how):
        tensor = self.mine(dtype, count)
        return lambda: self.comm.broadcast(tensor, root, self.group), tensor, self.of(root, dtype, count)

    def reduce(self, dtype, count, root, how):
        tensor = self.mine(dtype, count)
        wanted = self.reduced("sum", dtype, count) if root == self.one.rank else None
        return lambda: self.comm.reduce(tensor, root, self.group), tensor, wanted

    def all_reduce(self, dtype, count, root, how):
        tensor, by = self.mine(dtype, count), getattr(dist.ReduceOp, how.upper())
        return lambda: self.comm.all_reduce(tensor, self.group, by), tensor, self.reduced(how, dtype, count)

    def all_gather(self, dtype, count, root, how):
        tensor, wanted = self.mine(dtype, count), torch.cat([self.of(rank, dtype, count) for rank in self.group.ranks])
        out = self.spoilt(wanted)
        return lambda: self.comm.all_gather(out, tensor, self.group), out, wanted

    def reduce_scatter(self, dtype, count, root, how):
        tensor, wanted = self.mine(dtype, count * self.size), self.reduced("sum", dtype, count, self.place * count)
        out = self.spoilt(wanted)
        return lambda: self.comm.reduce_scatter(out, tensor, self.group), out, wanted

    def all_to_all(self, dtype, count, root, how):
        tensor, start = self.mine(dtype, count * self.size), self.place * count
        wanted = torch.cat([self.of(rank, dtype, count, start) for rank in self.group.ranks])
        out = self.spoilt(wanted)
        return lambda: self.comm.all_to_all(out, tensor, self.group), out, wanted

    def send_recv(self, dtype, count, root, how):
        """Round the ring; every second rank receives first, so that nobody waits for ever."""
        ranks, tensor = self.group.ranks, self.mine(dtype, count)
        after, before = ranks[(self.place + 1) % self.size], ranks[self.place - 1]
        wanted = self.of(before, dtype, count)
        out = self.spoilt(wanted)
        calls = [lambda: self.comm.send(tensor, after), lambda: self.comm.recv(out, before)]
        return lambda: [call() for call in calls[:: -1 if self.place % 2 else 1]], out, wanted

    def run(self, op, dtype=None, nbytes=0, root=None, how="sum", times=0):
        """One collective, compared; with times, so often, and timed. Without nbytes the message has an odd size."""
        dtype = dtype or torch.float32
        label = op if how == "sum" else "%s %s" % (op, how)
        if (label, dtype) in self.lacking:
            return
        shared = self.size if op in ("all_gather", "reduce_scatter", "all_to_all") else 1
        count = max(1, nbytes // shared // 4) if nbytes else COUNT_OF_ODD
        root = self.group.ranks[0] if root is None else root
        try:
            call, got, wanted = getattr(self, op)(dtype, count, root, how)
            before = got.clone() if times > 1 else None
            for turn in range(max(1, times)):
                if turn:
                    got.copy_(before)
                    self.comm.synchronize()
                began = time.perf_counter()
                call()
                if times:
                    took = round(time.perf_counter() - began, 7)
                    self.times.setdefault((op, count * shared * 4), []).append(took)
                self.compare(op, label, root, got, wanted, 0.01 if how == "avg" else 0)
        except (RuntimeError, ValueError, TypeError) as error:
            self.lack(label, dtype, error)

    def lack(self, label, dtype, error):
        """What the backend does not offer is told and left out; any other error is one."""
        text = str(error).strip().splitlines()[0] if str(error).strip() else ""
        if not any(word in text for word in LACKS) or any(word in text for word in FOLLOWS):
            raise error
        self.one.box.note("compute")
        self.lacking.add((label, dtype))
        self.one.say("unsupported", gid=self.group.number, op=label, dtype=str(dtype)[6:], text=text[:300])

    def compare(self, op, label, root, got, wanted, margin):
        dtype = str(got.dtype)[6:]
        seen = self.checked.setdefault(label, [{}, 0])
        seen[0][dtype] = None
        seen[1] += 1
        if wanted is None or torch.equal(got.cpu(), wanted):
            return
        got = got.cpu()
        differ = ~((got - wanted).abs() <= margin) if margin else got != wanted
        places = differ.nonzero().flatten()
        if len(places) and self.complaints < 50:
            self.complaints += 1
            at = int(places[0])
            self.one.say(
                "wrong", gid=self.group.number, op=label, dtype=dtype, numel=got.numel(), wrong=len(places), index=at,
                root=root if op in ("broadcast", "reduce") else -1, expected=plain(wanted[at]), got=plain(got[at]),
            )  # fmt: skip

    def tell(self, speaks):
        for label, (dtypes, count) in self.checked.items():
            self.one.say("checked", gid=self.group.number, op=label, dtypes=list(dtypes), count=count)
        for (op, nbytes), seconds in self.times.items():
            if speaks:
                self.one.say("speed", gid=self.group.number, op=op, bytes=nbytes, seconds=seconds)


def plain(element):
    """A number that JSON has a word for."""
    value = float(element)
    return value if value - value == 0 else str(value)


MOVING = ("broadcast", "all_gather", "all_to_all")
REDUCING = ("all_reduce", "reduce", "reduce_scatter")


def kinds_of_data(one):
    """The dtypes to try, without float32, which everything is tried with."""
    names = ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool"]
    module = getattr(torch, one.device.type)
    if one.device.type != "cpu" and not getattr(module, "is_bf16_supported", lambda: True)():
        names.remove("bfloat16")  # it would fail where it can no longer be told
        one.say("unsupported", gid=0, op="", dtype="bfloat16", text="the device has no bfloat16")
    return [getattr(torch, name) for name in names]


def some_roots(ranks):
    """All of a small group, four of a large one."""
    return ranks if len(ranks) <= 8 else [ranks[len(ranks) * part // 4] for part in range(4)]


def drill_dtypes(one, drill):
    """Every kind of data. On CPUs each of them is moved once and reduced once: there a collective takes milliseconds,
    and what moves bytes does not know what they mean."""
    ranks = drill.group.ranks
    for turn, dtype in enumerate(kinds_of_data(one)):
        for ops in (MOVING, REDUCING):
            for op in ops if one.device.type != "cpu" else ops[turn % 3 : turn % 3 + 1]:
                drill.run(op, dtype, root=ranks[turn % drill.size])
    drill.run("all_reduce", how="max")
    drill.run("all_reduce", how="min")
    drill.run("all_reduce", how="avg")


def drill_once(drill, nbytes=0):
    """Every collective once; broadcast from every root. On CPUs two roots do for reduce: nothing here relies on it."""
    roots = some_roots(drill.group.ranks)
    for root in roots:
        drill.run("broadcast", nbytes=nbytes, root=root)
    for root in roots if drill.one.device.type != "cpu" else sorted({roots[0], roots[-1]}):
        drill.run("reduce", nbytes=nbytes, root=root)
    for op in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        drill.run(op, nbytes=nbytes)
    if drill.size > 1:
        drill.run("send_recv", nbytes=nbytes)
    drill.comm.barrier(drill.group)
    drill.checked["barrier"] = ({}, 1)


def time_all(drill, nbytes, repeats, ops=("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")):
    """A root returns before its bytes are there; so the one that speaks, the first, is not the root."""
    for op in ops if repeats else ():
        drill.run(op, nbytes=nbytes, root=drill.group.ranks[-1], times=repeats)


def sizes_up_to(most):
    """Bytes: steps of 16 that end with the largest, and none below a megabyte but the largest."""
    sizes = [most]
    while sizes[0] >= 16 << 20:
        sizes.insert(0, sizes[0] // 16)
    return sizes


def slowest(one, seconds):
    """What took longest on any rank, so that all decide alike."""
    longest = torch.tensor([seconds], dtype=torch.float32, device=one.device)
    one.comm.all_reduce(longest, one.comm.world, dist.ReduceOp.MAX)
    return float(longest)


def stage_collectives(one):
    """Every collective on every process group, with values that give away a wrong rank, root, order or length."""
    world = Drill(one, one.comm.world)
    drill_once(world, nbytes=4)
    time_all(world, 4, 3, ("all_reduce",))
    drill_dtypes(one, world)
    allowed = one.plan["budget"] / 20 if "budget" in one.plan else 6.0
    for nbytes in sizes_up_to(one.plan.get("max_bytes", 1 << 20)):
        began = time.perf_counter()
        time_all(world, nbytes, 1)
        took = slowest(one, time.perf_counter() - began)
        time_all(world, nbytes, min(2, int(allowed / took)))
        if took * 16 > allowed and nbytes < one.plan.get("max_bytes", 1 << 20):
            text = "sizes above %d bytes were left out: this one took %.1f s" % (nbytes, took)
            one.say("unsupported", gid=0, op="", dtype="float32", text=text)
            break
    world.tell(one.leads)
    for group, speaks in make_groups(one):
        drill = Drill(one, group)
        if group.name.startswith("pp"):
            drill.run("send_recv")  # all that pipeline stages do with each other
        else:
            drill_once(drill)
            time_all(drill, nbytes, 3 if took < allowed / 20 else 1, ("all_reduce",))
        drill.tell(speaks)


STAGE_FUNCTIONS["collectives"] = stage_collectives


# ---- stage: pairs


MEETINGS = 32  # so many and fewer all meet each other
MANY = 1.5  # times what most pairs take is suspicious


def rounds(count, seed=1):
    """Who meets whom: in a round everybody has one partner, of an odd number one rests. The circle method.

    Up to MEETINGS all pairs occur, once; of more, as many rounds as tell hosts apart.
    """
    even = count + count % 2
    turns = list(range(even - 1))
    if count > MEETINGS:
        turns = random.Random(seed).sample(turns, count.bit_length() + 2)
    for turn in turns:
        circle = [0] + [1 + (place + turn) % (even - 1) for place in range(even - 1)]
        pairs = [sorted((circle[place], circle[-1 - place])) for place in range(even // 2)]
        yield [(low, high) for low, high in pairs if high < count]


def meeting(one):
    """The ranks that meet: the first of each host, or all of the only host."""
    firsts = {}
    for rank, host in enumerate(one.hosts):
        firsts.setdefault(host, rank)
    return list(firsts.values()) if len(firsts) > 1 else list(range(one.world))


def swap(one, peer, nbytes, repeats):
    """Seconds of exchanges with the peer, both ways at once. The first, of one element, brings the two together."""
    few = torch.zeros(1, device=one.device)
    one.comm.exchange(torch.empty_like(few), few, peer)
    tensor = torch.full((max(1, nbytes // 4),), float(one.rank), device=one.device)
    out, seconds = torch.empty_like(tensor), []
    for _ in range(repeats):
        began = time.perf_counter()
        one.comm.exchange(out, tensor, peer)
        seconds.append(round(time.perf_counter() - began, 7))
    return seconds


def suspects(schedule, times):
    """Pairs that took far longer than most, the worst first. times: of each rank, by round."""
    table = {}
    for turn, pairs in enumerate(schedule):
        for low, high in pairs:
            table[low, high] = (max(times[low][turn], times[high][turn]), turn)
    ordered = sorted(table.values())
    usual = ordered[int(len(ordered) * 0.35)][0] if ordered else 0.0
    slow = sorted(((took, turn, pair) for pair, (took, turn) in table.items() if took > MANY * usual), reverse=True)
    return [(pair, turn) for took, turn, pair in slow[:64]]


def stage_pairs(one):
    """Pairs exchange a message, all pairs of a round at once; then slow ones again, each alone.

    Between the CPUs of one host there is no link that could be slow.
    """
    if one.device.type == "cpu" and len(set(one.hosts)) == 1:
        return
    nbytes = min(1 << 20, one.plan.get("max_bytes", 1 << 20))
    ranks = meeting(one)
    turns = rounds(len(ranks), one.plan.get("seed", 1))
    schedule = [[(ranks[low], ranks[high]) for low, high in pairs] for pairs in turns]
    best = torch.zeros(max(1, len(schedule)))
    for turn, pairs in enumerate(schedule):
        for pair in pairs:
            if one.rank in pair:
                best[turn] = min(meet(one, pair, turn, nbytes, 5, False))
    times = torch.zeros(one.world * len(best), device=one.device)
    one.comm.all_gather(times, best.to(one.device), one.comm.world)
    for pair, turn in suspects(schedule, times.cpu().view(one.world, -1).tolist()):
        if one.rank in pair:
            meet(one, pair, turn, nbytes, 6, True)
        one.comm.barrier()


def meet(one, pair, turn, nbytes, repeats, confirm):
    peer = pair[0] if one.rank == pair[1] else pair[1]
    seconds = swap(one, peer, nbytes, repeats)
    one.say("pair", peer=peer, round=turn, bytes=nbytes, seconds=seconds, confirm=confirm)
    return seconds


STAGE_FUNCTIONS["pairs"] = stage_pairs


# ---- stage: training
#
# A tiny masked language model, trained in every layout and, by each rank for itself, in one process: the serial twin.
# All layouts start from the same parameters and take the same rows, so that all must tell the twin's losses.

SEQUENCE, TOPICS, WORDS, MASKED, ROWS = 8, 7, 64, 2, 4  # a row is a sequence; rows come in blocks of four
WIDTH, HEADS, INNER, DROPOUT = 32, 8, 64, 0.1
LAYER = ("norm", "qkv", "out", "up", "down")
CUT = {"qkv": 2, "out": 1, "up": 0, "down": 1, "head": 0}  # the dimension that tensor parallelism cuts


def depth(plan):
    """Layers of the model: two, or as many as the longest pipeline has stages."""
    return max([2] + [layout.get("pp", 1) for layout in plan["layouts"]])


def block_count(world, least=8):
    """Blocks of one step: at least so many, and the same number for every rank."""
    return world * -(-least // world)


class Dice:
    """The random generators, each seeded anew for every block: no draw depends on what was drawn before, or where."""

    KINDS = ("python", "numpy", "torch", "device", "dropout")

    def __init__(self, seed, device):
        self.seed, self.device = seed, device
        self.python = random.Random()
        self.numpy = numpy.random.RandomState() if numpy else None
        self.torch = torch.Generator()
        self.local = torch.Generator(device=device)
        self.dropout = torch.Generator(device=device)

    def seed_of(self, kind, step, block):
        return zlib.crc32(b"%s %d %d %d" % (kind.encode(), self.seed, step, block))

    def scores(self, step, block):
        """One number for every place of the block, from each generator that masks are drawn with."""
        count = ROWS * SEQUENCE
        seed = {kind: self.seed_of(kind, step, block) for kind in self.KINDS}
        self.python.seed(seed["python"])
        drawn = {"python": [self.python.random() for _ in range(count)]}
        if self.numpy:
            self.numpy.seed(seed["numpy"])
            drawn["numpy"] = self.numpy.random_sample(count).tolist()
        self.torch.manual_seed(seed["torch"])
        drawn["torch"] = torch.rand(count, generator=self.torch).tolist()
        self.local.manual_seed(seed["device"])
        drawn["device"] = torch.rand(count, generator=self.local, device=self.device).tolist()
        return drawn

    def kept(self, step, block, layers):
        """What dropout keeps of the block in each layer: True or False for each number."""
        self.dropout.manual_seed(self.seed_of("dropout", step, block))
        shape = (layers, ROWS, SEQUENCE, WIDTH)
        return torch.rand(shape, generator=self.dropout, device=self.device) >= DROPOUT


def samples(seed, step, count):
    """The number of each block's sample: seven topics to the power of four rows, none twice in a step."""
    variety = TOPICS**ROWS
    drawn = random.Random("%d %d" % (seed, step)).sample(range(max(count, variety)), count)
    return [number % variety for number in drawn]


def rows_of(sample):
    """Four sequences. Each place has seven words, one a topic; who sees the other words of a row knows the topic."""
    topics = [sample // TOPICS**row % TOPICS for row in range(ROWS)]
    return [[place * TOPICS + topic + 1 for place in range(SEQUENCE)] for topic in topics]


def masked_places(drawn):
    """The places of each row with the highest sums of scores: a mask that every generator has a say in."""
    total = [sum(scores) for scores in zip(*drawn.values())]
    rows = [total[at : at + SEQUENCE] for at in range(0, len(total), SEQUENCE)]
    return [sorted(sorted(range(SEQUENCE), key=row.__getitem__)[-MASKED:]) for row in rows]


class Batch:
    """The rows of some blocks, masked, and what was drawn for them.

    The device sees one-hot rows and products alone: the gradient of a lookup would be a scattered sum, in any order.
    """

    def __init__(self, one, dice, step, blocks, dropout, count=0):
        chosen = samples(dice.seed, step, count or block_count(one.world))
        rows, places, self.ids, self.masks, kept = [], [], [], [], []
        prints = {kind: b"" for kind in dice.KINDS}
        for block in blocks:
            words, drawn = rows_of(chosen[block]), dice.scores(step, block)
            masked = masked_places(drawn)
            for kind, scores in drawn.items():
                prints[kind] += struct.pack("%dd" % len(scores), *scores)
            self.ids.append(zlib.crc32(bytes(sum(words, []))))
            self.masks.append(zlib.crc32(bytes(sum(masked, []))))
            rows, places = rows + words, places + masked
            if dropout:
                kept.append(dice.kept(step, block, depth(one.plan)))
        self.blocks, self.kept = list(blocks), None
        if dropout:
            kept = torch.cat(kept, 1)
            prints["dropout"] = raw(kept)
            self.kept = kept / (1 - DROPOUT)
        self.prints = {kind: digest(drawn) for kind, drawn in prints.items() if drawn}
        rows, places = torch.tensor(rows), torch.tensor(places)
        self.words = torch.eye(WORDS)[rows.scatter(1, places, 0)].to(one.device)  # word 0 stands for a masked one
        self.picks = torch.eye(SEQUENCE)[places].to(one.device)
        self.targets = torch.eye(WORDS)[rows.gather(1, places)].to(one.device)

    def __len__(self):
        return len(self.words)

    def parts(self, count):
        """Slices for micro-batches, at most one a row."""
        count = min(count, len(self))
        edges = [len(self) * number // count for number in range(count + 1)]
        return [slice(*pair) for pair in zip(edges, edges[1:])]


class Mesh:
    """A rank's place in a layout (pp x dp x tp, tp fastest), and the groups that it belongs to."""

    def __init__(self, layout, rank=0, comm=None):
        self.pp, self.dp, self.tp = (layout.get(axis, 1) for axis in ("pp", "dp", "tp"))
        if HEADS % self.tp:
            raise ValueError("tensor parallelism over %d ranks: the model has %d heads" % (self.tp, HEADS))
        if comm and self.pp * self.dp * self.tp != comm.size:
            raise ValueError("a layout of %d ranks in a world of %d" % (self.pp * self.dp * self.tp, comm.size))
        self.pp_at, self.dp_at, self.tp_at = rank // (self.tp * self.dp), rank // self.tp % self.dp, rank % self.tp
        self.first, self.last = self.pp_at == 0, self.pp_at == self.pp - 1
        self.previous, self.next = rank - self.tp * self.dp, rank + self.tp * self.dp
        # Every rank makes every group, its own or not, in this order.
        self.tp_group = self.dp_group = None
        for stage in range(self.pp if comm else 0):
            corner = stage * self.dp * self.tp
            for start in range(corner, corner + self.dp * self.tp, self.tp):
                self.tp_group = self.formed(comm, "tp", range(start, start + self.tp)) or self.tp_group
            for start in range(corner, corner + self.tp):
                members = range(start, corner + self.dp * self.tp, self.tp)
                self.dp_group = self.formed(comm, "dp", members) or self.dp_group

    @staticmethod
    def formed(comm, axis, members):
        """The group of these ranks if this one is among them."""
        if len(members) == 1:
            return None
        group = comm.group("%s%d %s" % (axis, len(members), folded(list(members))), list(members))
        return group if comm.rank in members else None

    def blocks(self, count):
        """The blocks of this rank's rows: a dp rank's share of all, the same for all ranks with that dp index."""
        share = count // self.dp
        return range(self.dp_at * share, (self.dp_at + 1) * share)


class Watch:
    """Finds out where numbers stop being finite: a sum of what goes into a part of the model, and of what comes out.

    Sums stay on the device until the step is over. They are taken before a reduction mixes in what other ranks made.
    """

    def __init__(self):
        self.sums = []

    def came(self, tensor):
        self.sums.append(("", tensor.detach().sum()))

    def made(self, kind, tensor):
        self.sums.append((kind, tensor.detach().sum()))

    def verdict(self):
        """What this rank made bad out of good; ``input`` when it was given something bad."""
        values = torch.stack([value for _, value in self.sums]).tolist()
        clean, given = True, False
        for (kind, _), value in zip(self.sums, values):
            finite = math.isfinite(value)
            if kind and clean and not finite:
                return kind
            clean = bool(kind) or clean and finite
            given = given or not finite
        return "input" if given else ""


def initial(seed, layers):
    """All parameters of the model, by name."""
    generator = torch.Generator().manual_seed(seed)

    def normal(scale, *shape):
        return torch.randn(*shape, generator=generator) * scale

    wide, inner = WIDTH**-0.5, INNER**-0.5
    weights = {"words": normal(1.0, WORDS, WIDTH), "places": normal(0.1, SEQUENCE, WIDTH)}
    for layer in range(layers):
        weights["%d.norm" % layer] = torch.ones(WIDTH)
        weights["%d.qkv" % layer] = normal(wide, 3, WIDTH // HEADS, HEADS, WIDTH)
        weights["%d.out" % layer] = normal(wide, WIDTH, WIDTH)
        weights["%d.up" % layer] = normal(wide, INNER, WIDTH)
        weights["%d.down" % layer] = normal(inner, WIDTH, INNER)
    weights["norm"] = torch.ones(WIDTH)
    weights["head"] = normal(wide, WORDS, WIDTH)
    return weights


class Model:
    """One rank's part of the model: its pipeline stage's layers, and of their matrices its tp share.

    Weights are views of one flat vector and gradients of another, so that one collective moves them all.
    """

    def __init__(self, one, layout, seed, comm=None):
        self.mesh = Mesh(layout, one.rank if comm else 0, comm)
        self.comm, self.device, self.watch = comm, one.device, Watch()
        self.count, self.recompute = depth(one.plan), layout.get("recompute", False)
        self.micro = max(self.mesh.pp, layout.get("accumulate", 1))
        self.zero = layout.get("zero", False) and self.mesh.dp > 1
        own = {name: self.share(name, weight) for name, weight in initial(seed, self.count).items() if self.holds(name)}
        self.used = sum(weight.numel() for weight in own.values())
        self.shard = -(-self.used // self.mesh.dp)  # numbers of a ZeRO-1 rank; the last one's are filled up with zeros
        self.flat = torch.zeros(self.shard * self.mesh.dp if self.zero else self.used, device=self.device)
        self.gradient, self.weighed = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.weights, self.spans, at = {}, {}, 0
        for name, weight in own.items():
            span = self.spans[name] = slice(at, at + weight.numel())
            self.flat[span] = weight.reshape(-1).to(self.device)
            # Of what all tp ranks hold, each counts its share, so that the squares of all ranks sum to the whole norm.
            self.weighed[span] = 1.0 if self.is_cut(name) else 1.0 / self.mesh.tp
            self.weights[name] = self.flat[span].view(weight.shape).detach().requires_grad_()
            self.weights[name].grad = self.gradient[span].view(weight.shape)
            at = span.stop

    @staticmethod
    def is_cut(name):
        return name.split(".")[-1] in CUT

    def holds(self, name):
        """Whether a parameter belongs to this pipeline stage."""
        layer = name.split(".")[0]
        if layer.isdigit():
            return int(layer) in self.layers
        return self.mesh.first if name in ("words", "places") else self.mesh.last

    @property
    def layers(self):
        stage, stages = self.mesh.pp_at, self.mesh.pp
        return range(self.count * stage // stages, self.count * (stage + 1) // stages)

    def share(self, name, weight):
        """This rank's tp share of a matrix: whole heads, inner units or words."""
        if not self.is_cut(name):
            return weight
        return weight.chunk(self.mesh.tp, CUT[name.split(".")[-1]])[self.mesh.tp_at]

    # Tensor parallelism, forward and backward: `into` and `out_of` enclose what each rank computes a share of.

    def tp_sum(self, tensor):
        if self.mesh.tp == 1:
            return tensor
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.comm.all_reduce(total, self.mesh.tp_group)
        return total

    def into(self, x):
        """As it is; backward, the sum of the gradients that the ranks have for it."""
        self.watch.came(x)
        x = x.view_as(x)
        x.register_hook(self.into_backward)
        return x

    def into_backward(self, gradient):
        self.watch.made("gradient", gradient)
        return self.tp_sum(gradient)

    def out_of(self, part):
        """The sum of what the ranks computed; backward, as it is."""
        self.watch.made("activations", part)
        if self.mesh.tp > 1:
            part = part - part.detach() + self.tp_sum(part)  # its value is the sum, its gradient part's own
        part.register_hook(self.watch.came)
        return part

    def gathered(self, part):
        """The ranks' columns side by side; backward, each its own."""
        self.watch.made("activations", part)
        if self.mesh.tp > 1:
            columns = part.new_empty((self.mesh.tp * len(part),) + part.shape[1:])
            self.comm.all_gather(columns, part.detach().contiguous(), self.mesh.tp_group)
            columns = list(columns.chunk(self.mesh.tp))
            columns[self.mesh.tp_at] = part
            part = torch.cat(columns, -1)
        part.register_hook(self.watch.came)
        return part

    # The model.

    def embed(self, words):
        x = words @ self.weights["words"] + self.weights["places"]
        self.watch.made("activations", x)
        return x

    def layer(self, number, x, kept):
        """Attention and MLP side by side: one sum over the tp ranks serves both."""
        norm, qkv, out, up, down = [self.weights["%d.%s" % (number, name)] for name in LAYER]
        h = self.into(torch.layer_norm(x, (WIDTH,), norm))
        # Heads of four numbers: sums of products over leading dimensions cost a third of the tiny matrix products.
        q, k, v = (h @ qkv.flatten(0, 2).t()).unflatten(2, qkv.shape[:3]).permute(2, 3, 1, 0, 4).contiguous()
        look = ((q[:, :, None] * k[:, None]).sum(0) / math.sqrt(len(q))).softmax(1)  # from place, at place, row, head
        seen = (look * v[:, None]).sum(2)  # number, place, row, head
        attention = seen.permute(2, 1, 3, 0).flatten(2) @ out.t()
        mlp = torch.nn.functional.gelu(h @ up.t()) @ down.t()
        change = self.out_of(attention + mlp)
        return x + (change if kept is None else change * kept)

    def recomputed(self, number, x, kept):
        """The layer, but nothing of it is kept for the backward pass: that computes it again."""
        again, saved = [], []

        def drop(tensor):
            saved.append(None)
            return len(saved) - 1

        def restore(index):
            if not again:
                with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(again.append, lambda _: None):
                    self.layer(number, x.detach().requires_grad_(), kept)
            return again[index]

        with torch.autograd.graph.saved_tensors_hooks(drop, restore):
            return self.layer(number, x, kept)

    def score(self, x, picks, targets):
        """The mean loss over masked places. The head's words are shared out over tp, their scores gathered."""
        h = self.into(torch.layer_norm(picks @ x, (WIDTH,), self.weights["norm"]))
        scores = self.gathered(h @ self.weights["head"].t())
        self.watch.came(scores)
        loss = -(scores.log_softmax(-1) * targets).sum(-1).mean()
        self.watch.made("loss", loss)
        return loss

    # One step.

    def forward(self, batch, part):
        """One micro-batch through this stage: what came in, and what goes on to the next, or the loss at the end."""
        came = None
        if self.mesh.first:
            x = self.embed(batch.words[part])
        else:
            came = x = torch.empty((part.stop - part.start, SEQUENCE, WIDTH), device=self.device)
            self.comm.recv(came, self.mesh.previous)
            came.requires_grad_()
        run = self.recomputed if self.recompute else self.layer
        for number in self.layers:
            x = run(number, x, None if batch.kept is None else batch.kept[number, part])
        if self.mesh.last:
            return came, self.score(x, batch.picks[part], batch.targets[part]) * ((part.stop - part.start) / len(batch))
        self.comm.send(x.detach().contiguous(), self.mesh.next)
        return came, x

    def backward(self, came, went):
        if not self.mesh.last:
            gradient = torch.empty_like(went, memory_format=torch.contiguous_format)
            self.comm.recv(gradient, self.mesh.next)
            self.watch.came(gradient)
            went = (went * gradient).sum()  # went.backward(gradient) would import a third of a second of sympy
        went.backward()
        if came is not None:
            self.comm.send(came.grad.contiguous(), self.mesh.previous)

    def learn(self, batch):
        """GPipe: all micro-batches forward, then all backward. Gradients add up; the loss is the last stage's."""
        self.gradient.zero_()
        self.watch = Watch()
        passes = [self.forward(batch, part) for part in batch.parts(self.micro)]
        for came, went in passes:
            self.backward(came, went)
        return sum(went.detach() for _, went in passes) if self.mesh.last else None

    @property
    def own(self):
        """The part of the flat vectors that this rank updates: all of it, or its shard under ZeRO-1."""
        return slice(self.mesh.dp_at * self.shard, (self.mesh.dp_at + 1) * self.shard) if self.zero else slice(None)

    def reduce(self):
        """The mean gradient over the dp ranks, of the part that this rank updates."""
        mean = self.gradient
        if self.zero:
            mean = self.scattered()
        elif self.mesh.dp > 1:
            self.comm.all_reduce(self.gradient, self.mesh.dp_group)
        return mean.div_(self.mesh.dp)

    def scattered(self):
        """This rank's shard of the sum of all gradients."""
        shard = self.gradient.new_empty(self.shard)
        try:
            self.comm.reduce_scatter(shard, self.gradient, self.mesh.dp_group)
        except RuntimeError as error:
            if "not support" not in str(error):
                raise
            # gloo of an older torch; it refuses before it sends anything.
            self.comm.all_reduce(self.gradient, self.mesh.dp_group)
            shard.copy_(self.gradient[self.own])
        return shard

    def update(self, gradient, optimizer):
        optimizer(self.flat[self.own], gradient)
        if self.zero:
            self.comm.all_gather(self.flat, self.flat[self.own].clone(), self.mesh.dp_group)

    def spread(self):
        """The first dp rank's parameters become everybody's."""
        if self.mesh.dp > 1:
            self.comm.broadcast(self.flat, self.mesh.dp_group.ranks[0], self.mesh.dp_group)

    # What is told of it.

    def norm(self, gradient, part=slice(None)):
        """Its share of the whole gradient's norm: squares sum to the whole's over the ranks that make up one model."""
        return number((gradient * gradient * self.weighed[part]).sum().sqrt())

    def squares(self, change):
        """The squared norm of each parameter's change, counted as in `norm`."""
        squares = change * change * self.weighed
        return {name: number(squares[span].sum()) for name, span in self.spans.items()}

    def prints(self):
        """Digests of all that the rank holds, and of what all tp ranks must hold alike."""
        alike = [self.flat[span] for name, span in self.spans.items() if not self.is_cut(name)]
        return {"params": digest(self.flat[: self.used]), "replicated": digest(torch.cat(alike)) if alike else 0}


def number(value):
    """A float that JSON can hold; None for what is not finite."""
    value = float(value)
    return value if math.isfinite(value) else None


def sgd(weights, gradient):
    """Tells a sum from a mean, which Adam would hide."""
    weights.add_(gradient, alpha=-0.5)


class Adam:
    """Tells in ten steps whether anything is learned."""

    def __init__(self):
        self.steps, self.mean, self.square = 0, 0.0, 0.0

    def __call__(self, weights, gradient):
        self.steps += 1
        self.mean = 0.9 * self.mean + 0.1 * gradient
        self.square = 0.99 * self.square + 0.01 * gradient * gradient
        scale = (self.square / (1 - 0.99**self.steps)).sqrt() + 1e-8
        weights.sub_(0.02 / (1 - 0.9**self.steps) * self.mean / scale)


def training(one):
    """The serial twin, then each layout of the plan."""
    twin(one)
    for index, layout in enumerate(one.plan["layouts"]):
        train(one, index, layout)


STAGE_FUNCTIONS["training"] = training


def batch_of(one, model, dice, step, dropout):
    """The rank's rows of a step."""
    one.box.step = step
    one.box.note("input")
    # Without dropout it is for learning, where the mean of a few words would tell too little of a loss that falls.
    count = block_count(one.world) if dropout else block_count(one.world, 32)
    batch = Batch(one, dice, step, model.mesh.blocks(count), dropout, count)
    one.box.note("compute")
    return batch


def own_seed(one, layout):
    """What a rank draws its first parameters with: only the first dp rank with the plan's. The broadcast undoes it."""
    return one.plan["seed"] + (1000 + one.rank if Mesh(layout, one.rank).dp_at else 0)


def twin(one):
    """The same training in one process. Every rank does it: a device that computes otherwise shows itself here.

    With very many blocks all but rank 0 do only the first steps.
    """
    model, dice = Model(one, {}, one.plan["seed"]), Dice(one.plan["seed"], one.device)
    first, start, losses, norms = digest(model.flat), model.flat.clone(), [], []
    steps = one.plan["steps"] if one.leads else min(one.plan["steps"], max(1, 512 // block_count(one.world)))
    for step in range(steps):
        batch = batch_of(one, model, dice, step, True)
        losses.append(number(model.learn(batch)))
        gradient = model.reduce()
        norms.append(model.norm(gradient))
        model.update(gradient, sgd)
        for at in range(0, len(batch.blocks) if one.leads else 0, 60):
            ids, masks = batch.ids[at : at + 60], batch.masks[at : at + 60]
            one.say("twin-blocks", step=step, first=at, ids=ids, masks=masks)
    one.say("twin", losses=losses, grads=norms, params=digest(model.flat), init=first, precision=precision(one.device))
    if one.leads:
        one.say("twin-update", update=model.squares(model.flat - start))


def precision(device):
    """The relative error of a product of two matrices: some devices multiply float32 with fewer bits."""
    left, right = torch.rand(2, 64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    exact = left @ right
    told = (left.float().to(device) @ right.float().to(device)).cpu().double()
    return number(((told - exact).abs() / exact).max())


def train(one, index, layout):
    """One layout, from other parameters on every dp rank but the first, which the broadcast must make the same."""
    began = time.monotonic()
    one.box.step = 0  # the twin may have gone further on some ranks than on others
    model, dice = Model(one, layout, own_seed(one, layout), one.comm), Dice(one.plan["seed"], one.device)
    before = model.prints()["params"]
    model.spread()
    one.say("begin", layout=index, before=before, **model.prints())
    start = model.flat.clone()
    for step in range(one.plan["steps"]):
        batch = batch_of(one, model, dice, step, True)
        one.say("step", layout=index, step=step, **trained(model, batch))
    seconds = round(time.monotonic() - began, 3)
    one.say("end", layout=index, update=model.squares(model.flat - start), seconds=seconds)


def trained(model, batch):
    """One step of training, and all that is told of it."""
    loss = model.learn(batch)
    local = model.norm(model.gradient)
    bad = model.watch.verdict() or ("gradient" if local is None else "")
    gradient = model.reduce()
    grad, grad_digest = model.norm(gradient, model.own), digest(gradient)
    model.update(gradient, sgd)
    after = model.prints()
    if not bad and not math.isfinite(float(model.flat.sum())):
        bad = "parameters"
    return dict(
        loss=None if loss is None else number(loss), blocks=batch.blocks[:60], ids=batch.ids[:60],
        masks=batch.masks[:60], rng=batch.prints, grad_local=local, grad=grad, grad_digest=grad_digest, bad=bad,
        **after,
    )  # fmt: skip


# ---- stage: learning


def learning(one):
    """One layout, trained until it must have learned something.

    Nothing is recomputed: that changes no number, as the training has shown.
    """
    layout = dict(max(one.plan["layouts"], key=quick), recompute=False)
    model, dice = Model(one, layout, own_seed(one, layout), one.comm), Dice(one.plan["seed"], one.device)
    adam = Adam()
    model.spread()
    for step in range(one.plan["learn_steps"]):
        loss = model.learn(batch_of(one, model, dice, step, False))
        if loss is not None:
            one.say("learn", step=step, loss=number(loss))
        model.update(model.reduce(), adam)


def quick(layout):
    """The more the better: tensor parallelism takes several collectives a layer, the rest a few a step."""
    return -layout.get("tp", 1), (layout.get("pp", 1) > 1) + (layout.get("dp", 1) > 1)


STAGE_FUNCTIONS["learning"] = learning


# ---- stage: loader


WORKERS, BATCHES, ROWS = 2, 4, 4


class Rows:
    """Rows that tell what each generator gave in the worker, and are long enough to need /dev/shm."""

    def __len__(self):
        return BATCHES * ROWS

    def __getitem__(self, index):
        row = torch.zeros(1 << 14, dtype=torch.float64)
        row[0], row[1], row[2] = random.random(), numpy.random.random() if numpy else 0.0, torch.rand(())
        row[3] = torch.utils.data.get_worker_info().seed % (1 << 53)
        return row


def shared_data(one):
    """The layout that says which ranks read the same data, best one that has both kinds, and our share there."""
    layouts = one.plan["layouts"]
    kinds = [(layout.get("dp", 1) > 1) + (layout.get("tp", 1) * layout.get("pp", 1) > 1) for layout in layouts]
    chosen = kinds.index(max(kinds))
    return chosen, one.rank // layouts[chosen].get("tp", 1) % layouts[chosen].get("dp", 1)


def loader_seed(one):
    return one.plan.get("seed", 1) * 1000003 + shared_data(one)[1]


def begin_worker(parent):
    """What a loader's worker does first: it dies with its rank, and seeds all generators.

    That it tells its stack when asked, into its rank's file, it has from the rank.
    """

    def begin(number):
        die_with(parent)
        seed = torch.initial_seed() % (1 << 32)
        random.seed(seed)
        if numpy:
            numpy.random.seed(seed)

    return begin


def read_all(one):
    """All batches of a loader: what was drawn, and the workers' seeds.

    Without a timeout, as everybody has it: with one, torch would look only at its end whether the workers live.
    """
    # A semaphore has a name for a moment; it says whose it is, should we be killed in that moment.
    multiprocessing.current_process()._config["semprefix"] = "/torch_%d_" % os.getpid()
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=ROWS, num_workers=WORKERS, worker_init_fn=begin_worker(os.getpid()),
        generator=torch.Generator().manual_seed(loader_seed(one)), multiprocessing_context="fork",
    )  # fmt: skip
    drawn = []
    one.box.note("input")
    for batch in loader:
        one.box.note("compute")
        drawn.append(batch[:, :4].clone())
        one.box.step += 1
        one.box.note("input")
    drawn = torch.cat(drawn)
    return drawn, sorted({int(seed) for seed in drawn[:, 3]})


def stage_loader(one):
    """A DataLoader with workers, as training scripts have one: its shared memory, and its workers' random numbers."""
    began, digests, seeds, text = time.monotonic(), {}, [], ""
    try:
        drawn, seeds = read_all(one)
        names = ("python", "numpy", "torch") if numpy else ("python", None, "torch")
        digests = {name: digest(drawn[:, column]) for column, name in enumerate(names) if name}
    except (RuntimeError, OSError) as error:
        # A worker's error comes with its whole trace, the words that matter last.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        text = "%s; %s" % (lines[-1][:600], room_of_shm())
    one.box.note("compute")
    layout, share = shared_data(one)
    took = round(time.monotonic() - began, 3)
    one.say("loader", workers=WORKERS, digests=digests, seeds=seeds, seconds=took, text=text, layout=layout, dp=share)


def room_of_shm():
    try:
        room = os.statvfs("/dev/shm")
    except OSError as error:
        return "/dev/shm: %s" % error.strerror
    size, free = room.f_blocks * room.f_frsize, room.f_bavail * room.f_frsize
    return "/dev/shm has %.1f MB, %.1f MB of them free" % (size / 1e6, free / 1e6)


STAGE_FUNCTIONS["loader"] = stage_loader


# ---- stage: pace


REPEATS, AT_ONCE = 20, 3


def input_work(one):
    """What preparing a batch is like: numbers drawn, sorted, moved to the device. A third of a millisecond."""
    values = [random.random() for _ in range(900)]
    values.sort()
    torch.tensor(values).to(one.device)


def compute_work(one, factors):
    """A chain of matrix products, half a millisecond on CPUs, one on accelerators."""
    product = factors
    for _ in range(2 if one.device.type == "cpu" else 4):
        product = torch.mm(product, factors)
    one.comm.synchronize()


def effective(work):
    """Seconds of one piece of work, without the time that it was kept waiting for a CPU."""
    delay, began = run_delay(), time.perf_counter()
    work()
    took = time.perf_counter() - began
    return max(0.0, round(took - (run_delay() - delay), 7))


def stage_pace(one):
    """The same work over and over on every rank, so that a slow one stands out. Nothing is exchanged.

    CPUs go round: the neighbour of a busy one is a third slower for seconds, and that is nobody's fault.
    """
    on_cpu = one.device.type == "cpu"
    factors = torch.eye(192 if on_cpu else 4096, dtype=torch.float32 if on_cpu else torch.float16, device=one.device)
    kinds = {"input": lambda: input_work(one), "compute": lambda: compute_work(one, factors)}
    for work in kinds.values():
        work()
    one.comm.barrier()
    allowed = sorted(os.sched_getaffinity(0)) if on_cpu else []
    seconds = {kind: [] for kind in kinds}
    try:
        for one.box.step in range(REPEATS):
            if len(allowed) > 1:
                os.sched_setaffinity(0, {allowed[(one.rank + one.box.step) % len(allowed)]})
                compute_work(one, factors)
            for kind, work in kinds.items():
                one.box.note(kind)
                seconds[kind] += [effective(work) for _ in range(AT_ONCE)]
    finally:
        if len(allowed) > 1:
            os.sched_setaffinity(0, allowed)
    one.box.note("compute")
    one.say("pace", **seconds)


STAGE_FUNCTIONS["pace"] = stage_pace


# ---- rendezvous


def knock(voice, address, port, seconds):
    """Waits until the master can be connected to, and says why not meanwhile. torch's own client only times out."""
    end, last = time.monotonic() + seconds, ""
    while True:
        problem, text = tried(address, port, min(2.0, max(0.1, end - time.monotonic())))
        if not problem:
            return
        if problem != last:
            voice.say("try", problem=problem, text=text, address="%s:%s" % (address, port))
            last = problem
        if time.monotonic() > end:
            raise Unmet(text)
        time.sleep(0.1)


class Unmet(Exception):
    """The rendezvous did not come about."""


def tried(address, port, seconds):
    """One attempt to connect: the kind of trouble, and its words; two empty strings when it worked."""
    try:
        target = socket.getaddrinfo(address, port, 0, socket.SOCK_STREAM)[0]
    except OSError as error:
        return "name", "%s does not resolve: %s" % (address, error.strerror or error)
    shown = "%s (%s)" % (address, target[4][0]) if target[4][0] != address else address
    link = socket.socket(target[0], socket.SOCK_STREAM)
    link.settimeout(seconds)
    try:
        link.connect(target[4])
        return "", ""
    except ConnectionRefusedError:
        return "refused", "%s port %s refuses connections" % (shown, port)
    except socket.timeout:
        return "dropped", "%s port %s does not answer" % (shown, port)
    except OSError as error:
        kind = "no-route" if error.errno in (101, 113) else "other"
        return kind, "%s port %s: %s" % (shown, port, error.strerror)
    finally:
        link.close()


def claim(store, rank, world):
    """Says who we are, and finds out about a second process of the same rank, or another idea of the world's size."""
    token = "%s %d %d" % (socket.gethostname(), os.getpid(), time.time_ns())
    first = store.compare_set("rank %d" % rank, "", token).decode()
    if first != token:
        raise Unmet("rank %d is there twice: %s also calls itself rank %d" % (rank, first.split()[0], rank))
    size = store.compare_set("world", "", "%d %s" % (world, rank)).decode().split()
    if int(size[0]) != world:
        raise Unmet("world size is %d here, and %s on rank %s" % (world, size[0], size[1]))


def join(orders, voice, rank, device):
    """Connects to the store and forms the default process group."""
    plan, (address, port) = orders["plan"], orders["master"]
    timeout = timedelta(seconds=plan["timeout"])
    hosting = orders["hosts_store"] and orders["start"] == "exec"
    store = host_store(orders) if hosting else None
    if store is None:
        knock(voice, address, port, plan["timeout"])
        store = dist.TCPStore(address, port, None, False, timeout, wait_for_workers=False)
    store = dist.PrefixStore("doctor", store)
    world = len(plan["places"])
    claim(store, rank, world)
    more = {}
    if plan["backend"] != "gloo" and device.index is not None:
        more["device_id"] = device
    dist.init_process_group(plan["backend"], store=store, rank=rank, world_size=world, timeout=timeout, **more)
    return store


def host_store(orders):
    """The key-value store that ranks meet at. Its thread must not live in a process that still forks."""
    more = {"master_listen_fd": orders["store"]} if orders["store"] >= 0 else {}
    return dist.TCPStore(*orders["master"], None, True, wait_for_workers=False, **more)


# ---- from one process to all ranks


def die_with(parent):
    """The kernel kills this process when the one that started it ends, however that happens."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def die_with_agent(agent):
    """The same for the interpreter that an agent has started, which may have come by way of a wrapper.

    That one can outlive the agent. But the other end of stdin cannot: when it is closed, the kernel kills as well.
    """
    if os.getppid() == agent:
        die_with(agent)
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    with contextlib.suppress(OSError):
        fcntl.fcntl(0, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(0, 10, signal.SIGKILL)  # F_SETSIG
        fcntl.fcntl(0, fcntl.F_SETFL, fcntl.fcntl(0, fcntl.F_GETFL) | os.O_ASYNC)
    closed = select.poll()
    closed.register(0, 0)
    if closed.poll(0):
        os._exit(0)


def load(orders, voice):
    """Imports torch, and what the devices need, and says how long it took."""
    global torch, dist, numpy
    warnings.filterwarnings("ignore")
    began, backend = time.monotonic(), orders["plan"]["backend"]
    import torch
    import torch.distributed as dist

    try:
        import numpy
        import numpy.random  # noqa: F401 - loaded at its first use otherwise, by each rank
    except ImportError:
        numpy = None
    if backend == "hccl":
        import torch_npu  # noqa: F401 - it makes itself known to torch
    ready = backend == "hccl" or dist.is_backend_available(backend)
    voice.say(
        "imported",
        seconds=round(time.monotonic() - began, 3),
        torch=torch.__version__,
        numpy=numpy.__version__ if numpy else None,
        python="%d.%d.%d" % sys.version_info[:3],
        backend_ok=ready,
        text="" if ready else "this torch was built without %s" % backend,
    )
    if not ready:
        os._exit(3)
    for name in IMPORTS:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Looking for garbage among what torch has just made takes a tenth of the time that making it does.
    gc.freeze()
    gc.enable()


def take_device(plan, rank):
    """The rank's device, made current; its identity; and how to wait until it has done what it was given."""
    number = plan["places"][rank].get("device", -1)
    if plan["backend"] == "gloo":
        return torch.device("cpu"), {"index": -1, "name": "cpu", "id": ""}, lambda: None
    kind = {"nccl": "cuda", "hccl": "npu"}[plan["backend"]]
    module = getattr(torch, kind)
    module.set_device(number)
    properties = module.get_device_properties(number)
    known = {
        "index": module.current_device(),
        "name": str(getattr(properties, "name", "")),
        "id": str(getattr(properties, "uuid", "") or getattr(properties, "pci_bus_id", "")),
    }
    return torch.device(kind, number), known, module.synchronize


def become(orders, rank):
    """From here on this process is one rank. Never returns."""
    voice = Voice(orders["events"], rank)
    box = Box(orders["box"], orders["index"][str(rank)])
    code = 0
    try:
        live(orders, rank, voice, box)
    except BaseException as error:  # the rim: whatever a rank trips over is told, not lost
        code = 13
        tell(voice, box, error)
    # An interpreter with torch takes half a second to end by itself.
    os._exit(code)


FOLLOWS = (
    "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Timed out waiting", "Socket Timeout",
    "remote process exited", "ncclRemoteError", "Connection refused", "Application timeout caused pair closure",
)  # fmt: skip


def tell(voice, box, error):
    """The rank's own last words. An error of these kinds follows from the end of another rank."""
    text = str(error).strip()
    shown = (text.splitlines() or [""])[0][:600]
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    voice.say(
        "error",
        kind=type(error).__name__,
        text=shown,
        secondary=any(word in text for word in FOLLOWS),
        stage=STAGES[box.stage],
        trace=["%s:%s %s" % (frame.filename[-80:], frame.lineno, frame.name) for frame in reversed(frames)],
    )


def live(orders, rank, voice, box):
    """All stages of one rank."""
    plan = orders["plan"]
    stacks = orders["stacks"][str(rank)]
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True, chain=False)
    if plan["backend"] == "gloo":
        torch.set_num_threads(1)
    began = time.monotonic()
    device, known, synchronize = take_device(plan, rank)
    voice.say("stage", stage="start", seconds=round(time.monotonic() - began, 3))
    box.stage, began = STAGES.index("rendezvous"), time.monotonic()
    store = join(orders, voice, rank, device)  # noqa: F841 - kept alive with its connection
    timeout = timedelta(seconds=plan["timeout"])
    comm = Comm(rank, len(plan["places"]), box, voice, timeout, synchronize)
    took = round(time.monotonic() - began, 3)
    voice.say(
        "joined", seconds=took, host=socket.gethostname(), device=known, torch=torch.__version__,
        numpy=numpy.__version__ if numpy else None, world=comm.size,
    )  # fmt: skip
    one = Rank(plan, rank, device, box, voice, comm)
    box.note("compute")
    pass_stage(one, "rendezvous", began)
    for name in STAGES[2:-1]:
        if name in plan["stages"] and name in STAGE_FUNCTIONS:
            box.stage, box.step, began = STAGES.index(name), 0, time.monotonic()
            box.note("compute")
            STAGE_FUNCTIONS[name](one)
            pass_stage(one, name, began)
    box.stage = STAGES.index("teardown")
    comm.barrier()
    voice.say("done")
    box.note("done")


def pass_stage(one, name, began):
    """Ends a stage: nobody begins the next one before all are here."""
    one.comm.barrier()
    one.say("stage", stage=name, seconds=round(time.monotonic() - began, 3))


def keep_only(orders, rank):
    """Closes what belongs to the other ranks, so that the end of one is seen by all."""
    for table in (orders["stacks"], orders["errors"]):
        for other, file in table.items():
            if int(other) != rank:
                os.close(file)
    if orders["store"] >= 0:
        os.close(orders["store"])
    quiet = os.open(os.devnull, os.O_RDONLY)
    os.dup2(quiet, 0)
    errors = orders["errors"][str(rank)]
    os.dup2(errors, 1)
    os.dup2(errors, 2)


def fork_ranks(orders, voice):
    """One process a rank, all with the torch that this one imported; then their store, and their ends."""
    parent, ranks = os.getpid(), {}
    for rank in orders["mine"]:
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            keep_only(orders, rank)
            become(orders, rank)
        ranks[pid] = rank
    store = host_store(orders) if orders["hosts_store"] else None
    while ranks:
        pid, status = os.waitpid(-1, 0)
        if pid in ranks:
            voice.say("exit", rank=ranks.pop(pid), status=status)
    if store is not None:
        # Ranks of other hosts may still be at the store.
        sys.stdin.buffer.read()
    os._exit(0)


def main():
    """Reads the orders and carries them out."""
    orders = json.loads(sys.stdin.buffer.readline())
    orders["plan"] = dict(PLAN, **orders["plan"])
    die_with_agent(orders["agent"])
    inherited(orders)
    forks = orders["start"] == "fork"
    voice = Voice(orders["events"], -1 if forks else orders["mine"][0])
    try:
        load(orders, voice)
    except BaseException as error:  # the rim: an import can fail in any way
        tell_import(voice, error)
        os._exit(4)
    if forks:
        fork_ranks(orders, voice)
    keep_errors(orders)
    become(orders, orders["mine"][0])


def inherited(orders):
    """Ends where nothing could be told: some ways to start an interpreter close what it should inherit."""
    try:
        os.fstat(orders["events"]), os.fstat(orders["box"])
    except OSError:
        text = "what starts this Python closes the files that it should inherit, as conda run does: name %s itself\n"
        os.write(2, (text % sys.executable).encode("ascii", "replace"))
        os._exit(5)


def tell_import(voice, error):
    voice.say("error", kind=type(error).__name__, text=in_a_line(error), secondary=False, stage="start", trace=[])


def in_a_line(error):
    """What an error says first, and what was at the bottom of it: torch wraps the library that did not load."""
    first = (str(error).strip().splitlines() or [""])[0][:400]
    bottom = error
    while bottom.__cause__ or bottom.__context__:
        bottom = bottom.__cause__ or bottom.__context__
    deep = (str(bottom).strip().splitlines() or [""])[0][:200]
    return first if not deep or deep in first else "%s (%s: %s)" % (first, type(bottom).__name__, deep)


def keep_errors(orders):
    errors = orders["errors"][str(orders["mine"][0])]
    os.dup2(errors, 1)
    os.dup2(errors, 2)
