from collections.abc import Iterator

from doctor import ERROR, Finding, Skip, check, filled, joined
from doctor.facts.container import (
    DRIVER_FOLDER,
    NPU_MANAGERS,
    HostContainer,
    JobContainer,
    device_options,
    is_within,
    mount_options,
)


@check(severity=ERROR, area="devices")
def container_devices_missing(container: JobContainer, place: HostContainer | None) -> Iterator[Finding]:
    """The job's container has the device files and the driver library of the accelerators that it is to use.

    ## Why it matters
    A container has only what it was given. Without /dev/davinci_manager, /dev/devmm_svm and /dev/hisi_hdc no process
    opens an NPU, although /dev/davinci0 is there; without libascend_hal.so or libcuda.so.1 torch does not load its
    backend. The messages are those of a broken driver ("ret is -8005", "no CUDA-capable device"); the driver is well.

    ## What to do
    Create the container of {host} anew, with {remedy}. Its own options are those with which it was made (`docker
    inspect`, `podman inspect`); a restart gives it no devices. A job that uses fewer accelerators needs fewer of the
    numbered devices, and all of the others. On the host itself there is nothing to install or to restart.

    ## Source
    vllm-ascend, quick start (docs.vllm.ai/projects/ascend), and Huawei, MindCluster documentation, "Usage on the Docker
    Client" (devices and folders that a container needs; the runtime reads ASCEND_VISIBLE_DEVICES); NVIDIA Container
    Toolkit (nvidiactl, nvidia-uvm, libcuda.so.1). Part of a host's devices is no fault, nor are virtual NPUs. With
    `--within` the container is compared with its host. The libraries are searched in the loader's cache, in
    LD_LIBRARY_PATH and in the usual folders; the verdict can be wrong for others. Over `--transport kubernetes` the pod
    says what it was allotted: `huawei.com/AscendReal` of ascend-device-plugin, and the limit `nvidia.com/gpu`.
    """
    if not container.engine:
        raise Skip("the job does not run in a container")
    npus, gpus = container.npus, container.gpus
    lost = [npu for npu in container.allotted_npus or container.expected_npus if npu not in npus]
    source = "huawei.com/AscendReal" if container.allotted_npus else "ASCEND_VISIBLE_DEVICES"
    if container.requested_gpus and not gpus:
        yield Finding(
            "the container requests {count} GPUs of Kubernetes, and has no device file of one",
            count=container.requested_gpus,
            remedy="`runtimeClassName: nvidia` in its pod, or with nvidia as the default runtime of its node",
        )
    if lost:
        yield Finding(
            "{source} names NPU {npus}, and the container has no device file of it",
            source=source,
            npus=lost,
            remedy=joined(
                "",
                (
                    device_options(container.engine, [*(f"davinci{npu}" for npu in lost), *NPU_MANAGERS], "npu"),
                    ", or with the runtime that reads the variable: `--runtime=ascend`",
                ),
            ),
            observed=filled("{0} NPU device files", len(npus)),
            expected=f"{source}={','.join(map(str, container.allotted_npus)) or container.visible_npus}",
        )
    elif place and is_within(container, place):
        if place.npus and not npus:
            devices = [*(f"davinci{npu}" for npu in place.npus), *NPU_MANAGERS]
            yield _none_given("NPU", len(place.npus), device_options(container.engine, devices, "npu"))
        if place.gpus and not gpus:
            yield _none_given("GPU", len(place.gpus), device_options(container.engine, ["nvidia0"], "gpu"))
    for found, kind, needed in ((npus, "npu", NPU_MANAGERS), (gpus, "gpu", ("nvidiactl", "nvidia-uvm"))):
        absent = [name for name in needed if name not in container.devices]
        if found and absent:
            yield Finding(
                "the container has {kind} {devices}, but not {missing}",
                kind=kind.upper(),
                devices=list(found),
                missing=[f"/dev/{name}" for name in absent],
                remedy=device_options(container.engine, absent, kind),
            )
    if npus and "libascend_hal.so" not in container.libraries:
        folders = [f"{DRIVER_FOLDER}/lib64", f"{DRIVER_FOLDER}/version.info"]
        yield _no_library("NPU", "libascend_hal.so", mount_options(container.engine, folders))
    if gpus and "libcuda.so.1" not in container.libraries:
        yield _no_library("GPU", "libcuda.so.1", device_options(container.engine, ["nvidia0"], "gpu"))


def _none_given(kind: str, count: int, remedy: str) -> Finding:
    return Finding(
        "the container has none of the host's {count} {kind}s",
        count=count,
        kind=kind,
        remedy=remedy,
        observed="no device file",
        expected=filled("at least one {0}", kind),
    )


def _no_library(kind: str, library: str, remedy: str) -> Finding:
    return Finding(
        "the container has {kind}s, but not {library} of their driver", kind=kind, library=library, remedy=remedy
    )
