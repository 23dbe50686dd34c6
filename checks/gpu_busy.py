from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.gpu import GpuInventory

SERVICES = ("nvidia-cuda-mps-server", "nv-hostengine")


@check(severity=WARNING, area="devices")
def gpu_busy(inventory: GpuInventory) -> Iterator[Finding]:
    """No process computes on a GPU before the job starts.

    ## Why it matters
    A process that an earlier job has left behind keeps its memory and part of the GPU's time: the next job runs out of
    memory, or is slow on that GPU alone.

    ## What to do
    Find its owner: `ps -o user,pid,lstart,args -p {pid}` on {host}. When it is not needed: `kill {pid}`, then `kill -9
    {pid}`.

    ## Source
    The processes of type C (compute) in `nvidia-smi -q -x`. Display servers (type G) and NVIDIA's own services are no
    finding. In a container nvidia-smi lists no processes of others.
    """
    for gpu in inventory.gpus:
        for process in gpu.processes:
            if process.kind in ("C", "M+C") and not process.name.endswith(SERVICES):
                yield Finding(
                    "GPU {gpu} is used by process {pid} ({name}), {megabytes} MiB; expected none",
                    gpu=gpu.index,
                    pid=process.pid,
                    name=process.name or "name not known",
                    megabytes="unknown" if process.mebibytes is None else process.mebibytes,
                )
