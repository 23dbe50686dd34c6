"""NPUs and GPUs that are none: torch's own tensors in host memory that say where they lie, and gloo beneath them.

Emulated, not measured: what torch_npu with HCCL, or CUDA with NCCL, refuse, and what they say then; numbers, memory
limits, visible devices, and libraries that do not survive a fork. `install` puts them into a job's interpreter, of
which nothing else knows. What a kernel of a device computes, its streams' order and its speed are not rehearsed;
within a backward pass tensors do not say where they lie.

Settings, as variables of the interpreter:
- REHEARSED_SOC: ``910A`` or ``910B3``, the NPU's name.
- REHEARSED_AVG: ``sum`` or ``refused``: what torch_npu 2.1.0-6.0.rc1, and 6.0.rc2 to 6.0.0, do with ReduceOp.AVG.
- REHEARSED_TORCH: ``2.1``: init_process_group without ``device_id``.
- REHEARSED_MEMORY: MB of each device.
- REHEARSED_POKE: an import asks for the devices.
- REHEARSED_EXPECT: ``NAME=value NAME=`` that the rank's environment must have; an empty value: must not be set.
"""

from __future__ import annotations

import functools
import glob
import itertools
import json
import os
import re
import socket
import sys
import time
import types
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.overrides import TorchFunctionMode

VISIBLE = {
    "npu": (("ASCEND_RT_VISIBLE_DEVICES",),),
    "cuda": (("CUDA_VISIBLE_DEVICES",),),
    "rocm": (("ROCR_VISIBLE_DEVICES",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
}
"""Of ROCm the first list counts the host's devices, and the second one those that are left (rocm.docs.amd.com)."""
FILES = {"npu": "/dev/davinci[0-9]*", "cuda": "/dev/nvidia[0-9]*", "rocm": "/dev/dri/renderD[0-9]*"}
REDUCED = ("int8", "int16", "int32", "int64", "float16", "float32", "bfloat16")
MOVED = (*REDUCED, "uint8", "float64", "bool")
"""Types that HCCL reduces, and moves (Ascend/pytorch, ProcessGroupHCCL.cpp)."""
COPIES = ("copy_", "__setitem__", "to", "__getitem__", "index_select", "set_data")
"""What may have tensors of the host and of a device."""
HALF = 4
LARGE = 1 << 22
"""Elements of a factor whose product takes a device to compute it; it is left out."""


class Device:
    """The devices of one kind that this process sees, and the one that is current."""

    def __init__(self, kind: str) -> None:
        self.vendor, self.kind = kind, "npu" if kind == "npu" else "cuda"
        self.current, self.owner = 0, 0
        self.numbers = sorted(int(re.sub(r"\D", "", path)) for path in glob.glob(FILES[kind]))
        for names in VISIBLE[kind]:
            visible = next((os.environ[name] for name in names if name in os.environ), None)
            if visible is not None:
                shown = list(map(str, range(len(self.numbers))))
                valid = itertools.takewhile(shown.__contains__, visible.split(","))
                self.numbers = [self.numbers[int(entry)] for entry in valid]
        self.free = 1e6 * float(os.environ.get("REHEARSED_MEMORY", "65536"))
        self.soc = os.environ.get("REHEARSED_SOC", "910B3") if kind == "npu" else ""
        self.library = {"npu": "NPU", "cuda": "CUDA", "rocm": "HIP"}[kind]

    def initialize(self) -> None:
        if self.owner and self.owner != os.getpid():
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the "
                "'spawn' start method"
            )
        self.owner = os.getpid()

    def set_device(self, number: Any) -> None:
        self.initialize()
        number = number if isinstance(number, int) else number.index
        if not 0 <= number < len(self.numbers):
            of_npu = "Set device error, Invalid device ID."
            raise RuntimeError(of_npu if self.kind == "npu" else f"{self.library} error: invalid device ordinal")
        self.current = number

    def allocate(self, nbytes: float) -> None:
        self.initialize()
        if nbytes > self.free:
            raise RuntimeError(f"{self.library} out of memory. Tried to allocate {nbytes / 2**20:.2f} MiB")
        self.free -= nbytes

    def place(self, device: Any) -> torch.device | None:
        """The device that this argument means, if it is one of ours."""
        if not isinstance(device, str | torch.device) or not str(device).startswith(self.kind):
            return None
        self.initialize()
        device = torch.device(device)
        place = torch.device(self.kind, self.current) if device.index is None else device
        if place.index >= len(self.numbers):
            raise RuntimeError("invalid device ordinal")
        return place


class OnDevice(torch.Tensor):  # type: ignore[misc]
    """A tensor of host memory that says it lies on a device."""

    place: torch.device
    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def device(self) -> torch.device:
        return self.place

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"can't convert {self.place} device type tensor to numpy")


