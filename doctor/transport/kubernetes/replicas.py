"""Pods that a job should have and that were not made: no list of pods tells that they are missing.

Only a StatefulSet has names for them. Source: Kubernetes, "StatefulSets", sections "Ordinal Index", "Start ordinal".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.transport import TransportError
from doctor.transport.kubernetes import kubectl
from doctor.transport.kubernetes.pods import MAX_PODS, Pod, is_name
from doctor.transport.options import CONNECT_TIMEOUT


class _Ordinals(msgspec.Struct, frozen=True):
    start: int = 0


class _Spec(msgspec.Struct, frozen=True):
    replicas: int = 1
    ordinals: _Ordinals | None = None


class _StatefulSet(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


def absent_replicas(
    program: Sequence[str], namespace: str, pods: Sequence[Pod], patience: float = CONNECT_TIMEOUT
) -> tuple[str, ...]:
    """Names of pods that the StatefulSets of these pods should have, and that are none of them.

    Empty where a StatefulSet cannot be read: the right to do so is not needed for anything else.
    """
    present = {pod.name for pod in pods}
    owners = dict.fromkeys(owner.name for pod in pods for owner in pod.owners if owner.kind == "StatefulSet")
    return tuple(
        name
        for owner in filter(is_name, owners)
        for name in _replicas(program, namespace, owner, patience)
        if name not in present
    )


def _replicas(program: Sequence[str], namespace: str, name: str, patience: float) -> Iterator[str]:
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}"
    try:
        answer = kubectl.ask(program, "get", "--raw", path, patience=patience)
        spec = msgspec.json.decode(answer, type=_StatefulSet).spec
    except (TransportError, msgspec.MsgspecError, UnicodeError, RecursionError):
        return
    first = spec.ordinals.start if spec.ordinals else 0
    for number in range(first, first + min(spec.replicas, MAX_PODS)):
        yield f"{name}-{number}"


prepare_decoding(_StatefulSet)
