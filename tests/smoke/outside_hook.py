"""What strikes a rank of a smoke run from outside: a sitecustomize module that counts calls.

Of all_reduce, or of what the kind of fault spoils.

It is copied to one host, beside ``fault.json``. At the call that is named there it writes the file ``struck`` and does
what ``kind`` says; torch and the program of the ranks are as they are.
"""

import builtins
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
plain_import = builtins.__import__
wrapped: list[bool] = []
kept: dict[Any, Any] = {}


def strike(fault: dict[str, Any]) -> None:
    with open(os.path.join(FOLDER, "struck"), "a") as file:
        file.write(fault["kind"] + "\n")


def wrap(dist: Any, fault: dict[str, Any]) -> None:
    """Replaces the function that the fault spoils."""
    torch = sys.modules["torch"]
    places: dict[str, tuple[Any, str]] = {"garbage": (dist, "batch_isend_irecv"), "layernorm": (torch, "layer_norm")}
    owners = {"layer_norm": torch, "__matmul__": torch.Tensor, "log_softmax": torch.Tensor, "sqrt": torch.Tensor}
    named = fault.get("function", "all_reduce")
    place, name = places.get(fault["kind"], (owners.get(named, dist), named))
    as_before, calls = getattr(place, name), [0]

    def struck(first: Any, *rest: Any, **more: Any) -> Any:
        if (more["rank"] if named == "init_process_group" else dist.get_rank()) not in fault["ranks"]:
            return as_before(first, *rest, **more)
        if named == "reduce" and rest[:1] != (dist.get_rank(),):
            return as_before(first, *rest, **more)  # what others hold afterwards has no meaning
        calls[0] += 1
        if calls[0] < fault["call"] or (calls[0] - fault["call"]) % fault["every"]:
            return as_before(first, *rest, **more)
        strike(fault)
        spoil: Callable[..., Any] = KINDS.get(fault["kind"], act)
        return spoil(as_before, fault, first, rest, more)

    setattr(place, name, struck)


def act(baseline: Any, fault: dict[str, Any], tensor: Any, rest: tuple[Any, ...], more: dict[str, Any]) -> Any:
    kind = fault["kind"]
    if kind == "skip":
        return None
    if kind == "unsummed":
        mine = tensor.clone()
        baseline(tensor, *rest, **more)
        return tensor.copy_(mine)
    if kind in DEEDS:
        DEEDS[kind](fault)
    result = baseline(tensor, *rest, **more)
    if kind == "twice":
        baseline(tensor.clone(), *rest, **more)
    if kind == "bitflip":
        flat = tensor.view(-1)
        place = 7 % flat.numel()
        if tensor.is_floating_point():
            flat[place] = -2.0 * flat[place] + 1.0
        else:
            flat[place] = flat[place] ^ 4 if flat.dtype.is_signed else flat[place] + 1
    if kind == "wrong" or (kind == "scaled" and tensor.is_floating_point()):
        tensor.mul_(fault.get("factor", 2))
    return result


def fail(fault: dict[str, Any]) -> None:
    raise getattr(builtins, fault["error"])(fault["text"])


def spin(_: Any) -> None:
    while True:
        pass


def print_much(fault: dict[str, Any]) -> None:
    for _ in range(fault["megabytes"]):
        sys.stdout.write("x" * ((1 << 20) - 1) + "\n")


def hoard(fault: dict[str, Any]) -> None:
    """Takes more memory than its control group has by now."""
    DEEDS["command"](fault)
    bytearray(os.urandom(1 << 20)) * 300


DEEDS: "dict[str, Callable[[dict[str, Any]], object]]" = {
    "signal": lambda fault: os.kill(os.getpid(), getattr(signal, fault["signal"])),
    "command": lambda fault: subprocess.call(["sh", "-c", fault["command"].replace("PID", str(os.getpid()))]),
    "hoard": hoard,
    "late": lambda fault: time.sleep(fault["seconds"]),
    "prints": print_much,
    "exit": lambda _: os._exit(0),
    "spin": spin,
    "raises": fail,
    "program": lambda fault: exec(fault["program"], dict(globals())),
}
"""What is done before the call."""


def spoil_received(baseline: Any, fault: dict[str, Any], operations: Any, rest: Any, more: Any) -> Any:
    """All but the single elements by which two ranks agree on the number of messages."""
    for work in baseline(operations, *rest, **more):
        work.wait()
    for operation in operations:
        if operation.op.__name__ == "irecv" and operation.tensor.numel() > 1:
            operation.tensor.add_(5)
    return []


def scale(baseline: Any, fault: dict[str, Any], tensor: Any, rest: Any, more: Any) -> Any:
    return baseline(tensor, *rest, **more) * fault.get("factor", 1.05)


def corrupt(baseline: Any, fault: dict[str, Any], first: Any, rest: Any, more: Any) -> Any:
    """What a collective brings, or what a product and its like compute, is changed in one element, byte, row or all."""
    if fault.get("given"):  # in the memory of the rank that sends it, for good
        given = rest[0] if fault["function"].endswith("_single") else first
        given.copy_(changed(given.clone(), fault))
        return baseline(first, *rest, **more)
    result = baseline(first, *rest, **more)
    if fault["function"] in ("layer_norm", "__matmul__", "log_softmax", "sqrt"):
        return result + (changed(result.detach().clone(), fault) - result.detach())
    if hasattr(result, "wait"):
        result.wait()
    if fault.get("apart"):
        fault = {**fault, "place": fault["place"] + 389 * sys.modules["torch"].distributed.get_rank()}
    target = first[fault["place"] % len(first)] if isinstance(first, list) else first
    target.copy_(changed(target.clone(), fault))
    return result


