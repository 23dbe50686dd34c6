"""Runs a user's program on several gloo ranks: its libraries are imported once, then a process is forked for each rank.

A run is alone, or the ranks of a command that `doctor watch` has started: then the hook is loaded into each rank from
the command's environment, as an interpreter would load it, and the ranks end as under torchrun.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
import types
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.readable import readable

PROGRAMS = Path(__file__).parent / "programs"
KEPT: list[dict[str, Any]] = []
"""The programs' objects, to the end of the process: gloo's destructor joins, with the interpreter's lock held, a thread
that may be waiting for that lock (torch 2.13)."""
HOOK = Path(__file__).parents[2] / "doctor" / "watch" / "hook" / "data_hooks.py"


def run_rank(source: str, rank: int, world: int, port: int, folder: str, variables: dict[str, str]) -> dict[str, Any]:
    """One rank in this process: the hook as an interpreter would load it, then the program."""
    import torch

    torch.set_num_threads(1)
    os.environ.update(variables)
    if "GROUP_SECONDS" in variables:
        from torch.distributed import distributed_c10d

        distributed_c10d.default_pg_timeout = timedelta(seconds=float(variables["GROUP_SECONDS"]))
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        LOCAL_WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    random.seed(0)
    torch.manual_seed(0)
    if folder:
        os.environ["DOCTOR_WATCH_PROBES"] = folder
        os.environ.setdefault("DOCTOR_WATCH_DATA", "6,0")
        spec = importlib.util.spec_from_file_location("_hooks", HOOK)
        assert spec and spec.loader
        hooks = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(hooks)
        assert hooks.install(torch)
    names: dict[str, Any] = {"__name__": "__main__"}
    KEPT.append(names)
    exec(compile(source, "program.py", "exec"), names)
    states = [repr(random.getstate()), str(torch.get_rng_state().tolist())]
    return {
        "losses": [float(loss).hex() for loss in names["losses"]],
        "result": zlib.crc32(bytes(names["result"].contiguous().view(torch.uint8).tolist())),
        "random": zlib.crc32("".join(states).encode()),
    }


def load_hook() -> None:
    """What ``sitecustomize`` does in an interpreter that starts with this environment."""
    from torch.distributed import distributed_c10d

    module = types.ModuleType("sitecustomize")
    sys.modules["sitecustomize"] = module
    path = os.path.join(os.environ["DOCTOR_WATCH"], "hook", "sitecustomize.py")
    exec(compile(Path(path).read_text(), path, "exec"), module.__dict__)
    finder = sys.meta_path.pop(0)  # waits for the import of what is imported already
    then = finder.functions["torch.distributed.distributed_c10d"]  # type: ignore[attr-defined]
    names = ("init_process_group", "destroy_process_group")
    before = {name: getattr(distributed_c10d, name) for name in names}
    then(distributed_c10d)
    for imported in list(sys.modules.values()):
        for name in names:
            if vars(imported).get(name) is before[name] if isinstance(imported, types.ModuleType) else False:
                setattr(imported, name, getattr(distributed_c10d, name))


def fork_rank(run: dict[str, Any], rank: int, port: int, results: str) -> int:
    """Starts a rank, and returns its process id."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        atexit._clear()
        if "environ" in run:
            os.setsid()
            os.environ.clear()
            os.environ.update(run["environ"])
            log = os.open(os.path.join(results, f"{rank}.log"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            load_hook()
        result = run_rank(run["source"], rank, run["world"], port, run.get("folder", ""), run.get("variables", {}))
        Path(results, str(rank)).write_text(json.dumps(result))
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - the rank ends here
        sys.excepthook(*sys.exc_info())
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stderr.flush()
        hooks = sys.modules.get("_doctor_watch_hook.channel")
        if hooks:
            hooks._finish()
        os._exit(code)


def await_ends(pids: list[int], limit: float) -> list[int]:
    """The exit codes, in the manner of torchrun: when one fails, the others get SIGTERM, and SIGKILL in the end."""
    codes: dict[int, int] = {}
    began = time.monotonic()
    failed_at = 0.0
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes and (status := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(status[1])
        now = time.monotonic()
        first_failure = not failed_at and any(codes.values())
        if first_failure or now - began > limit or (failed_at and now - failed_at > 10):
            failed_at = failed_at or now
            for pid in set(pids) - set(codes):
                os.kill(pid, signal.SIGTERM if first_failure else signal.SIGKILL)
        time.sleep(0.05)
    return [codes[pid] for pid in pids]


def import_libraries(names: list[str]) -> None:
    """Imports what ranks would import one by one, what an optimizer's first step imports included."""
    import numpy  # noqa: F401
    import torch
    import torch._dynamo
    import torch.distributed.tensor
    import torch.utils.data

    for name in names:
        importlib.import_module(name)
    torch.set_num_threads(1)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 2)).sum().backward()
    optimizer.step()


def command_environ(path: str, limit: float) -> dict[str, str]:
    """What the command of `doctor watch` writes into a FIFO: its environment."""
    file = os.open(path, os.O_RDWR)
    data = b""
    while not data.endswith(b"\0.\n"):
        if not readable([file], limit):
            raise TimeoutError(path)
        data += os.read(file, 65536)
    os.close(file)
    return dict(entry.decode().split("=", 1) for entry in data.split(b"\0") if b"=" in entry)


def main() -> None:
    """Reads runs from stdin, one JSON object a line, and prints the results of their ranks."""
    answers = os.dup(1)
    os.dup2(2, 1)
    import_libraries(sys.argv[1:])
    open_files: list[int] = []
    """What a command has not read yet stays in its FIFO as long as it is open here."""
    for line in sys.stdin:
        run = json.loads(line)
        limit = run.get("limit", 300.0)
        if "command" in run:
            run["environ"] = command_environ(run["command"] + ".environ", limit)
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            port = reserved.getsockname()[1]
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as results:
            pids = [fork_rank(run, rank, port, results) for rank in range(run["world"])]
            codes = await_ends(pids, limit)
            texts = [Path(results, str(rank)) for rank in range(run["world"])]
            logs = [text.with_suffix(".log") for text in texts]
            answer = {
                "codes": codes,
                "ranks": [json.loads(text.read_text()) if text.exists() else None for text in texts],
                "limited": time.monotonic() - began > limit,
                "logs": [log.read_text("utf-8", "replace")[-3000:] if log.exists() else "" for log in logs],
            }
        if "command" in run:  # nobody reads where doctor has ended the command
            file = os.open(run["command"] + ".code", os.O_RDWR | os.O_NONBLOCK)
            code = next((code if code > 0 else 128 - code for code in codes if code), 0)
            os.write(file, b"%d\n" % code)
            open_files.append(file)
        os.write(answers, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main()
