"""What gives a container a device, a file or a limit: the options of each engine. Pure.

Sources: vllm-ascend, quick start (``docker run --device ...``, https://docs.vllm.ai/projects/ascend/en/latest/);
MindCluster, Ascend Docker Runtime (https://www.hiascend.com/document/detail/en/mindcluster/); NVIDIA Container Toolkit
(``--gpus``); Kubernetes, device plugins (``resources.limits``); Apptainer, ``--bind``, ``--nv``; enroot, ``--mount``.
"""

from __future__ import annotations

from collections.abc import Sequence

from doctor.engine.texts import filled
from doctor.facts.container import Engine

NPU_MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")
"""Device files that every process with an NPU opens, besides ``davinci0`` and on."""

DRIVER_FOLDER = "/usr/local/Ascend/driver"


def device_options(engine: Engine, devices: Sequence[str], kind: str) -> str:
    """How to give a container these files of /dev; ``kind`` is ``npu``, ``gpu`` or ``rdma``."""
    if engine == "kubernetes":
        resources = {"npu": "huawei.com/Ascend910: 8", "gpu": "nvidia.com/gpu: 8", "rdma": "rdma/hca: 1"}
        return filled(
            "under the container's `resources.limits` in the pod (or in the task of a Volcano or "
            "MindCluster job) `{0}`, with the number that it needs; the device plugin then adds the files",
            resources[kind],
        )
    if engine == "apptainer":
        flag = "apptainer exec --nv" if kind == "gpu" else "apptainer exec"
        return f"`{flag} {' '.join(f'--bind /dev/{name}' for name in devices)} IMAGE`"
    if engine == "enroot":
        return filled(
            "`enroot start {0} NAME`, or ENROOT_RESTRICT_DEV=no", " ".join(f"--mount /dev/{name}" for name in devices)
        )
    if kind == "gpu":
        return "`docker run --gpus all`, with the NVIDIA Container Toolkit on the host"
    tool = "podman" if engine == "podman" else "docker"
    return f"`{tool} run {' '.join(f'--device /dev/{name}' for name in devices)} <own options> <image>`"


def mount_options(engine: Engine, paths: Sequence[str]) -> str:
    """How to show a container files or folders of its host, read-only."""
    if engine == "kubernetes":
        return filled(
            "a `hostPath` volume and a `volumeMounts` entry with `readOnly: true` for each of {0} in the "
            "pod (or in the task of a Volcano or MindCluster job)",
            ", ".join(paths),
        )
    if engine == "apptainer":
        return f"`apptainer exec {' '.join(f'--bind {path}:{path}:ro' for path in paths)} IMAGE`"
    if engine == "enroot":
        return f"`enroot start {' '.join(f'--mount {path}:{path}' for path in paths)} NAME`"
    tool = "podman" if engine == "podman" else "docker"
    return f"`{tool} run {' '.join(f'-v {path}:{path}:ro' for path in paths)} <own options> <image>`"