def spoil_method(owner: Any, fault: dict[str, Any]) -> None:
    """Of a class of the ranks' program: what it holds before or behind a call of a method, or the call's result."""
    as_before, name, calls = getattr(owner, fault["method"]), fault["of"], [0]

    def struck(self: Any, *rest: Any, **more: Any) -> Any:
        dist = sys.modules["torch.distributed"]
        calls[0] += dist.is_initialized() and dist.get_rank() in fault["ranks"] and getattr(self, "comm", 1) is not None
        turn = calls[0] - fault["call"]
        strikes = turn >= 0 and turn % fault["every"] == 0
        if strikes and fault["when"] == "before":
            strike(fault)
            held = getattr(self, name)
            held.copy_(changed(held.clone(), fault))
        result = as_before(self, *rest, **more)
        if strikes and fault["when"] == "behind":
            strike(fault)
            if name == "result":
                return result + (changed(result.detach().clone(), fault) - result.detach())
            held = getattr(self, name)
            held.copy_(changed(held.clone(), fault))
        return result

    setattr(owner, fault["method"], struck)


def leave_stale(flat: Any, _: int) -> None:
    """What the call before brought, of as many elements."""
    mine, key = flat.clone(), (len(flat), flat.dtype)
    flat.copy_(kept.get(key, mine))
    kept[key] = mine


def reverse_bytes(flat: Any, place: int) -> None:
    raw = flat[place : place + 16].clone().view(sys.modules["torch"].uint8).view(-1, flat.element_size())
    flat[place : place + 16] = raw.flip(1).contiguous().view(-1).view(flat.dtype)


def transpose(flat: Any, _: int) -> None:
    side = int(len(flat) ** 0.5)
    flat[: side * side] = flat[: side * side].view(side, side).t().reshape(-1).clone()


def shorten(flat: Any, _: int) -> None:
    """To ten bits of a number's mantissa."""
    torch = sys.modules["torch"]
    if flat.dtype == torch.float32:
        flat.copy_((flat.view(torch.int32) & -8192).view(torch.float32))


DAMAGES: "dict[str, Callable[[Any, int], object]]" = {
    "cut": lambda flat, _: flat[3 * len(flat) // 4 :].zero_(),
    "half twice": lambda flat, _: flat[len(flat) // 2 :].copy_(flat[: len(flat) - len(flat) // 2].clone()),
    "negated": lambda flat, _: flat.copy_(-flat if flat.dtype.is_signed else flat + 1),
    "stale": leave_stale,
    "exponent": lambda flat, place: flat[place].copy_(flat[place] * 2),
    "reversed": reverse_bytes,
    "transposed": transpose,
    "clipped": lambda flat, _: flat.clamp_(max=flat.max() // 4),
    "short": shorten,
}


def changed(tensor: Any, fault: dict[str, Any]) -> Any:
    torch, flat = sys.modules["torch"], tensor.reshape(-1)
    damage, place = fault["how"], fault["place"] % max(1, flat.numel())
    if damage == "shifted" and torch.equal(torch.roll(flat, 1), flat):
        damage = "element"  # of one number, or of equal ones: a shift would change nothing
    if damage == "bit":
        raw = flat.view(torch.uint8)
        raw[fault["place"] % len(raw)] ^= 1 << fault["bit"]
    elif damage == "byte":
        raw = flat.view(torch.uint8)
        raw[fault["place"] % len(raw)] ^= 0x55
    elif damage == "element":
        flat[place] = flat[place] * 2 + 3 if flat.dtype != torch.bool else ~flat[place]
    elif damage == "row":
        flat[place : place + 16] = 0 if flat[place : place + 16].any() else 1
    elif damage == "shifted":
        flat.copy_(torch.roll(flat.clone(), 1))
    elif damage == "swapped":
        half = len(flat) // 2
        flat.copy_(torch.cat([flat[half:], flat[:half]]))
    elif damage == "scaled":
        flat.copy_((flat * 1.01).to(flat.dtype) if flat.is_floating_point() else flat + 1)
    elif damage == "rounded":
        flat.copy_(flat.to(torch.bfloat16).to(flat.dtype) if flat.is_floating_point() else flat + 1)
    elif damage in DAMAGES:
        DAMAGES[damage](flat, place)
    elif damage == "nan":
        flat[place] = float("nan") if flat.is_floating_point() else flat[place] + 1
    return tensor


KINDS: "dict[str, Callable[..., Any]]" = {"garbage": spoil_received, "layernorm": scale, "corrupt": corrupt}
"""What is done at the call of another function than all_reduce."""


def strike_child(dist: Any, fault: dict[str, Any]) -> None:
    """Of a rank: a worker process of its loader."""
    if dist.is_initialized() and dist.get_rank() in fault["ranks"]:
        strike(fault)
        DEEDS[fault["kind"]](fault)


def importing(name: str, *rest: Any, **more: Any) -> Any:
    module = plain_import(name, *rest, **more)
    dist = sys.modules.get("torch.distributed")
    if dist is not None and hasattr(dist, "all_reduce") and hasattr(dist, "new_group") and not wrapped:
        # Imports that are under way come here as well, one inside of the other: it is wrapped once.
        wrapped.append(True)
        builtins.__import__ = plain_import
        with open(os.path.join(FOLDER, "fault.json")) as file:
            fault = json.load(file)
        if fault.get("child"):
            os.register_at_fork(after_in_child=lambda: strike_child(dist, fault))
        else:
            wrap(dist, fault)
    return module


if os.path.exists(os.path.join(FOLDER, "fault.json")):
    builtins.__import__ = importing
