"""The same faults beside other tools: ``python -m tests.watch.side_by_side [FAULT[:TOOL,...]...]``.

Each tool starts the program `replicas` with three gloo ranks of the interpreter ``DOCTOR_SIDE_PYTHON``, where
dlrover 0.6.1 and nvidia-resiliency-ext 0.4.1 are installed beside torch. The program prints a line when the fault
begins; a row says what the tool wrote first of what it looks for, and how many seconds after that line.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.watch.data_campaign import source_of
from tests.watch.data_faults import with_patch
from tests.watch.job_faults import FAULTS

PYTHON = Path(os.environ.get("DOCTOR_SIDE_PYTHON", sys.executable))
WORLD, BAD, AT = 3, 1, 3
LIMIT = 120.0
"""Seconds after the fault, in which a tool says something or does not."""
TIMEOUT = 10
"""Seconds that each tool is given as its limit, where it has one."""
SLOWLY = "import time; time.sleep(0.2)"
BARRIER = f"import datetime; dist.monitored_barrier(timeout=datetime.timedelta(seconds={TIMEOUT}), wait_all_ranks=True)"
HEARTBEAT = (
    "if 'monitor' not in globals():\n"
    "    from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient\n"
    "    globals()['monitor'] = RankMonitorClient()\n"
    "    monitor.init_workload_monitoring()\n"
    "monitor.send_heartbeat()"
)
DUMPS = (
    "import threading, time\n"
    "globals()['step_began'] = time.monotonic()\n"
    "if 'dumper' not in globals():\n"
    "    from torch._C._distributed_c10d import _dump_fr_trace\n"
    "    def dump():\n"
    f"        while time.monotonic() - step_began < {TIMEOUT}: time.sleep(0.1)\n"
    "        open(os.environ['DUMPS'] + f'/rank_{rank}', 'wb').write(_dump_fr_trace())\n"
    "    globals()['dumper'] = threading.Thread(target=dump, daemon=True)\n"
    "    dumper.start()"
)


class Tool(NamedTuple):
    """One way to start the program."""

    command: tuple[str, ...]
    """Before the program's file."""
    patch: str
    """What each step of the program must call for it."""
    answer: str
    """A regular expression: what it writes when it has found something."""
    environ: tuple[tuple[str, str], ...] = ()


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD))
TOOLS = {
    "torch alone": Tool(TORCHRUN, "", r"Error|Signal|exitcode"),
    "monitored_barrier": Tool(TORCHRUN, BARRIER, r"RuntimeError|Error|exitcode"),
    "torchfrtrace": Tool(TORCHRUN, DUMPS, r"$^", (("TORCH_FR_BUFFER_SIZE", "2000"),)),
    "dlrover": Tool(
        ("-m", "dlrover.trainer.torch.main", "--standalone", "--nproc_per_node", str(WORLD), "--max-restarts", "0"),
        "",
        r"(?i)hang|Error|exitcode|signal",
    ),
    "resiliency-ext": Tool(
        (
            "-m", "nvidia_resiliency_ext.fault_tolerance.launcher", "--standalone", "--nproc-per-node", str(WORLD),
            "--max-restarts", "0", "--ft-initial-rank-heartbeat-timeout", "60",
            "--ft-rank-heartbeat-timeout", str(TIMEOUT),
        ),
        HEARTBEAT,
        r"(?i)hearbeat|heartbeat.*(?:timeout|not received)|did not get|Error|exitcode|signal",
    ),
    "doctor watch": Tool(
        ("-m", "doctor", "watch", "--patience", str(TIMEOUT), "--", str(PYTHON), *TORCHRUN), "", r"\bFAIL\b|smoke-"
    ),
}  # fmt: skip


def program(fault: str, tool: Tool, folder: str) -> Path:
    """The program with the fault, and with what the tool needs in it."""
    text = source_of("replicas").replace("seconds=60", f"seconds={TIMEOUT * 3}")
    patch = FAULTS[fault].patch
    begins = f"if step == {AT} and rank == {BAD}: print('FAULT BEGINS', flush=True)\n"
    if tool.patch == BARRIER:  # as a user would place it: behind what may go wrong
        text = with_patch(text, "# step", tool.patch)
    text = with_patch(text, "# step", begins + patch, bad=BAD, pair=2, at=AT)
    text = with_patch(text, "# step", "\n".join(filter(None, (SLOWLY, tool.patch if tool.patch != BARRIER else ""))))
    path = Path(folder, "train.py")
    path.write_text(text)
    return path


def measure(name: str, fault: str) -> str:
    """A row: seconds after the fault, and the first lines that the tool wrote."""
    tool = TOOLS[name]
    with tempfile.TemporaryDirectory() as folder:
        environ = {
            **os.environ,
            **dict(tool.environ),
            "DUMPS": folder,
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        interpreter = sys.executable if name == "doctor watch" else str(PYTHON)
        process = subprocess.Popen(
            [interpreter, *tool.command, str(program(fault, tool, folder))], env=environ, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, errors="replace",
        )  # fmt: skip
        lines: list[tuple[float, str]] = []
        reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
        reader.start()
        answer = _await_answer(process, lines, tool, lambda: len(list(Path(folder).glob("rank_*"))) == WORLD)
        if name == "torchfrtrace":
            answer = _analyze(folder, lines)
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(process.pid)
            for child in [*top.children(recursive=True), top]:  # launchers give their workers sessions of their own
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        process.wait()
        reader.join(5)
    return answer


def _read(process: subprocess.Popen[str], lines: list[tuple[float, str]]) -> None:
    assert process.stdout
    for line in process.stdout:
        lines.append((time.monotonic(), line.rstrip()))


def _began(lines: list[tuple[float, str]]) -> float:
    return next((at for at, line in list(lines) if "FAULT BEGINS" in line), 0.0)


def _await_answer(
    process: subprocess.Popen[str], lines: list[tuple[float, str]], tool: Tool, dumped: Callable[[], bool]
) -> str:
    start = time.monotonic()
    while True:
        began = _began(lines)
        after = [(at - began, line) for at, line in list(lines) if began and at > began]
        names = [f"{seconds:.0f} s: {line.strip()[:150]}" for seconds, line in after if re.search(tool.answer, line)]
        now = time.monotonic()
        ended = process.poll() is not None or dumped()
        if ended or (names and now - began > float(names[0].split()[0]) + 3) or now - (began or start + LIMIT) > LIMIT:
            if not began:
                return "did not get to the fault: " + " | ".join(line for _, line in lines[-3:])[-400:]
            return "\n    ".join(names[:4]) or f"nothing in {now - began:.0f} s{' (ended)' * ended}"
        time.sleep(0.1)


def _analyze(folder: str, lines: list[tuple[float, str]]) -> str:
    began = _began(lines)
    command = [str(PYTHON), "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "rank_"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = (done.stdout + done.stderr).strip().splitlines()
    return f"{time.monotonic() - began:.0f} s: " + "\n    ".join(line[:200] for line in text[-8:])


def main() -> None:
    """Prints a block for each fault and tool."""
    for word in sys.argv[1:] or ["sleep", "collective left out", "killed"]:
        fault, _, tools = word.partition(":")
        for name in tools.split(",") if tools else TOOLS:
            print(f"{fault} | {name}\n    {measure(name, fault)}", flush=True)


if __name__ == "__main__":
    main()
