"""What loaded files hold besides model and optimizer, and whether the program has it when its training begins.

Python 3.8, torch 2.1. An average of the parameters, an optimizer's own copies, a queue of samples: a checkpoint may
hold them in any form, so they are recognized by their values alone; a few elements are compared. Nothing here
communicates or changes a tensor; tensors in shards are not looked at. A part of the hook.
"""

from __future__ import annotations

import gc
import math
from types import FrameType
from typing import Any, Iterable

MAX_LEAVES, MAX_DEPTH, MAX_LIVE = 8192, 5, 32768
SAMPLES = 64
"""Elements of each tensor that are compared, evenly spread."""
FAR, KEPT, NEW, SURE = 0.3, (0.7, 1.5), (-0.3, 0.3), 100.0
"""Of their size, by which values differ that are other ones; how closely those follow the loaded ones that are these
after steps of an average, and those that began anew; how many times as likely the latter must be."""


class LoadedContents:
    """Tensors of the files that this process has loaded before its first step."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.tensor_types = {torch.Tensor, torch.nn.Parameter}
        self.groups: dict[str, list[tuple[Any, Any, int]]] = {}
        """By the place in a file: form, some values and address of each tensor."""
        self.inner: dict[str, set[int]] = {}
        """By group: the containers that hold its tensors, where another container holds that one."""
        self.containers: set[int] = set()
        self.count = 0
        self.generator_size = torch.get_rng_state().numel()

    def look(self, content: Any, place: str, depth: int = 0) -> None:
        """Notes what was loaded. ``place``: the file's name."""
        if depth > MAX_DEPTH or not isinstance(content, (dict, list, tuple)) or self.count > MAX_LEAVES:
            return
        if isinstance(content, dict) and "param_groups" in content:  # an optimizer's state is compared by its names
            return
        self.containers.add(id(content))
        rows = list(content.items()) if isinstance(content, dict) else list(enumerate(content))
        tensors = [(str(name)[:60], entry) for name, entry in rows if type(entry) in self.tensor_types]
        if any(tensor.is_meta for _, tensor in tensors):  # shapes alone were loaded
            return
        is_one = len(tensors) == len(rows)
        for name, tensor in tensors[: MAX_LEAVES - self.count]:
            if tensor.dtype == self.torch.uint8 and tensor.numel() == self.generator_size:
                continue
            group = place if is_one else f"{place}: {name}"
            self.groups.setdefault(group, []).append((_form(tensor), _sample(tensor), tensor.data_ptr()))
            self.count += 1
            if is_one and depth:
                self.inner.setdefault(group, set()).add(id(content))
        for name, entry in rows[:1024]:
            self.look(entry, f"{place}: {str(name)[:60]}" if depth < 2 else place, depth + 1)

    def unapplied(self, known: Iterable[Any]) -> list[tuple[str, int]]:
        """Groups whose values no tensor of the program has, although others of the same forms are there.

        ``known``: the model's parameters and buffers, and what optimizers keep for them, which are compared as such.
        Of a place that several files have, one file's values are enough.
        """
        forms = {form for rows in self.groups.values() for form, _, _ in rows}
        if not forms:
            return []
        live = [
            candidate
            for candidate in gc.get_objects()
            if type(candidate) in self.tensor_types or type(candidate).__name__ == "DTensor"
        ]
        if any(type(candidate) not in self.tensor_types for candidate in live):
            return []
        taken = {tensor.data_ptr() for tensor in known if type(tensor) in self.tensor_types}
        loaded = {address for rows in self.groups.values() for _, _, address in rows}
        claimed = {(form, sample) for rows in self.groups.values() for form, sample, _ in rows}
        kept: dict[int, Any] = {}
        samples_of: dict[Any, set[Any]] = {form: set() for form in forms}
        of_model: dict[Any, set[Any]] = {form: set() for form in forms}
        others: dict[Any, set[Any]] = {form: set() for form in forms}
        for tensor in live[:MAX_LIVE]:
            form, address = _form(tensor), tensor.data_ptr()
            if form not in forms or not tensor.numel() or tensor.is_meta:
                continue
            sample = _sample(tensor)
            if address in loaded:  # or another one in its place
                kept[address] = tensor
                if (form, sample) in claimed:
                    continue
            samples_of[form].add(sample)
            (of_model if address in taken else others)[form].add(sample)
        del live
        lost: dict[Any, tuple[str, int]] = {}
        applied = set()
        for group, all_rows in sorted(self.groups.items()):
            rows = [row for row in all_rows if len(set(row[1])) > 1]
            if not rows:  # one number in all elements tells nothing
                continue
            place = group.partition(": ")[2], tuple(form for form, _, _ in all_rows)
            other = [(form, sample) for form, sample, _ in rows if sample not in samples_of[form]]
            if 2 * len(other) < len(rows):
                applied.add(place)
                continue
            homes = [
                ({home for home in others[form] if (form, home) not in claimed or home in of_model[form]}, form, sample)
                for form, sample in other
            ]
            elsewhere = [
                all(home in of_model[form] or _is_far(home, sample) for home in nearby)
                for nearby, form, sample in homes
            ]
            is_lost = all(nearby for nearby, _, _ in homes) and 2 * sum(elsewhere) >= len(homes)
            if is_lost and not any(self._is_held(group, kept, row[2]) for row in (rows[0], rows[-1])):  # read twice
                lost[place] = group, len(all_rows)
        return [row for place, row in lost.items() if place not in applied]

    def _is_held(self, group: str, kept: dict[int, Any], address: int) -> bool:
        """Whether the program has kept the loaded tensor itself, or its container, beside the whole content."""
        if address not in kept:
            return False
        objects = [kept[address]]
        if group in self.inner:
            objects += [candidate for candidate in gc.get_referrers(objects[0]) if id(candidate) in self.inner[group]]
        return any(
            id(candidate) not in self.containers
            and candidate is not kept
            and candidate is not objects
            and type(candidate) is not FrameType
            for entry in objects
            for candidate in gc.get_referrers(entry)
        )


def _form(tensor: Any) -> Any:
    return tuple(tensor.shape), tensor.dtype


def _sample(tensor: Any) -> Any:
    flat = tensor.detach().reshape(-1)
    numbers = flat[:: max(1, flat.numel() // SAMPLES)][:SAMPLES].tolist()
    return tuple("nan" if isinstance(content, float) and math.isnan(content) else content for content in numbers)


def _is_far(some: Any, loaded: Any) -> bool:
    """Whether these are certainly other values, and not the loaded ones after a step of an average.

    A running mean near zero changes by most of its size in a step, and yet follows the loaded one element by element;
    few elements do not tell, and two of them never.
    """
    pairs = [pair for pair in zip(some, loaded) if "nan" not in pair]
    if sum(abs(a - b) for a, b in pairs) <= FAR * sum(abs(b) for _, b in pairs):
        return False
    centers = [sum(column) / len(pairs) for column in zip(*pairs)]
    centred = [(float(a - centers[0]), float(b - centers[1])) for a, b in pairs]
    of_some, both, of_loaded = (sum(pair[i] * pair[j] for pair in centred) for i, j in ((0, 0), (0, 1), (1, 1)))
    slopes = [min(max(both / (of_loaded or 1.0), least), most) for least, most in (KEPT, NEW)]
    kept, new = (of_some - 2 * slope * both + slope**2 * of_loaded for slope in slopes)
    return len(pairs) > 2 and kept > new * SURE ** (2 / (len(pairs) - 2))
