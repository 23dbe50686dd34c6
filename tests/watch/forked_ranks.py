"""Runs a user's program on several gloo ranks: torch is imported once, then one process is forked for each rank."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import socket
import sys
import tempfile
import traceback
import zlib
from pathlib import Path
from typing import Any

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
    os.environ.update(
        RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        GLOO_SOCKET_IFNAME="lo",
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
        assert hooks.install(torch, None)
    names: dict[str, Any] = {"__name__": "__main__"}
    KEPT.append(names)
    exec(compile(source, "program.py", "exec"), names)
    states = [repr(random.getstate()), str(torch.get_rng_state().tolist())]
    return {
        "losses": [float(loss).hex() for loss in names["losses"]],
        "result": zlib.crc32(bytes(names["result"].contiguous().view(torch.uint8).tolist())),
        "random": zlib.crc32("".join(states).encode()),
    }


def main() -> None:
    """Reads runs from stdin, one JSON object a line, and prints the results of their ranks."""
    import numpy  # noqa: F401
    import torch
    import torch._dynamo  # what an optimizer imports is imported once, too
    import torch.distributed.tensor
    import torch.utils.data

    torch.set_num_threads(1)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.zeros(1, 2)).sum().backward()
    optimizer.step()
    for line in sys.stdin:
        run = json.loads(line)
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            port = reserved.getsockname()[1]
        children = []
        with tempfile.TemporaryDirectory() as results:
            for rank in range(run["world"]):
                pid = os.fork()
                if not pid:
                    code = 1
                    try:
                        result = run_rank(
                            run["source"], rank, run["world"], port, run.get("folder", ""), run.get("variables", {})
                        )
                        Path(results, str(rank)).write_text(json.dumps(result))
                        code = 0
                    except BaseException:  # noqa: BLE001 - the rank ends here
                        traceback.print_exc()
                    finally:
                        sys.stderr.flush()
                        hooks = sys.modules.get("_doctor_watch_hook.channel")
                        if hooks:
                            hooks._finish()
                        os._exit(code)
                children.append(pid)
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
            texts = [Path(results, str(rank)) for rank in range(run["world"])]
            answer = [json.loads(text.read_text()) if text.exists() else None for text in texts]
        print(json.dumps({"codes": codes, "ranks": answer}), flush=True)


if __name__ == "__main__":
    main()
