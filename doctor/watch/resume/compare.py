"""From the marks of saves, and of a training's begin, to what was lost between them. Pure.

The save that a training goes on from is recognized by the file that it loads, or by its parameters: at least half of
those that are trained are as that save had them. What was lost is an error where the checkpoint held it, or a part of
it alone was lost, and something else was restored; a warning where the checkpoint did not hold it; and where nothing
but parameters was taken, it may be a new training on purpose: a warning in the same script, else a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from doctor.engine.sanitize import printable
from doctor.engine.watch_summary import ResumeDifference, ResumeReport
from doctor.watch.data.group_roles import name_tensors
from doctor.watch.resume.compare_counts import JUDGES, other_numbers, step_counts
from doctor.watch.resume.compare_data import Row, Values, data_differences, own_generators
from doctor.watch.resume.kept_saves import KeptSave
from doctor.watch.resume.marks import Mark, Tensors, joined_tensors, row_of

SAME_SAVE_SECONDS = 600.0
"""Between the marks of one save on different hosts."""
LEAST_SHARE = 0.5
ZERO = "0" * 16
LAUNCHERS = ("torch.distributed.", "accelerate.", "deepspeed.")


class Save(msgspec.Struct):
    """One save, of all hosts that are known of."""

    command: str
    step: int
    world: int
    at: float
    marks: dict[int, Mark]
    model: Tensors
    states: Tensors
    buffers: Tensors

    @property
    def first(self) -> Mark:
        """Of the lowest rank that saved itself."""
        return next(
            (mark for _, mark in sorted(self.marks.items()) if not mark.is_told), next(iter(self.marks.values()))
        )

    @property
    def parts(self) -> set[str]:
        return {part for mark in self.marks.values() for part in mark.parts}

    @property
    def label(self) -> int:
        """The step as the optimizer counts it; as this run counted it, where it does not."""
        return int(max(step_counts(self.first.numbers), default=self.step))


def joined_saves(saves: Iterable[KeptSave]) -> list[Save]:
    """The saves of several hosts put together, the newest first."""
    groups: list[list[KeptSave]] = []
    for save in sorted(saves, key=lambda entry: -entry.at):
        for group in groups:
            first = group[0]
            if (first.command, first.step, first.world) == (save.command, save.step, save.world) and (
                first.at - save.at < SAME_SAVE_SECONDS and save.host not in {entry.host for entry in group}
            ):
                group.append(save)
                break
        else:
            groups.append([save])
    return [_joined(group) for group in groups if any(entry.marks for entry in group)]


def _joined(group: Sequence[KeptSave]) -> Save:
    marks = {mark.r: mark for entry in group for mark in entry.marks}
    first, passes = group[0], max((mark.open for mark in marks.values()), default=0)
    for mark in marks.values():
        mark.open = passes if mark.is_told else mark.open
    return Save(first.command, first.step, first.world, first.at, marks, *_tensors(marks, first.world))


def _tensors(marks: Mapping[int, Mark], world: int) -> tuple[Tensors, Tensors, Tensors]:
    """Parameters, the optimizer's state, buffers; without ranks that told of their generators and data alone."""
    read = {rank: mark for rank, mark in marks.items() if mark.model or mark.states or mark.buffers}
    parts = ({rank: getattr(mark, name) for rank, mark in read.items()} for name in ("model", "states", "buffers"))
    model, states, buffers = (joined_tensors(tables, world) for tables in parts)
    return model, states, buffers


def compare_with_saves(begun: Mapping[int, Mark], saves: Sequence[Save], script: str) -> ResumeReport | None:
    """What the ranks begin with against the save that they go on from; None where they go on from none that is kept.

    ``script``: what `script_of` makes of the command.
    """
    loads = {path for mark in begun.values() for _, path in mark.loads if path}
    has_loaded = any(mark.loads for mark in begun.values())
    model = _tensors(begun, begun[min(begun)].w)[0]
    ranked = sorted(
        ((_share(model, save), _is_of(loads, save), save.at, number) for number, save in enumerate(saves)), reverse=True
    )
    chosen = next((row for row in ranked if row[0] >= LEAST_SHARE), None) or next(
        (row for row in ranked if row[1]), None
    )
    if chosen is None or not (has_loaded or chosen[0] >= LEAST_SHARE):
        return None
    comparison = _Comparison(begun, saves[chosen[3]], script, saves)
    return None if chosen[0] < LEAST_SHARE and comparison.is_of_another_training() else comparison.report()


def script_of(command: str) -> str:
    """The program of a command line: its first word that ends in ``.py``, or that follows ``-m``; else all of it.

    >>> script_of("torchrun --nproc-per-node 2 /home/a/train.py --lr 1")
    'train.py'
    >>> script_of("python -m torch.distributed.run -m team.train --lr 1")
    'team.train'
    """
    parts = command.split()
    modules = [name for flag, name in pairwise(parts) if flag == "-m" and not name.startswith(LAUNCHERS)]
    named = next((part for part in parts if part.endswith(".py")), next(iter(modules), ""))
    return named.rpartition("/")[2] if named else command


