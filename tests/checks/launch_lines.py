"""Fleets of hosts with NPUs, and the settings of a launch line, for the checks of the launch."""

from __future__ import annotations

import shlex

from doctor.engine.evaluate import FactCache, evaluate_check
from doctor.engine.fact import Output, Visit
from doctor.engine.record import HostRecord, LaunchOptions
from doctor.engine.result import Outcome
from doctor.environment.job_environment import of_launch_line
from doctor.job import LaunchConfig
from tests.checks.tables import check

NPUS = '{"pci": {%s}, "files": [%s], "refused": [], "tools": ["npu-smi"], "chips": null, "newer": []}'


def records(hosts: int, devices: int = 0) -> dict[str, HostRecord]:
    pci = ", ".join(f'"0000:c{number}:00.0": "d802"' for number in range(devices))
    files = ", ".join(f'"/dev/davinci{number}"' for number in range(devices))
    outputs = {"GpuCards": {"": Output(out='{"pci": 0, "driver": "", "tool": false}')}}
    outputs["AmdGpus"] = {"": Output(ended="absent")}
    outputs["NpuInventory"] = {"": Output(out=NPUS % (pci, files))}
    return {f"n{number}": HostRecord(Visit(), outputs) for number in range(hosts)}


def run_check(name: str, launch: LaunchConfig, hosts: int = 2, devices: int = 0) -> Outcome:
    fleet = records(hosts, devices)
    return evaluate_check(check(name), tuple(fleet), FactCache(fleet), {LaunchConfig: launch})


def config(line: str, environ: dict[str, str] | None = None) -> LaunchConfig:
    source = of_launch_line(shlex.split(line), environ or {})
    return LaunchConfig.from_options(source.complete(LaunchOptions()))
