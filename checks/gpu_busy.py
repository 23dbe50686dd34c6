from collections.abc import Iterator

from doctor import ERROR, Finding, check
from doctor.facts.gpu import GpuInventory
from doctor.facts.reported_value import held_memory

FULL = 0.95
"""Of a GPU's memory."""
SERVICES = ("nvidia-cuda-mps-server", "nv-hostengine")


@check(severity=ERROR, area="devices")
def gpu_busy(inventory: GpuInventory) -> Iterator[Finding]:
    """No process computes on a GPU before the job starts.

    ## Why it matters
    A process that an earlier job has left behind keeps its memory and part of the GPU's time. The next job runs out of
    memory, or is slow on that GPU alone.

    ## What to do
    Find its owner: `ps -o user,pid,lstart,args -p {pid}` on {host}. When it is not needed: `kill {pid}`, then `kill -9
    {pid}`. Where no process is listed, it is one of another container, or has died with its memory: on the machine
    itself, outside of containers, `fuser -v /dev/nvidia{gpu}`.

    ## Source
    The processes of type C (compute) in `nvidia-smi -q -x`. Display servers (type G) and NVIDIA's own services are no
    finding. In a container nvidia-smi lists no processes of others, and counts their memory: where no process that
    computes is listed, `fb_memory_usage` less what displays have says it (idle GPUs in published reports of drivers 418
    to 595: up to 1 %; the limit of 12 % is our own). Superchips whose memory is also that of Linux are left out. A
    warning while more than a twentieth of the GPU's memory is left: two jobs may share a GPU. With less no job starts
    (torch, beside a process that held 138 of the 140 GiB of an H200: CUBLAS_STATUS_ALLOC_FAILED).
    """
    for gpu in inventory.gpus:
        memory, named = gpu.memory or 0, sum(one.mebibytes or 0 for one in gpu.processes)
        rest = (gpu.memory_used or 0) - named
        held = {} if any("C" in one.kind for one in gpu.processes) else held_memory("MiB", rest, memory)
        if memory and held:
            yield Finding(
                "GPU {gpu} has {observed} of its memory in use and no process; expected at most {expected}",
                gpu=gpu.index,
                **held,
            ).as_warning(rest < FULL * memory)
        for process in gpu.processes:
            if process.kind in ("C", "M+C") and not process.name.endswith(SERVICES):
                yield Finding(
                    "process {pid} ({name}) uses {megabytes} MiB of GPU {gpu}; expected none",
                    gpu=gpu.index,
                    pid=process.pid,
                    name=process.name or "name not known",
                    megabytes="unknown" if process.mebibytes is None else process.mebibytes,
                ).as_warning(not memory or named < FULL * memory)
    inventory.require("fb_memory_usage")
