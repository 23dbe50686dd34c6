"""Collectives and point-to-point messages, each of them recorded in the flight recorder.

Its peers would only see a call of another dtype, which either side of may be the wrong one, or numbers that are off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.process_groups import Plan, why_no_group
from doctor.smoke.programs.recorder_page import message_group
from doctor.smoke.programs.worker.flight_recorder import FlightRecorder
from doctor.smoke.programs.worker.libraries import dist, torch
from doctor.smoke.programs.worker.orders import EventWriter

DEFAULT_DTYPE = "get_default_dtype"


class TorchModes:
    """The modes as they are now; `check` compares them with those of then."""

    def __init__(self) -> None:
        on_cpus = getattr(torch, "is_autocast_cpu_enabled", bool)
        self.readers = {
            DEFAULT_DTYPE: torch.get_default_dtype,
            "get_default_device": lambda: torch.empty(0).device.type,
            "is_inference_mode_enabled": torch.is_inference_mode_enabled,
            "is_grad_enabled": torch.is_grad_enabled,
            # On CPUs, or on the kind of device that torch was built for.
            "is_autocast_enabled": lambda: bool(on_cpus() or torch.is_autocast_enabled()),
        }
        self.begun_with = {name: read() for name, read in self.readers.items()}

    def check(self, names: Sequence[str] = ()) -> None:
        """Those of these names; none: all, which hold for the main thread alone. Raises: RuntimeError, of a change."""
        for name in names or self.readers:
            before, now = self.begun_with[name], self.readers[name]()
            if now != before:
                text = "torch.{0}() has changed from {1} to {2}: something in this process that is not the run did that"
                raise RuntimeError(filled(text, name, before, now))


class ProcessGroup:
    """A process group: its number, the same on every rank, its name, its members, and torch's handle for it."""

    def __init__(self, number: int, name: str, ranks: list[int], handle: Any) -> None:
        self.number, self.name, self.ranks, self.handle = number, name, ranks, handle

    def __len__(self) -> int:
        return len(self.ranks)


