"""By what code a device computes: of ranks with one code path the same bits may be expected."""

from __future__ import annotations

import os

from doctor.remote.runtime.host_texts import filled
from doctor.smoke.programs.worker.context import RankContext
from doctor.smoke.programs.worker.libraries import torch

CODE_VARIABLES = ("ATEN_CPU_CAPABILITY", "DNNL_", "MKL_", "ONEDNN_")
"""Beginnings of the variables that choose the instructions, and so the order of adding, of products on a CPU."""


def device_model(ctx: RankContext) -> str:
    """What the device is, to compare it with its like: by its name, or the CPU by its model and instructions in use."""
    if ctx.device.type != "cpu":
        properties = getattr(torch, ctx.device.type).get_device_properties(ctx.device)
        # ROCm's name may be that of a family, or empty.
        architecture = getattr(properties, "gcnArchName", "") if getattr(torch.version, "hip", None) else ""
        return " ".join(word for word in (str(properties.name), str(architecture).partition(":")[0]) if word)[:100]
    model = ""
    try:
        with open("/proc/cpuinfo", errors="replace") as file:
            names = (line.partition(":")[2] for line in file if line.lower().startswith(("model name", "cpu part")))
            model = next(names, "").strip()
    except OSError:
        pass
    capability = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", lambda: "")()
    chosen = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(CODE_VARIABLES)]
    return " ".join(word for word in ("CPU", model[:80], capability, *chosen) if word)[:200]


def code_path(ctx: RankContext) -> str:
    """The device's model with the version of torch."""
    return filled("{0} with torch {1}", device_model(ctx), torch.__version__)
