"""Runs the emulated npu-smi without a host: the state of one host of `npu_host` in a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from doctor.engine.fact import Fact, Output, Visit
from doctor.engine.record import HostRecord
from tests.hosts.npu import NPU_SMI, STATE, npu_host


def emulate(folder: Path, *facts: type[Fact], faults: dict[str, str] | None = None, **options: Any) -> HostRecord:
    """A record of the facts that npu-smi gives on a host made by ``npu_host(**options)``.

    faults: files of the state by their path in it, such as ``3/health``. The facts are those of `run` probes.
    """
    tools = folder / "bin"
    tools.mkdir(parents=True)
    files = npu_host(**options)["files"]
    state = {path.removeprefix(STATE + "/"): text for path, text in files.items() if path.startswith(STATE + "/")}
    for path, text in {**state, **(faults or {})}.items():
        file = folder / "state" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if isinstance(text, str) else text["text"])
    script = (
        files[NPU_SMI]["text"].replace(STATE, str(folder / "state")).replace("[ ! -r /dev/davinci_manager ]", "false")
    )
    (tools / "npu-smi").write_text(script.replace("/etc/ascend_install.info", str(folder / "install.info")))
    (folder / "install.info").write_text("Driver_Install_Status=complete\n")
    (tools / "npu-smi").chmod(0o755)
    environ = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    outputs = {}
    for fact in facts:
        done = subprocess.run(["sh", "-c", fact.probe.text], env=environ, capture_output=True, text=True, check=False)
        outputs[fact.__name__] = {"": Output(code=done.returncode, out=done.stdout, err=done.stderr)}
    return HostRecord(Visit(), outputs)
