"""Kinds of faults that come two at a time, on two hosts or on one, and some that come alone."""

from __future__ import annotations

from typing import Any

from tests.smoke.outside_cases import (
    DIED,
    FAILED_LOADER,
    FULL_SHM,
    HANGS,
    HELD_BACK,
    JOIN,
    NETWORK,
    NO_DATA,
    SLOW,
    SLOWED,
    START,
    STOPPED,
    VALUES,
    Case,
    at_import,
    command,
)
from tests.smoke.outside_invented import program

MISCOMPUTED = (*VALUES, "smoke-reference-differs")
SLOW_HOST = ("smoke-host-slow", "smoke-link-slow", *SLOWED, *NETWORK)
SIBLING = "other=$(pgrep -P $(ps -o ppid= -p PID) | grep -vx PID | head -1); "
"""Another rank of the same host, where there is one."""


def within(function: str, **fault: Any) -> dict[str, Any]:
    """At a call of another function than all_reduce."""
    return {"function": function, **fault}


KILLED = Case("", DIED, command("kill -KILL PID"))
HALTED = Case("", STOPPED, command("kill -STOP PID"))
ALONE: tuple[Case, ...] = (
    Case("stopped and killed 3 s later", (*STOPPED, *DIED), command("(sleep 3; kill -KILL PID) & kill -STOP PID")),
    Case("a broadcast left out", (*MISCOMPUTED, *HANGS), within("broadcast", kind="skip"), early=True),
    Case(
        "late for ever at reduce_scatter", HANGS, within("reduce_scatter_single", kind="late", seconds=900), early=True
    ),
    Case("spins at all_to_all", HANGS, within("all_to_all_single", kind="spin"), early=True),
    Case("tensors on no device", (*DIED, *MISCOMPUTED), program("import torch; torch.set_default_device('meta')")),
    Case(
        "autocast to bfloat16",
        (*MISCOMPUTED, *DIED),
        program("import torch; torch.autocast('cpu', dtype=torch.bfloat16).__enter__()"),
        early=True,
        must=False,
    ),
    Case(
        "fork is refused",
        (*FAILED_LOADER,),
        program("def refuse(): raise BlockingIOError(11, 'Resource temporarily unavailable')\nos.fork = refuse"),
    ),
    Case("TMPDIR is not there", FAILED_LOADER, wrapper="touch MARK; export TMPDIR=/nowhere", must=False),
    Case("deterministic algorithms", (), program("import torch; torch.use_deterministic_algorithms(True)")),
    Case("200 MB of data", (*START, *DIED, *JOIN), wrapper="touch MARK; ulimit -d 200000"),
)
AT_ONCE: tuple[Case, ...] = (
    Case("killed here and stopped there", DIED, KILLED.fault, beside=HALTED),
    Case("killed here and there", DIED, KILLED.fault, beside=KILLED),
    Case(
        "no data here and sleeps there",
        NETWORK,
        command(NO_DATA),
        beside=Case("", HANGS, {"kind": "late", "seconds": 900}),
    ),
    Case(
        "wrong bits here and there",
        MISCOMPUTED,
        {"kind": "bitflip"},
        beside=Case("", MISCOMPUTED, {"kind": "bitflip"}),
        early=True,
    ),
    Case(
        "no torch here and hangs at import there",
        START,
        wrapper='touch MARK; exec /usr/bin/python3 -I "$@"',
        beside=Case("", START, imports=at_import("time.sleep(900)")),
    ),
    Case(
        "loader children killed here and stopped there",
        FAILED_LOADER,
        {"kind": "signal", "signal": "SIGKILL", "child": True},
        beside=Case("", FAILED_LOADER, {"kind": "signal", "signal": "SIGSTOP", "child": True}),
    ),
    Case("2 Mbit/s here and killed there", SLOW_HOST, before=SLOW, beside=KILLED),
    Case(
        "nan here and a fifth of a CPU there",
        MISCOMPUTED,
        within("all_reduce", kind="corrupt", how="nan", place=3),
        beside=Case("", SLOWED, before=HELD_BACK),
        early=True,
    ),
    Case(
        "full /dev/shm here and products 1 % off there",
        (*FAILED_LOADER, *START),
        before=FULL_SHM,
        beside=Case("", MISCOMPUTED, within("__matmul__", kind="corrupt", how="scaled", place=0, every=1)),
        early=True,
    ),
    Case(
        "sleeps while another of the host is killed",
        (*DIED, *HANGS),
        command(SIBLING + "(sleep 1; kill -KILL $other) & sleep 900"),
    ),
    Case(
        "wrong bits and 20 ms a send",
        (*MISCOMPUTED, *SLOW_HOST),
        {"kind": "bitflip"},
        environ={"OUTSIDE_DELAY_MS": "20"},
        early=True,
    ),
)
PAIRS: tuple[Case, ...] = (*ALONE, *AT_ONCE)