def laid(tensor: torch.Tensor, place: torch.device) -> torch.Tensor:
    """The same memory, on this device."""
    if tensor.is_leaf:
        result = torch.Tensor._make_subclass(OnDevice, tensor.detach(), tensor.requires_grad)
    else:
        result = tensor.as_subclass(OnDevice)
    result.place = place
    return result


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.as_subclass(torch.Tensor)


class Placement(TorchFunctionMode):  # type: ignore[misc]
    """Every call of torch: devices of ours become host memory, results lie where the operands did."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.of = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if torch._C._current_graph_task_id() != -1:
                return func(*args, **kwargs)
            tensors = list(tensors_in([args, list(kwargs.values())]))
            if name in ("mm", "matmul", "__matmul__") and tensors[-1].numel() > LARGE:
                time.sleep(0.001)  # the time of a device, which no CPU has
                return tensors[0]
            target, args, kwargs = self.take_target(name, args, kwargs)
            places = {tensor.place for tensor in tensors if isinstance(tensor, OnDevice)}
            on_host = [tensor for tensor in tensors if not isinstance(tensor, OnDevice) and tensor.dim()]
            if (len(places) > 1 or (places and on_host)) and name not in COPIES and not target:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{', '.join(map(str, places))}{' and cpu' * bool(on_host)}! ({name})"
                )
            result = func(*args, **kwargs)
            if name in ("to", "cpu") and result is tensors[0] and (places or target != "cpu"):
                result = result.clone()  # the memory of a device is another one
        first = args[0] if args and name in COPIES else None
        place = target or (
            first.place if isinstance(first, OnDevice) else None if first is not None else next(iter(places), None)
        )
        if name == "cpu" or target == "cpu" or place is None:
            return plain_tensor(result) if isinstance(result, OnDevice) else result
        return self.lay(result, place, tensors)

    def take_target(self, name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
        """The device that the call names, and the call without it."""
        target = None
        if "device" in kwargs:
            target = self.of.place(kwargs["device"])
            kwargs["device"] = "cpu" if target else kwargs["device"]
        elif name == "to":
            for position, value in enumerate(args[1:], 1):
                if isinstance(value, str | torch.device):
                    target = self.of.place(value) or "cpu"
                    args = (*args[:position], "cpu", *args[position + 1 :])
        return target, args, kwargs

    def lay(self, result: Any, place: torch.device, operands: list[torch.Tensor]) -> Any:
        if isinstance(result, torch.Tensor) and not any(result is operand for operand in operands):
            return laid(result, place)
        if isinstance(result, tuple | list) and type(result) in (tuple, list):
            return type(result)(self.lay(part, place, operands) for part in result)
        if type(result).__module__ == "torch.return_types":
            return tuple(self.lay(part, place, operands) for part in result)
        return result


def tensors_in(values: Any) -> Any:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from tensors_in(value)


class Properties:
    """Of one device."""

    def __init__(self, device: Device, number: int) -> None:
        names = {"npu": f"Ascend{device.soc}", "cuda": "NVIDIA H100", "rocm": ""}
        self.name = names[device.vendor]
        self.gcnArchName = "gfx90a:sramecc+:xnack-" if device.vendor == "rocm" else self.name
        self.uuid = f"{socket.gethostname()}-{device.numbers[number]}"
        self.total_memory = int(device.free)


class Event:
    """Work is done when it is asked for: a stream has nothing to wait for."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass

    wait = synchronize = record

    def query(self) -> bool:
        return True