def _is_of(loads: set[str], save: Save) -> bool:
    """Whether one of these paths is a file of this checkpoint, or in its folder."""
    return any(
        path == load or path.startswith(load + "/")
        for mark in save.marks.values()
        for path in mark.paths
        for load in loads
    )


def _trained(save: Save) -> list[str]:
    names = {name for mark in save.marks.values() for name in mark.trained} & save.model.names
    return sorted(names or save.model.names)


def _share(model: Tensors, save: Save) -> float:
    """Of the parameters that the save trained, those that are as they were."""
    names = [name for name in _trained(save) if model.alike(save.model, name) is not None]
    return sum(model.alike(save.model, name) is True for name in names) / len(names) if names else 0.0


class _Comparison:
    def __init__(self, begun: Mapping[int, Mark], save: Save, script: str, saves: Sequence[Save]) -> None:
        self.begun, self.save, self.saves = begun, save, saves
        self.model, self.states, self.buffers = _tensors(begun, begun[min(begun)].w)
        self.now = begun[min(begun)]
        self.before = save.first
        self.is_same_script = script == script_of(save.command)
        self.step = save.label
        self.uncompared: list[str] = []
        self.is_cast = any(self.model.other_type(save.model, name) for name in self.model.names)

    def is_of_another_training(self) -> bool:
        """Whether the file was written anew since: the model took all that it loaded, and no tensor is of this save."""
        took_all = any(part == "model" for mark in self.begun.values() for part, _ in mark.loads)
        pairs = ((self.model, self.save.model), (self.states, self.save.states))
        alike = any(
            now.alike(before, name) is True
            or not {*now.by_rank(name).values()}.isdisjoint(before.by_rank(name).values())
            for now, before in pairs
            for name in now.names & before.names
            if before.complete.get(name, ("",))[0] != ZERO
        )
        is_same_cast = self.is_cast and self.now.numbers == self.before.numbers != {}
        return took_all and not (alike or is_same_cast) and not any(mark.unloaded for mark in self.begun.values())

    def report(self) -> ResumeReport:
        judges = (self._files, self._parameters, self._replaced, self._modes, self._unapplied, self._optimizer)
        rows = [row for judge in (*judges, self._generators) for row in judge()]
        kinds = {row[0] for row in rows}
        counts = (row for judge in JUDGES for row in judge(self.before, self.now, self.is_same_script))
        rows += [row for row in counts if not (row[0] == "steps" and "moments-new" in kinds)]
        rows += [
            *data_differences(self.begun, self.save.marks, self.save.world),
            *own_generators(self.begun, self.save.marks),
        ]
        if self.save.world != self.now.w:
            rows.append(("ranks", "note", (), {"now": self.now.w, "before": self.save.world}))
        elif absent := tuple(sorted(self.begun.keys() - self.save.marks.keys())):
            rows.append(("unrecorded", "note", absent, {}))
        restored = self._restored({row[0] for row in rows})
        differences = tuple(
            ResumeDifference(kind, self._level(hardness, restored), ranks, {**values, "step": self.step})
            for kind, hardness, ranks, values in rows
        )
        for mark in (*self.begun.values(), *self.save.marks.values()):
            self.uncompared += mark.unread
        return ResumeReport(self.step, differences, tuple(dict.fromkeys(self.uncompared))[:16])

    def _restored(self, lost: set[str]) -> bool:
        """Whether anything but parameters was taken over, or the program set out to do so."""
        attempted = any(
            part in {"optimizer", "scheduler", "scaler"} for mark in self.begun.values() for part, _ in mark.loads
        )
        has_states = bool(self.save.states.names) and not {"moments-new"} & lost
        sets = any(
            saved.g.get(name, "") in digests
            for mark in self.begun.values()
            for name, digests in mark.set.items()
            for saved in self.save.marks.values()
        )
        return attempted or (has_states and bool(self.states.names)) or sets

    def _level(self, hardness: str, restored: bool) -> Literal["error", "warning", "note"]:
        """``hardness``: ``hard``: never meant; ``soft``: no error where the checkpoint did not hold it; ``note``;
        or the part of the checkpoint that is to hold it.
        """
        if hardness == "note":
            return "note"
        if not restored:
            return "warning" if self.is_same_script and hardness != "faint" else "note"
        if hardness == "hard" or (hardness not in {"soft", "faint"} and hardness in self.save.parts):
            return "error"
        return "note" if hardness in {"faint", "generators"} else "warning"

    # Each: kind, hardness, ranks, values

    def _files(self) -> Iterator[Row]:
        """Ranks that load another save than others, or, where each has its parts, the file of one that does not."""
        marks = self.save.marks
        writers = {
            path: (save.label, rank)
            for save in reversed(self.saves)
            for rank, mark in save.marks.items()
            for path in mark.paths
        }
        ranks_of: dict[tuple[int, int], list[int]] = {}
        for rank, mark in sorted(self.begun.items()):
            loaded = {path for _, path in mark.loads}
            saved = marks[rank].paths if rank in marks else []
            writer = max((writers[path] for path in loaded & writers.keys()), default=None)
            if writer is not None:
                ranks_of.setdefault((self.step, rank) if loaded.intersection(saved) else writer, []).append(rank)
        in_parts = self.save.model.uneven or any(len(row) > 4 for row in self.before.model.values())
        for (step, other), ranks in ranks_of.items():
            if step != self.step and any(at == self.step for at, _ in ranks_of):
                yield "file-step", "hard", tuple(ranks), {"now": step}
            elif step == self.step and in_parts and other not in ranks and all(marks[rank].paths for rank in ranks):
                yield "file-rank", "hard", tuple(ranks), {"other": other}

    def _modes(self) -> Iterator[Row]:
        """Parameters that are trained, and modules in evaluation mode, unlike all the time in the run that saved."""
        frozen = {*self.before.frozen} & {*self.before.frozen0} & self.model.names
        if self.before.evaluating0 is None:
            return
        evaluating = {*self.now.evaluating}.difference(self.before.evaluating0)
        for kind, names in (("unfrozen", frozen.difference(self.now.frozen)), ("evaluating", evaluating)):
            if names:
                yield kind, "soft" if self.is_same_script else "note", (), {"tensors": name_tensors(sorted(names))}

    def _parameters(self) -> Iterator[Row]:
        for kind, now, before in (
            ("parameters", self.model, self.save.model),
            ("buffers", self.buffers, self.save.buffers),
        ):
            names = sorted(now.names & before.names)
            alike = {name: now.alike(before, name) for name in names}
            yield from self._unknown(now, before, [name for name in names if alike[name] is None])
            comparable = [name for name in names if alike[name] is not None]
            other = [name for name in comparable if alike[name] is False]
            ranks = _other_ranks(now, before, other)
            is_of_some = 0 < len(ranks) < len(self.begun)
            if kind == "parameters" and comparable and len(other) == len(comparable) and not is_of_some:
                hardness = "hard" if self.now.unloaded else "soft"
                yield "parameters-none", hardness, (), {"count": len(comparable)}
                return
            if other:
                values: Values = {"count": len(other), "total": len(comparable), "tensors": name_tensors(other)}
                yield kind, "hard", ranks, values
            added = sorted(now.names - before.names) if kind == "parameters" else []
            held = {now.complete[name]: name for name in _trained(self.save) if name in now.complete}
            untied = [name for name in added if now.complete.get(name) in held]
            if untied:
                values = {"tensors": name_tensors(untied), "other": held[now.complete[untied[0]]]}
                yield "parameters-untied", "soft", (), values
            if added := [name for name in added if name not in untied]:
                yield "parameters-added", "note", (), {"count": len(added), "tensors": name_tensors(added)}

    def _unknown(self, now: Tensors, before: Tensors, names: Sequence[str]) -> Iterator[Row]:
        """Tensors whose values cannot be compared: of another type, or for a reason that is not known."""
        types = {name: pair for name in sorted(names) if (pair := now.other_type(before, name))}
        for after, was in dict.fromkeys(types.values()):
            cast = [name for name, pair in types.items() if pair == (after, was)]
            yield "cast", "note", (), {"tensors": name_tensors(cast), "now": after, "before": was}
        if unknown := sorted(set(names) - types.keys()):
            self.uncompared.append(name_tensors(unknown))

    def _optimizer(self) -> Iterator[Row]:
        before, now = self.save.states, self.states
        filled = [name for name in before.names if before.complete.get(name, ("",))[0] != ZERO]
        if not filled:
            groups = self.before.groups or [{"betas": 0}]  # of Adam's kind; SGD keeps some with momentum
            has_moments = any("betas" in group or group.get("momentum", 0) not in (0, None) for group in groups)
            if "optimizer" in self.save.parts and has_moments:
                self.uncompared.append("the optimizer's moments")
            return
        kept = [name for name in filled if name in now.names]
        if not kept and self.states.names:  # states that are there, of parameters whose names are not known
            self.uncompared.append(name_tensors(sorted(filled)))
            return
        zero = [name for name in kept if now.complete.get(name, ("",))[0] == ZERO]
        if len(zero) == len(kept):
            yield "moments-new", "optimizer", (), {}
            return
        alike = {name: now.alike(before, name) for name in filled}
        yield from self._unknown(now, before, [name for name in filled if alike[name] is None and name in now.names])
        other = sorted(name for name in filled if alike[name] is False or name not in now.names)
        ranks = _other_ranks(now, before, other)
        if not other and (ranks := self._ranks_without(filled)):
            other = filled
        if not (other or ranks):
            other = other_numbers(self.before.numbers, self.now.numbers)
        if other:
            values: Values = {"count": len(other), "total": len(filled), "tensors": name_tensors(other)}
            yield "moments", "hard", ranks, values

    def _ranks_without(self, names: Sequence[str]) -> tuple[int, ...]:
        """Ranks that hold the saved parameters as a whole, and other moments than the saved ones, or none.

        ``names``: of the moments, which the lowest rank holds as they were saved.
        """
        model, states = self.save.model.complete, self.save.states.complete
        names = [name for name in names if name not in self.save.states.uneven]  # of each rank, `other_ranks` judges
        if not (model.keys() >= self.model.names and states.keys() >= set(names)):
            return ()
        return tuple(
            rank
            for rank, mark in sorted(self.begun.items())
            if mark.model
            and all(row_of(mark.model, name) == model[name] for name in self.model.names)
            and (not mark.states or any(row_of(mark.states, name) not in {None, states[name]} for name in names))
        )

    def _replaced(self) -> Iterator[Row]:
        """Parameters in whose place the optimizer holds other tensors: the model got new ones after it was made."""
        trained, extra = _held(self.now.trained, self.model)
        before, extra_before = _held(self.before.trained, self.save.model)
        lost = sorted((before & self.model.names) - trained)
        same_type = all(
            self.model.complete.get(name, ("", ""))[1] == self.save.model.complete[name][1]
            for name in lost
            if name in self.save.model.complete
        )
        if lost and same_type and len(extra) - len(extra_before) == len(lost):
            yield "parameters-replaced", "hard", (), {"count": len(lost), "tensors": name_tensors(lost)}

    def _unapplied(self) -> Iterator[Row]:
        """What the checkpoint holds besides, such as an average of the parameters, and the program has otherwise."""
        ranks_of: dict[tuple[str, int], list[int]] = {}
        for rank, mark in sorted(self.begun.items()):
            for name, count in mark.unapplied[:16] if not self.is_cast else ():
                ranks_of.setdefault((printable(name, 120), count), []).append(rank)
        for (name, count), ranks in sorted(ranks_of.items()):
            everywhere = () if len(ranks) == len(self.begun) else tuple(ranks)
            yield "unapplied", "soft", everywhere, {"name": name, "count": count}

    def _generators(self) -> Iterator[Row]:
        if self.save.world != self.now.w:
            return
        lost: dict[tuple[str, ...], list[int]] = {}
        taken: dict[tuple[str, int], list[int]] = {}
        both = sorted(self.begun.keys() & self.save.marks.keys())
        # What a rank that did not save itself has drawn since the step is not known; that it sets nothing is.
        pairs = [(self.begun[rank].set, self.save.marks[rank].g) for rank in both]
        restored = {name for digests, saved in pairs for name in digests if saved.get(name, "") in digests[name]}
        for rank in both:
            mark, saved, names = self.begun[rank], self.save.marks[rank], []
            seeded_each_step = {*mark.seeded} & {*saved.seeded}
            for name, digest in saved.g.items():
                if name in seeded_each_step:
                    continue
                candidates = {mark.g.get(name, ""), *mark.set.get(name, ())}
                is_seeded_again = mark.g.get(name) == saved.g0.get(name) != digest
                if digest in candidates and not is_seeded_again and name not in mark.seeded:
                    continue
                other = next((at for at in both if self.save.marks[at].g.get(name) in candidates - {digest}), None)
                if other is not None:
                    taken.setdefault((name, other), []).append(rank)
                elif digest != saved.g0.get(name) and (
                    not saved.is_told or (name in restored and name not in mark.set)
                ):
                    names.append(name)
            if names:
                lost.setdefault(tuple(names), []).append(rank)
        for names_lost, ranks in sorted(lost.items()):
            yield "generators", "generators", tuple(ranks), {"names": ", ".join(names_lost)}
        for (name, other), ranks in sorted(taken.items()):
            yield "generators-rank", "hard", tuple(ranks), {"names": name, "other": other}


def _held(trained: Iterable[str], model: Tensors) -> tuple[set[str], set[str]]:
    """Of what an optimizer holds: the model's parameters, and the rest."""
    held = set(trained)
    return held & model.names, held - model.names


def _other_ranks(now: Tensors, before: Tensors, names: Iterable[str]) -> tuple[int, ...]:
    return tuple(sorted({rank for name in names for rank in now.other_ranks(before, name)}))
