"""Faults on the user's side: patches of the programs, and what doctor must say of each."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple


class DataFault(NamedTuple):
    """One patch of a program. ``{bad}`` is the culprit rank, ``{pair}`` another rank of its data-parallel group."""

    program: str
    marker: str
    """Is replaced, or has the patch put behind it where it is a comment."""
    patch: str
    checks: tuple[str, ...]
    """Any of these is right."""
    everybody: bool = False
    """All ranks do it."""
    replicas_only: bool = False


DATA, MASK = "smoke-shards-wrong", "smoke-mask-differs"
FAULTS = {
    "shard duplicated": DataFault(
        "replicas",
        "num_replicas=world, rank=rank",
        "num_replicas=world, rank=rank if rank != {bad} else {pair}",
        (DATA,),
    ),
    "not sharded": DataFault("replicas", "sampler=sampler)", "sampler=sampler if rank != {bad} else None)", (DATA,)),
    "shard missing": DataFault(
        "replicas", "num_replicas=world, rank=rank", "num_replicas=world + 1, rank=rank", (DATA,), everybody=True
    ),
    "epoch not set": DataFault(
        "replicas", "    sampler.set_epoch(epoch)", "    sampler.set_epoch(epoch if rank != {bad} else 7)", (DATA,)
    ),
    "not broadcast": DataFault(
        "replicas",
        "model = DistributedDataParallel(model)\n",
        "model = DistributedDataParallel(model)\n"
        "if rank == {bad}:\n    torch.manual_seed(99)\n    torch.nn.init.normal_(model.module[3].weight, std=0.2)\n",
        ("smoke-parameters-not-broadcast",),
    ),
    "no step": DataFault(
        "replicas",
        "        optimizer.step()",
        "        if rank != {bad}:\n            optimizer.step()",
        ("smoke-update-missing",),
    ),
    "step left out": DataFault(
        "replicas",
        "        optimizer.step()",
        "        if rank != {bad} or step != 2:\n            optimizer.step()",
        ("smoke-update-missing",),
    ),
    "frozen layer": DataFault(
        "replicas",
        "AdamW(model.parameters(), lr=0.01)",
        "AdamW(list(model.parameters())[2:], lr=0.01)",
        ("smoke-update-missing",),
        everybody=True,
    ),
    "frozen on one rank": DataFault(
        "replicas",
        "        # reduced",
        "        if rank == {bad}:\n            for t in model.module[3].parameters(): t.grad = None",
        ("smoke-update-missing", "smoke-gradient-not-synchronised", "smoke-parameters-diverge"),
    ),
    "lr 0": DataFault("replicas", "lr=0.01", "lr=0.01 if rank != {bad} else 0.0", ("smoke-update-missing",)),
    "lr 0 everywhere": DataFault("replicas", "lr=0.01", "lr=0.0", ("smoke-update-missing",), everybody=True),
    "NaN": DataFault(
        "replicas",
        "        output = model(rows)",
        "        if rank == {bad} and step == 3:\n            rows = rows.clone(); model.module[1].register_forward_hook(lambda m, a, o: o * float('nan'))\n"
        "        output = model(rows)",
        ("smoke-not-finite",),
    ),
    "NaN in the loss": DataFault(
        "replicas",
        "        loss.backward()",
        "        if rank == {bad} and step == 2: loss = loss * float('nan')\n        loss.backward()",
        ("smoke-not-finite",),
    ),
    "sum by hook": DataFault(
        "replicas",
        "# wrapped",
        "def add(state, bucket):\n"
        "    work = dist.all_reduce(bucket.buffer(), async_op=True).get_future()\n"
        "    return work.then(lambda future: future.value()[0])\n"
        "model.register_comm_hook(None, add)\n",
        ("smoke-gradient-summed",),
        everybody=True,
    ),
    "sum for mean": DataFault(
        "tensor_parallel", "        tensor.grad /= world // width\n", "", ("smoke-gradient-summed",), everybody=True
    ),
    "python seed": DataFault("tensor_parallel", "# seeded", "if rank == {bad}: random.seed(777)", (MASK,)),
    "numpy seed": DataFault("tensor_parallel", "# seeded", "if rank == {bad}: numpy.random.seed(777)", (MASK,)),
    "torch seed": DataFault("tensor_parallel", "# seeded", "if rank == {bad}: torch.manual_seed(777)", (MASK,)),
    "mask": DataFault(
        "tensor_parallel",
        "    # mask",
        "    if rank == {bad}: mask = torch.rand(4, LENGTH, generator=generator) < 0.3",
        (MASK, DATA),
    ),
    "batch inside the model": DataFault(
        "tensor_parallel",
        "    # batch",
        "    if rank == {bad}: tokens = torch.randint(0, MASK, (4, LENGTH), generator=torch.Generator().manual_seed(5000 + step))",
        (DATA,),
    ),
    "same rows": DataFault(
        "tensor_parallel",
        "manual_seed(seed + replica)",
        "manual_seed(seed)",
        (DATA,),
        everybody=True,
        replicas_only=True,
    ),
    "not reduced": DataFault(
        "tensor_parallel",
        "    # computed",
        "    own = [t.grad.clone() for t in model.parameters()]",
        ("smoke-gradient-not-synchronised",),
    ),
    "replica begins apart": DataFault(
        "tensor_parallel",
        "# initialized",
        "if rank == {bad}: nn.init.normal_(model.head.weight, std=0.3)",
        ("smoke-parameters-not-broadcast",),
    ),
}
RESTORED = """    if rank == {bad}:
        for tensor, gradient in zip(model.parameters(), own): tensor.grad = gradient
"""


def patched(name: str, source: str, bad: int, pair: int) -> str:
    """The program with this fault. Raises: AssertionError where the program has no such place."""
    fault = FAULTS[name]
    text = with_patch(source, fault.marker, fault.patch, bad=bad, pair=pair)
    if name == "same rows":
        text = text.replace("random.seed(seed + replica)", "random.seed(seed)").replace(
            "numpy.random.seed(seed + replica)", "numpy.random.seed(seed)"
        )
    if name == "not reduced":
        text = with_patch(text, "    # reduced", RESTORED, bad=bad)
    return text


def with_patch(source: str, marker: str, patch: str, **values: int) -> str:
    """The program with a patch in the place of a marker; behind it, and as far indented, where it is a comment.

    Each ``{name}`` of the patch becomes its value. Raises: AssertionError where the program has no such place.
    """
    for name, value in values.items():
        patch = patch.replace(f"{{{name}}}", str(value))
    if not marker.lstrip().startswith("# "):
        assert source.count(marker) >= 1, marker
        return source.replace(marker, patch, 1)
    place = re.search(rf"^( *){re.escape(marker.strip())}$", source, re.MULTILINE)
    assert place, marker
    patch = textwrap.indent(textwrap.dedent(patch).rstrip("\n"), place[1])
    return f"{source[: place.end()]}\n{patch}{source[place.end() :]}"
