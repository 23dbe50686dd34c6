"""The container in which a process runs, by its marks, and what it was given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from doctor.engine.fact import Absent, Unreadable
from doctor.facts.container import (
    CAP_IPC_LOCK,
    INITIAL_NAMESPACES,
    HostContainer,
    JobContainer,
    describe_container,
    is_within,
    parse_visible,
)
from doctor.session.select_pods import _device_variables
from doctor.transport.kubernetes.pods import Pod
from tests.facts.answers import answered
from tests.facts.garbage import JSON, runs_on_python_3_6

PRIVATE = {**INITIAL_NAMESPACES, "mnt": 4026532261, "pid": 4026532264, "uts": 4026532262}
HOST = {**INITIAL_NAMESPACES, "mnt": 4026531841}


def answer(**more: Any) -> dict[str, Any]:
    return {
        "marks": [],
        "variables": {},
        "cgroup": "0::/\n",
        "root": "overlay",
        "sources": [],
        "namespaces": PRIVATE,
        "read_only": [],
        "network_cards": 0,
        "devices": [],
        "files": [],
        "libraries": [],
        "capabilities": 0x800405FB,
        "uid": 0,
        "named_user": True,
        **more,
    }


@pytest.mark.parametrize(
    ("engine", "marks"),
    [
        ("", {}),
        ("docker", {"marks": ["/.dockerenv"]}),
        ("docker", {"sources": ["/var/lib/docker/containers/ab/hosts"]}),
        ("docker", {"cgroup": "12:pids:/docker/ab\n", "root": "btrfs", "namespaces": HOST}),
        ("podman", {"marks": ["/run/.containerenv"]}),
        ("podman", {"cgroup": "0::/machine.slice/libpod-ab.scope\n"}),
        ("kubernetes", {"variables": {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "marks": ["/.dockerenv"]}),
        ("kubernetes", {"cgroup": "11:cpu:/kubepods/burstable/pod1\n"}),
        ("kubernetes", {"sources": ["/var/lib/kubelet/pods/1/etc-hosts"]}),
        ("containerd", {"sources": ["rw,lowerdir=/run/containerd/io.containerd.snapshotter.v1.overlayfs/1/fs"]}),
        ("apptainer", {"variables": {"SINGULARITY_CONTAINER": "/a.sif"}, "namespaces": HOST}),
        ("enroot", {"sources": ["/run/enroot/user-0/passwd"], "namespaces": HOST}),
        ("lxc", {"variables": {"container": "lxc"}}),
        ("systemd-nspawn", {"variables": {"container": "systemd-nspawn"}}),
    ],
)
def test_the_engine(engine: str, marks: dict[str, Any]) -> None:
    job_container = answered(JobContainer, answer(**marks))
    assert isinstance(job_container, JobContainer)
    assert job_container.engine == engine


def test_a_mark_that_an_image_left_on_a_machine_is_none() -> None:
    host_container = answered(
        HostContainer, answer(marks=["/.dockerenv", "/run/.containerenv"], root="ext4", namespaces=HOST)
    )
    assert host_container.engine == ""


def test_what_is_private() -> None:
    job_container = answered(JobContainer, answer())
    assert (job_container.namespaces["pid"], job_container.namespaces["ipc"]) == ("private", "host")
    assert not job_container.has_capability(CAP_IPC_LOCK)
    assert job_container.has_capability(0)


def test_the_devices_by_number() -> None:
    job_container = answered(
        JobContainer, answer(devices=["davinci10", "davinci9", "davinci_manager", "nvidia0", "nvidiactl"])
    )
    assert (job_container.npus, job_container.gpus) == ((9, 10), (0,))


def test_inside_and_outside() -> None:
    host = answered(HostContainer, answer(namespaces=HOST, root="ext4"))
    inside = answered(JobContainer, answer(marks=["/.dockerenv"]))
    assert is_within(inside, host)
    assert not is_within(inside, answered(HostContainer, answer(marks=["/.dockerenv"])))
    assert not is_within(inside, None)


def test_the_variable_of_the_ascend_runtime() -> None:
    assert parse_visible("0-1, 3,100") == (0, 1, 3, 100)
    for text in ("", "all", "None", "0-", "3-1", "0,x", "99999"):
        assert parse_visible(text) == ()


def test_this_machine() -> None:
    for kind in (JobContainer, HostContainer):
        fact = answered(kind, describe_container({}))
        assert isinstance(fact, kind)
        assert fact.mount_namespace


@given(JSON)
def test_anything_else(value: object) -> None:
    assert isinstance(answered(JobContainer, value), Unreadable)


def test_the_source_that_is_sent() -> None:
    assert runs_on_python_3_6(describe_container)


def with_devices(annotation: str, *limits: dict[str, object]) -> str:
    """The words by which a pod's first container learns what it has; ``limits``: of each container."""
    names = [f"c{number}" for number in range(len(limits))]
    containers = [{"name": name, "resources": {"limits": wanted}} for name, wanted in zip(names, limits, strict=True)]
    metadata = {"name": "w-0", "annotations": {"huawei.com/AscendReal": annotation}}
    pod = msgspec.convert({"metadata": metadata, "spec": {"containers": containers}}, Pod)
    return " ".join(_device_variables(pod, "c0"))


@pytest.mark.parametrize(
    ("annotation", "limits", "words"),
    [
        ("Ascend910-4,Ascend910-5", [{"huawei.com/Ascend910": "2", "cpu": "1"}], "DOCTOR_POD_NPUS=4,5"),
        ("Ascend310P-4c.3cpu-100-1", [{"huawei.com/Ascend310P-4c": "1"}], "DOCTOR_POD_NPUS=100"),
        ("Ascend910-4", [{"huawei.com/Ascend910": "1"}, {"huawei.com/Ascend910": "1"}], ""),  # whose is it?
        ("Ascend910-4", [{"cpu": "1"}, {"huawei.com/Ascend910": "1"}], ""),
        ("Ascend910-4; touch /tmp/x", [{"huawei.com/Ascend910": "1"}], ""),
        ("", [{"huawei.com/Ascend910": "1"}], ""),
        ("", [{"nvidia.com/gpu": "8"}, {}], "DOCTOR_POD_GPUS=8"),
        ("", [{"nvidia.com/gpu": 8}], "DOCTOR_POD_GPUS=8"),
        *(("", [{"nvidia.com/gpu": text}], "") for text in ("$(id)", "-1", "\u0668", "1k", "99999", "")),
        ("", [{"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-2g.20gb": "1"}], "DOCTOR_POD_GPUS=3"),
        ("", [{"nvidia.com/gpu.shared": "1", "cpu": "8"}], "DOCTOR_POD_GPUS=1"),
        ("", [{"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "x"}], ""),
        # HAMi's words for parts of a GPU, which count no devices.
        ("", [{"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}], ""),
    ],
)
def test_what_a_pod_says_of_its_devices(annotation: str, limits: list[dict[str, object]], words: str) -> None:
    assert with_devices(annotation, *limits) == words
    known = dict(word.split("=", 1) for word in words.split())
    assert not isinstance(view := answered(JobContainer, answer(variables=known)), (Absent, Unreadable))
    assert view.allotted_npus == parse_visible(known.get("DOCTOR_POD_NPUS", ""))
    assert view.requested_gpus == int(known.get("DOCTOR_POD_GPUS", "0"))