class TracedComm:
    """torch.distributed calls, each between `FlightRecorder.enter` and `exit`. Roots and peers are global ranks."""

    def __init__(
        self,
        rank: int,
        world_size: int,
        recorder: FlightRecorder,
        events: EventWriter,
        timeout: timedelta,
        synchronize: Callable[[], object],
        device: torch.device | None = None,
        plan: Plan | None = None,
    ) -> None:
        self.rank, self.size, self.recorder, self.events = rank, world_size, recorder, events
        self.timeout, self.synchronize, self.device, self.plan = timeout, synchronize, device, plan or {}
        self.modes = TorchModes()
        self.store: Any = None
        self.messages: Any = None
        """The group of messages between two ranks; None: the world's."""
        self.agreements = self.collections = 0
        self.world = ProcessGroup(0, "world", list(range(world_size)), None)
        self.groups = {tuple(self.world.ranks): self.world}
        self.gather_into = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        self.scatter_from = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def part_messages(self) -> None:
        """Gives messages a group of their own where torch compares the numbers of calls that ranks have made.

        TORCH_DISTRIBUTED_DEBUG=DETAIL (torch, ProcessGroupWrapper.cpp) counts messages as well, and not every rank
        has as many: the next collective of their group would fail. Every rank of the world calls this.
        """
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            self.messages = dist.new_group(timeout=self.timeout)

    def group(self, name: str, ranks: Sequence[int], together: bool = False) -> ProcessGroup:
        """The group of these ranks. Every rank of the world calls this in the same order, member or not.

        ``together``: all ranks of the world form it. Without that torch (2.1 to 2.15) names a group by its members and
        the number of groups that they have, so that all members must be in equally many.
        """
        key = tuple(ranks)
        if key not in self.groups:
            group = self.groups[key] = ProcessGroup(len(self.groups), name, list(ranks), None)
            alone = self.forms_alone() and not together
            if self.rank == ranks[0]:
                self.events.emit("group", gid=group.number, name=name, ranks=list(ranks))
            if alone and self.rank in ranks:
                self.run_traced("barrier", None, group, lambda: self.form(group, use_local_synchronization=True))
            elif not alone:
                self.run_traced("barrier", None, self.world, lambda: self.form(group))
        return self.groups[key]

    @staticmethod
    def forms_alone() -> bool:
        """Whether the members of a group form it without the others.

        A world of thousands has thousands of groups, and would take minutes if every rank waited for each of them.
        Where the world is bound to devices, NCCL splits its communicator, and needs all ranks.
        """
        return getattr(dist.group.WORLD, "bound_device_id", None) is None

    def form(self, group: ProcessGroup, **options: Any) -> None:
        """Makes torch's group. It does not inherit the timeout of init_process_group."""
        group.handle = dist.new_group(group.ranks, timeout=self.timeout, **options)

    def run_traced(
        self,
        op: str,
        tensor: torch.Tensor | None,
        group: ProcessGroup | None,
        function: Callable[[], object],
        root: int = -1,
        number: int | None = None,
    ) -> None:
        """Runs ``function``, which must be this collective, and records it. Every collective goes through here.

        ``number``: the group's number where there is no ``group``, as for a message between two ranks.
        """
        self.modes.check([DEFAULT_DTYPE])
        if number is None:
            number = group.number if group else 0
        dtype, numel = ("", 0) if tensor is None else (str(tensor.dtype)[6:], tensor.numel())
        self.recorder.enter(number, op, dtype, root, numel)
        function()
        self.synchronize()
        self.recorder.exit(number)

    # The collectives change ``tensor`` or ``out`` in place, as torch's do. All of them wait for the device.

    def all_reduce(self, tensor: torch.Tensor, group: ProcessGroup, op: Any = None) -> None:
        op = op or dist.ReduceOp.SUM
        self.run_traced("all_reduce", tensor, group, lambda: dist.all_reduce(tensor, op=op, group=group.handle))

    def broadcast(self, tensor: torch.Tensor, root: int, group: ProcessGroup) -> None:
        self.run_traced("broadcast", tensor, group, lambda: dist.broadcast(tensor, root, group=group.handle), root)

    def reduce(self, tensor: torch.Tensor, root: int, group: ProcessGroup) -> None:
        self.run_traced("reduce", tensor, group, lambda: dist.reduce(tensor, root, group=group.handle), root)

    def all_gather(self, out: torch.Tensor, tensor: torch.Tensor, group: ProcessGroup) -> None:
        self.run_traced("all_gather", tensor, group, lambda: self._all_gather(out, tensor, group))

    def _all_gather(self, out: torch.Tensor, tensor: torch.Tensor, group: ProcessGroup) -> None:
        try:
            self.gather_into(out, tensor, group=group.handle)
        except RuntimeError as error:
            if "no support for _allgather_base" not in str(error):
                raise
            # gloo of torch 2.1 gathers into a list of tensors only.
            pieces = [piece.view_as(tensor) for piece in out.chunk(len(group))]
            dist.all_gather(pieces, tensor, group=group.handle)

    def reduce_scatter(self, out: torch.Tensor, tensor: torch.Tensor, group: ProcessGroup) -> None:
        self.run_traced("reduce_scatter", tensor, group, lambda: self.scatter_from(out, tensor, group=group.handle))

    def all_to_all(self, out: torch.Tensor, tensor: torch.Tensor, group: ProcessGroup) -> None:
        self.run_traced("all_to_all", tensor, group, lambda: dist.all_to_all_single(out, tensor, group=group.handle))

    def agree(self, value: float) -> float:
        """Rank 0's value, on every rank. Without a store each rank keeps its own value."""
        return float(self.share(repr(float(value))))

    def share(self, text: str) -> str:
        """Rank 0's text, on every rank: through the store, as a collective that is wrong must not part the ranks.

        Recorded as a broadcast, which it is. Without a store each rank keeps its own text.
        """
        shared = [text]

        def exchange() -> None:
            key = f"agreement {self.agreements}"
            if self.rank == 0:
                self.store.set(key, text)
            else:
                shared[0] = self.store.get(key).decode()

        if self.store is not None and self.size > 1:
            self.agreements += 1
            self.run_traced("broadcast", None, self.world, exchange, 0)
        return shared[0]

    def collect(self, text: str, ranks: Sequence[int]) -> list[str]:
        """On rank 0 the texts of these ranks, each with this text of its own; on others an empty list.

        Through the store, like `share`. Every rank of the world calls this.
        """
        if self.store is None or self.size == 1:
            return [text]
        key = f"collection {self.collections} of rank "
        self.collections += 1
        texts: list[str] = []

        def gather() -> None:
            if self.rank in ranks:
                self.store.set(f"{key}{self.rank}", text)
            if self.rank:
                return
            keys = [f"{key}{rank}" for rank in ranks]
            # In one exchange with the server, where this torch has that: of thousands of ranks, each get is one.
            get_all = getattr(self.store, "multi_get", None) or (lambda keys: map(self.store.get, keys))
            texts.extend(value.decode() for value in get_all(keys))

        self.run_traced("gather", None, self.world, gather, 0)
        return texts

    def sum_over_ranks(self, number: int) -> int:
        """The sum of all ranks' numbers, on every rank: through the store, like `share`."""
        if self.store is None or self.size == 1:
            return number
        key, total = f"sum {self.agreements}", [number]
        self.agreements += 1

        def read() -> None:
            total[0] = self.store.add(key, 0)

        self.barrier(before=lambda: self.store.add(key, number))
        self.run_traced("broadcast", None, self.world, read, 0)
        return int(total[0])

    def barrier(self, group: ProcessGroup | None = None, before: Callable[[], object] = lambda: None) -> None:
        """``before``: done within the recorded call: what waits for the store waits for another host."""
        group = group or self.world
        # Where NCCL's group is not bound to a device, it would take the one that its rank's number suggests.
        nccl = self.device is not None and self.device.type == "cuda"
        options = {"device_ids": [self.device.index]} if nccl and self.device else {}
        self.run_traced("barrier", None, group, lambda: (before(), dist.barrier(group=group.handle, **options)))

    def can_form(self, ranks: Sequence[int]) -> bool:
        """Whether the product lets these ranks form a group; messages between two ranks need a group as well."""
        return not why_no_group(self.plan, list(ranks))

    def batches_elsewhere(self) -> bool:
        """Whether batch_isend_irecv would take another NPU than the rank's.

        torch_npu (master of 2026-08, ProcessGroupHCCL::startCoalescing) takes the one of number rank % count, and not
        the current one.
        """
        if self.device is None or self.device.type != "npu":
            return False
        return bool(self.device.index != self.rank % torch.npu.device_count())

    def send(self, tensor: torch.Tensor, peer: int) -> None:
        number = message_group(self.rank, peer, self.size)
        self.run_traced("send", tensor, None, lambda: dist.send(tensor, peer, self.messages), peer, number)

    def recv(self, tensor: torch.Tensor, peer: int) -> None:
        number = message_group(peer, self.rank, self.size)
        self.run_traced("recv", tensor, None, lambda: dist.recv(tensor, peer, self.messages), peer, number)

    def exchange(self, out: torch.Tensor, tensor: torch.Tensor, peer: int) -> None:
        """Sends and receives at once; recorded as an all_to_all of two ranks."""
        low, high = sorted((self.rank, peer))

        def send_and_receive() -> None:
            ways = [(dist.isend, tensor), (dist.irecv, out)]
            if self.batches_elsewhere():
                for work in [
                    way(message, peer, self.messages) for way, message in (ways if self.rank == low else ways[::-1])
                ]:
                    work.wait()
                return
            operations = [dist.P2POp(way, message, peer, self.messages) for way, message in ways]
            for work in dist.batch_isend_irecv(operations):
                work.wait()

        number = message_group(low, high, self.size)
        self.run_traced("all_to_all", tensor, None, send_and_receive, -1, number)
