"""Which parameters are shards, and which ranks hold the whole together. Python 3.8, torch 2.1.

A part of the hook.
"""

from __future__ import annotations

from typing import Any, Iterator


def mesh_slice(mesh: Any, dimensions: list[int]) -> tuple[int, ...]:
    """The global ranks of a DeviceMesh that differ from this one in these dimensions alone, this one among them."""
    coordinate = mesh.get_coordinate()
    places = tuple(slice(None) if place in dimensions else at for place, at in enumerate(coordinate))
    return tuple(int(rank) for rank in mesh.mesh[places].reshape(-1).tolist())


def is_flat(tensor: Any) -> bool:
    """Whether FSDP of torch's first kind has put several parameters together into this one."""
    return bool(getattr(tensor, "_is_flat_param", False)) or type(tensor).__name__ == "FlatParameter"


class ShardHolders:
    """Of this rank's parameters: whole ones, shards of DTensors, and those of FSDP of torch's first kind."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.flat: dict[int, Any] = {}
        self.meshes: dict[Any, tuple[int, ...]] = {}
        self.replicated: set[int] = set()
        """Parameters within a DistributedDataParallel."""

    def learn(self, roots: list[Any]) -> None:
        """Asks the wrappers: parameters under FSDP may be pieces of a flat one."""
        self.flat, self.replicated = {}, set()
        for root in roots:
            for module in root.modules():
                if isinstance(module, self.torch.nn.parallel.DistributedDataParallel):
                    left_out = getattr(module, "parameters_to_ignore", ())
                    named = module.module.named_parameters()
                    self.replicated |= {id(tensor) for name, tensor in named if name not in left_out}
                handle = getattr(module, "_handle", None)
                flat = getattr(handle, "flat_param", None)
                if flat is None or not getattr(handle, "uses_sharded_strategy", True):
                    continue
                group = getattr(handle, "process_group", None)
                ranks = _ranks(self.torch, group) or None
                for tensor in (flat, *(getattr(flat, "_params", None) or ())):
                    self.flat[id(tensor)] = ranks

    def is_loose(self, tensor: Any) -> bool:
        """Whether it is a parameter of experts (Megatron, DeepSpeed), or others are in a wrapper and it is in none."""
        is_unwrapped = bool(self.replicated) and id(tensor) not in self.replicated
        return is_unwrapped or getattr(tensor, "allreduce", True) is False

    def of(self, tensor: Any) -> tuple[int, ...] | None:
        """The ranks with the other shards, and this one; empty: it is whole here; None: it is a shard, with unknown
        holders.
        """
        if id(tensor) in self.flat:
            return self.flat[id(tensor)]  # type: ignore[no-any-return]
        if is_flat(tensor):
            return None
        placements = tuple(getattr(tensor, "placements", ()))
        if any(placement.is_partial() for placement in placements):
            return None
        divided = [place for place, placement in enumerate(placements) if not placement.is_replicate()]
        if not divided:
            return ()
        key = (id(tensor.device_mesh), *divided)
        if key not in self.meshes:
            self.meshes[key] = mesh_slice(tensor.device_mesh, divided)
        return self.meshes[key]


def fsdp_meshes(torch: Any, roots: list[Any]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Of each module under FSDP: the ranks that its gradients are reduced over, and those of them with the same shard.

    Of both kinds of torch: ``fully_shard`` and ``FullyShardedDataParallel``; what is empty is not there, or not known.
    """
    for root in roots:
        for module in root.modules():
            state = getattr(module, "_get_fsdp_state", None)
            if state is not None:
                for group in _parameter_groups(state()):
                    mesh = group.mesh_info.mesh
                    divided = getattr(group.mesh_info, "shard_mesh_dim", None)
                    copied = getattr(group.mesh_info, "replicate_mesh_dim", None)
                    places = [place for place in (copied, divided) if place is not None]
                    yield mesh_slice(mesh, places), mesh_slice(mesh, [copied]) if copied is not None else ()
            elif getattr(module, "_handle", None) is not None and hasattr(module, "process_group"):
                ranks, copies = (
                    _ranks(torch, getattr(module, name, None)) for name in ("process_group", "_inter_node_pg")
                )
                yield (ranks if not copies else ()), copies


def device_meshes(roots: list[Any]) -> Iterator[Any]:
    """The DeviceMeshes that these modules' DTensors are on, of each module's first one, and those of FSDP's first kind,
    whose parameters are no DTensors; each once.
    """
    meshes: dict[int, Any] = {}
    for root in roots:
        first = next(iter(root.parameters()), None)
        for holder, name in ((first, "device_mesh"), *((module, "_device_mesh") for module in root.modules())):
            mesh = getattr(holder, name, None)
            if mesh is not None and id(mesh) not in meshes:
                meshes[id(mesh)] = mesh
                yield mesh


def _parameter_groups(state: Any) -> list[Any]:
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [getattr(state, "_fsdp_param_group", None)]
    return [group for group in groups if group is not None]


def _ranks(torch: Any, group: Any) -> tuple[int, ...]:
    return tuple(torch.distributed.get_process_group_ranks(group)) if group is not None else ()
