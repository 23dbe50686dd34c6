"""Containers and their hosts, to be changed in one place."""

from __future__ import annotations

from typing import Any, TypeVar

from doctor.facts.container import ContainerView, HostContainer, JobContainer

View = TypeVar("View", bound=ContainerView)
MANAGERS = ("davinci_manager", "devmm_svm", "hisi_hdc")


def view(kind: type[View], **more: Any) -> View:
    healthy: dict[str, Any] = {
        "engine": "docker",
        "mount_namespace": 4026532261,
        "namespaces": {"pid": "private", "ipc": "private"},
        "read_only": ("/proc/sys", "/sys"),
        "network_cards": 0,
        "devices": (),
        "files": (),
        "libraries": ("libascend_hal.so", "libcuda.so.1"),
        "capabilities": 0xA80425FB,
        "uid": 0,
        "named_user": True,
    }
    return kind(**{**healthy, **more})


def container(*devices: str, **more: Any) -> JobContainer:
    """The job's own; ``devices`` are names under /dev."""
    return view(JobContainer, devices=devices, **more)


def place(*devices: str, **more: Any) -> HostContainer:
    """A host, which is no container unless ``engine`` is given."""
    return view(HostContainer, devices=devices, **{"engine": "", "mount_namespace": 4026531841, **more})


def npus(*numbers: int) -> tuple[str, ...]:
    """The device files of these NPUs, with all that they need."""
    return (*(f"davinci{number}" for number in numbers), *MANAGERS)