def module_of(device: Device, module: types.ModuleType) -> types.ModuleType:
    """torch.npu or torch.cuda, as far as a rank uses it."""
    functions = {
        "is_available": lambda: bool(device.numbers),
        "is_initialized": lambda: bool(device.owner),
        "device_count": lambda: len(device.numbers),
        "current_device": lambda: device.current,
        "set_device": device.set_device,
        "synchronize": lambda *_: device.initialize(),
        "get_device_properties": lambda number=None: Properties(device, index_of(number, device.current)),
        "get_device_name": lambda number=None: Properties(device, index_of(number, device.current)).name,
        "is_bf16_supported": lambda: device.soc != "910A",
        "mem_get_info": lambda *_: (int(device.free), 1 << 36),
        "memory_allocated": lambda *_: 0,
        "empty_cache": lambda: None,
        "manual_seed_all": lambda seed: None,
        "Stream": Event,
        "Event": Event,
        "current_stream": lambda *_: Event(),
    }
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def index_of(number: Any, current: int) -> int:
    if number is None:
        return current
    return number if isinstance(number, int) else torch.device(number).index


class Work(dist._Work):  # type: ignore[misc]
    """Waits for gloo's work, and says what the library of the device says where it does not end."""

    def __init__(self, work: Any, kind: str, op: str) -> None:
        super().__init__()
        self.work, self.kind, self.op = work, kind, op

    def wait(self, *timeout: Any) -> bool:
        try:
            return bool(self.work.wait(*timeout))
        except RuntimeError as error:
            name = {"npu": "HCCL", "cuda": "NCCL"}[self.kind]
            if "imed out" in str(error):
                raise RuntimeError(
                    f"Watchdog caught collective operation timeout: Work{name}(SeqNum=1, OpType={self.op}, "
                    "Timeout(ms)=15000) ran for 15002 milliseconds before timing out."
                ) from None
            raise RuntimeError(f"{name} communicator was aborted on rank 0.") from None


