"""What strikes a rank of a smoke run from outside: a sitecustomize module that counts calls of all_reduce.

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
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
plain_import = builtins.__import__
wrapped: list[bool] = []


def strike(fault: dict[str, Any]) -> None:
    with open(os.path.join(FOLDER, "struck"), "a") as file:
        file.write(fault["kind"] + "\n")


def wrap(dist: Any, fault: dict[str, Any]) -> None:
    plain_all_reduce, calls = dist.all_reduce, [0]

    def all_reduce(tensor: Any, *rest: Any, **more: Any) -> Any:
        if dist.get_rank() not in fault["ranks"]:
            return plain_all_reduce(tensor, *rest, **more)
        calls[0] += 1
        if calls[0] < fault["call"] or (calls[0] - fault["call"]) % fault["every"]:
            return plain_all_reduce(tensor, *rest, **more)
        strike(fault)
        return act(plain_all_reduce, fault, tensor, rest, more)

    dist.all_reduce = all_reduce


def act(baseline: Any, fault: dict[str, Any], tensor: Any, rest: tuple[Any, ...], more: dict[str, Any]) -> Any:
    kind = fault["kind"]
    if kind == "skip":
        return None
    if kind == "signal":
        os.kill(os.getpid(), getattr(signal, fault["signal"]))
    if kind == "command":
        subprocess.call(["sh", "-c", fault["command"].replace("PID", str(os.getpid()))])
    if kind == "late":
        time.sleep(fault["seconds"])
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
    if kind == "wrong":
        tensor.mul_(2)
    return result


def importing(name: str, *rest: Any, **more: Any) -> Any:
    module = plain_import(name, *rest, **more)
    dist = sys.modules.get("torch.distributed")
    if dist is not None and hasattr(dist, "all_reduce") and hasattr(dist, "new_group") and not wrapped:
        # Imports that are under way come here as well, one inside of the other: it is wrapped once.
        wrapped.append(True)
        builtins.__import__ = plain_import
        with open(os.path.join(FOLDER, "fault.json")) as file:
            wrap(dist, json.load(file))
    return module


if os.path.exists(os.path.join(FOLDER, "fault.json")):
    builtins.__import__ = importing