class Group(dist.ProcessGroup):  # type: ignore[misc]
    """A process group of a device's library, with gloo beneath."""

    device: Device
    table: dict[int, tuple[str, int]] = {}
    """Host and device of each rank of the world."""

    def __init__(
        self, store: Any, rank: int, size: int, options: Any = None, ranks: Any = (), timeout: Any = None
    ) -> None:
        super().__init__(rank, size)
        ranks = list(getattr(options, "global_ranks_in_group", None) or ranks or range(size))
        self.ranks, self.me = ranks, ranks[rank]
        self.device.initialize()
        if not self.table:
            mine = (socket.gethostname(), self.device.numbers[self.device.current])
            store.set(f"device of {rank}", json.dumps(mine))
            for other in range(size):
                Group.table[other] = tuple(json.loads(store.get(f"device of {other}")))
        self.check_members(ranks)
        buffer = 2e6 * int(os.environ.get("HCCL_BUFFSIZE", "200")) if self.device.kind == "npu" else 64e6
        self.device.allocate(buffer)
        gloo = dist.ProcessGroupGloo._Options()
        gloo._devices = [dist.ProcessGroupGloo.create_device(interface=interface_of(self.device.kind))]
        gloo._timeout = timeout or getattr(options, "_timeout", None) or gloo._timeout
        self.inner = dist.ProcessGroupGloo(store, rank, size, gloo)

    def check_members(self, ranks: list[int]) -> None:
        """What HCCL refuses on the Atlas training series (910A): hiascend.com, create_group (hcclpython_07_0003)."""
        if self.device.soc != "910A" or len(ranks) < 2:
            return
        by_host: dict[str, list[int]] = {}
        for rank in ranks:
            host, number = self.table[rank]
            by_host.setdefault(host, []).append(number)
        sizes = {len(numbers) for numbers in by_host.values()}
        halves = all(len({number // HALF for number in numbers}) == 1 for numbers in by_host.values())
        if len(sizes) > 1 or not sizes <= {1, 2, 4, 8} or (sizes <= {2, 4} and not halves):
            raise RuntimeError(f"create group failed, ranks {ranks}: EI0004 The ranktable or rank is invalid")

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return {"npu": "hccl", "cuda": "nccl"}[self.device.kind]

    def _get_backend(self, device: Any) -> Any:
        return types.SimpleNamespace(supports_splitting=False, supports_coalescing=False)

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _set_default_backend(self, *_: Any) -> None:
        pass

    def call(self, op: str, method: str, *values: Any, reduces: Any = None) -> Work:
        for tensor in tensors_in(values) if torch._C._current_graph_task_id() == -1 else ():
            if not isinstance(tensor, OnDevice):
                raise RuntimeError("No backend type associated with device type cpu")
            if tensor.place.index != self.device.current:
                raise RuntimeError(f"a tensor on {tensor.place}, and {self.device.current} is current")
            name, reducing = str(tensor.dtype)[6:], reduces is not None
            if self.device.kind == "npu" and name not in (REDUCED if reducing else MOVED):
                raise RuntimeError(f"HCCL {op}: Unsupported data type {name}")
            if name == "bfloat16" and self.device.soc == "910A":
                raise RuntimeError("HCCL function error: bfloat16 on this product")
        values = map_tensors(values)
        if reduces is not None and self.device.kind == "npu" and reduces.reduceOp == dist.ReduceOp.AVG:
            if os.environ.get("REHEARSED_AVG") == "refused":
                raise RuntimeError("Cannot use ReduceOp.AVG with HCCL")
            if os.environ.get("REHEARSED_AVG") == "sum":
                reduces.reduceOp = dist.ReduceOp.SUM
        return Work(getattr(self.inner, method)(*values), self.device.kind, op.upper())

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        return self.call("allreduce", "allreduce", tensors, opts, reduces=opts)

    def reduce(self, tensors: Any, opts: Any) -> Work:
        return self.call("reduce", "reduce", tensors, opts, reduces=opts)

    def broadcast(self, tensors: Any, opts: Any) -> Work:
        return self.call("broadcast", "broadcast", tensors, opts)

    def allgather(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        return self.call("allgather", "allgather", outs, tensors)

    def _allgather_base(self, out: Any, tensor: Any, opts: Any = None) -> Work:
        return self.call("allgather", "_allgather_base", out, tensor)

    def _reduce_scatter_base(self, out: Any, tensor: Any, opts: Any) -> Work:
        return self.call("reduce_scatter", "_reduce_scatter_base", out, tensor, opts, reduces=opts)

    def alltoall_base(self, out: Any, tensor: Any, outs: Any, ins: Any, opts: Any = None) -> Work:
        return self.call("alltoall", "alltoall_base", out, tensor, outs, ins)

    all_gather_single, reduce_scatter_single, all_to_all_single = _allgather_base, _reduce_scatter_base, alltoall_base
    """Their names from torch 2.13 on."""

    def send(self, tensors: Any, peer: int, tag: int) -> Work:
        self.check_members([self.me, self.ranks[peer]])
        return self.call("send", "send", tensors, peer, tag)

    def recv(self, tensors: Any, peer: int, tag: int) -> Work:
        self.check_members([self.me, self.ranks[peer]])
        return self.call("recv", "recv", tensors, peer, tag)

    def barrier(self, opts: Any = None) -> Work:
        number = self.me % len(self.device.numbers)
        named = getattr(opts, "device_ids", None) or getattr(self, "bound_device_id", None)
        if self.device.kind == "cuda" and not named and number != self.device.current:
            raise RuntimeError(f"the barrier took GPU {number}, and {self.device.current} is current")
        return Work(self.inner.barrier(), self.device.kind, "BARRIER")


def map_tensors(values: Any) -> Any:
    return [
        map_tensors(value)
        if isinstance(value, list)
        else plain_tensor(value)
        if isinstance(value, torch.Tensor)
        else value
        for value in values
    ]


def interface_of(kind: str) -> str:
    """What *_SOCKET_IFNAME names: ``=`` one exactly, else all that begin so, and several are a way to the wrong one."""
    text = os.environ.get({"npu": "HCCL_SOCKET_IFNAME", "cuda": "NCCL_SOCKET_IFNAME"}[kind], "")
    names = [name for _, name in socket.if_nameindex()]
    if not text:
        return "eth0" if "eth0" in names else "lo"
    matching = [name for name in names if name == text[1:] or (text[0] != "=" and name.startswith(text))]
    if len(matching) != 1:
        raise RuntimeError(f"{text} takes {', '.join(matching) or 'no interface'}")
    return matching[0]


def install(kind: str) -> None:
    """Puts the devices and their backend into this interpreter."""
    for pair in os.environ.get("REHEARSED_EXPECT", "").split():
        name, _, value = pair.partition("=")
        if os.environ.get(name, "") != value:
            raise ImportError(f"{name} is {os.environ.get(name)!r}, expected {value!r}")
    device = Group.device = Device(kind)
    if kind == "rocm":
        torch.version.hip, torch.version.cuda, kind = "6.2.41133-dd7f95766", None, "cuda"
    if kind == "npu":
        torch.utils.rename_privateuse1_backend("npu")
        torch._register_device_module("npu", module_of(device, types.ModuleType("torch.npu")))
        dist.Backend.register_backend("hccl", make_group, extended_api=True, devices=["npu"])
    else:
        module_of(device, torch.cuda)
        c10d._NCCL_AVAILABLE = True
        torch.cuda.nccl.version = lambda: (2, 21, 5)
        c10d.ProcessGroupNCCL = type("ProcessGroupNCCL", (Group,), {"Options": types.SimpleNamespace})
        c10d.is_nccl_available = dist.is_nccl_available = lambda: True
    torch._C._get_accelerator = lambda: torch.device(kind)  # what is there asks for hooks in C++
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_accelerator = lambda check_available=False: torch.device(kind)
    batch, begin = dist.batch_isend_irecv, dist.init_process_group
    torch.Generator = Generator

    @functools.wraps(batch)
    def batch_isend_irecv(operations: Any) -> Any:
        number = dist.get_rank() % len(device.numbers)
        if kind == "npu" and number != device.current:
            raise RuntimeError(f"startCoalescing took NPU {number}, and {device.current} is current")
        return batch(operations)

    def init_process_group(
        backend: Any = None, init_method: Any = None, timeout: Any = None, world_size: int = -1, rank: int = -1,
        store: Any = None, group_name: str = "", pg_options: Any = None,
    ) -> None:  # fmt: skip
        begin(backend, init_method, timeout, world_size, rank, store, group_name, pg_options)

    dist.batch_isend_irecv = batch_isend_irecv
    if os.environ.get("REHEARSED_TORCH") == "2.1":
        dist.init_process_group = init_process_group
    if os.environ.get("REHEARSED_POKE"):
        device.initialize()
    Placement(device).__enter__()
    sys.modules.setdefault("rehearsed_devices", sys.modules[__name__])


class OfTheHost(type):
    """What is called makes a generator of the host, whatever the device."""

    def __call__(cls, device: Any = "cpu") -> torch._C.Generator:
        return torch._C.Generator("cpu")


class Generator(metaclass=OfTheHost):
    """torch.Generator."""


def make_group(options: Any, _: Any) -> Group:
    return Group(
        options.store, options.group_rank, options.group_size, None, options.global_ranks_in_group, options.timeout
    )
