"""All that is wrong with a program's data and values: causes, separated from their consequences. Pure.

`doctor.analysis.values` tells the ones from the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from doctor.analysis.values.splits import format_ranges, holders_of_same, majority_split, shared_and_unread
from doctor.analysis.values.value_defect import ValueDefect, describe, separate_causes
from doctor.engine.check import Check
from doctor.engine.sanitize import count_noun, printable
from doctor.engine.secrets import hide_secrets
from doctor.engine.texts import beginning, filled
from doctor.watch.data.group_roles import group_roles
from doctor.watch.data.input_rules import input_defects
from doctor.watch.data.records import (
    JobRecords,
    RankValues,
    RecordTable,
    RecordValues,
    by_rank,
    indices_of,
    read_records,
    text_map,
)
from doctor.watch.data.sample_shards import shard_defects, worker_defects
from doctor.watch.data.value_rules import value_defects

_TENSORS = {
    "params": ("smoke-parameters-diverge", "parameters"),
    "gradients": ("smoke-gradient-not-synchronised", "gradients"),
}


def stated_defects(job: JobRecords) -> Iterator[ValueDefect]:
    """The first call of each name that does not hold; calls that a rank has not made yet are not compared."""
    reported: set[Any] = set()
    for kind in ("same", "different"):
        for (name, number, group), records in _calls(job, kind, "n").items():
            if (kind, name, group) in reported or any(rank not in records for rank in group):
                continue
            defect = _value(kind, str(name), number, group, records)
            if defect:
                reported.add((kind, name, group))
                yield defect
    for kind, (check, quantity) in _TENSORS.items():
        for (number, group), records in _calls(job, kind).items():
            tensors = {rank: text_map(records[rank].get("t")) for rank in group if rank in records}
            split = majority_split({rank: str(sorted(values.items())) for rank, values in tensors.items()})
            if split and len(tensors) == len(group) and (kind, group) not in reported:
                reported.add((kind, group))
                template = "call {number} of probe.{kind}: {who} holds other {what} than ranks {group}"
                values = {"number": number, "kind": kind, "what": quantity, "agree": len(split.agreeing)}
                values["group"] = format_ranges(split.agreeing or group)
                yield _stated(check, "stated", number, split.differing, template, values, split.tie)
    for (number, group), records in _calls(job, "shard").items():
        if ("shard", group) not in reported and all(rank in records for rank in group):
            defect = _shard(number, group, records)
            if defect:
                reported.add(("shard", group))
                yield defect


def _calls(job: JobRecords, kind: str, *keys: str) -> RecordTable:
    """Calls by name, number and ranks of the group, in the order of their numbers."""
    everybody = tuple(sorted(job.ranks))
    table: RecordTable = {}
    for key, records in by_rank(job, kind, *keys, "i", "g").items():
        for rank, values in records.items():
            ranks = values.get("ranks")
            group = ranks if isinstance(ranks, tuple) and ranks else everybody
            if rank in group and isinstance(key[-2], int):
                table.setdefault((*key[:-1], group), {})[rank] = values
    return dict(sorted(table.items(), key=lambda item: (item[0][-2], str(item[0]))))


def _value(kind: str, name: str, number: int, group: tuple[int, ...], records: RankValues) -> ValueDefect | None:
    digests = {rank: str(records[rank]["d"]) for rank in group if records[rank].get("d")}
    values: RecordValues = {"name": name, "number": number, "group": format_ranges(group)}
    if kind == "same":
        split = majority_split(digests) if len(digests) == len(group) else None
        if split is None:
            return None
        template = 'call {number} of probe.same("{name}"): {who} has another value than the rest of ranks {group}'
        values["agree"] = len(split.agreeing)
        return _stated("smoke-mask-differs", "stated", number, split.differing, template, values, split.tie)
    alike = sorted(rank for ranks in holders_of_same(digests) for rank in ranks)
    if not alike:
        return None
    template = 'call {number} of probe.different("{name}"): {who} have the same value, among ranks {group}'
    return _stated("smoke-mask-repeated", "stated", number, tuple(alike), template, values)


def _shard(number: int, group: tuple[int, ...], records: RankValues) -> ValueDefect | None:
    sets = {rank: indices_of(records[rank]) for rank in group}
    if any(indices is None for indices in sets.values()):
        return None
    total = records[group[0]].get("total")
    expected = range(total) if isinstance(total, int) and 0 < total <= 1 << 26 else ()
    twice, unread = shared_and_unread({rank: indices or () for rank, indices in sets.items()}, expected)
    values = {"number": number, "twice": format_ranges(list(twice)[:8]), "missing": format_ranges(unread[:8])}
    values |= {"group": format_ranges(group), "count": len(twice), "lost": len(unread)}
    if twice:
        ranks = tuple(sorted({rank for readers in twice.values() for rank in readers}))
        template = "call {number} of probe.shard: {who} read {count} samples twice, such as {twice}"
        if len(twice) == 1:
            template = "call {number} of probe.shard: {who} read sample {twice} twice"
        return _stated("smoke-shards-wrong", "stated", number, ranks, template, values, tie=True)
    if unread:
        template = "call {number} of probe.shard: no rank of {group} reads {lost} samples, such as {missing}"
        if len(unread) == 1:
            template = "call {number} of probe.shard: no rank of {group} reads sample {missing}"
        return _stated("smoke-shards-wrong", "stated missing", number, (), template, values)
    return None


def _stated(
    check: str, kind: str, step: int, ranks: tuple[int, ...], template: str, values: RecordValues, tie: bool = False
) -> ValueDefect:
    """A defect of what the program itself demands: it follows from nothing."""
    return ValueDefect(check, kind, step, ranks, template, values, root=True, tie=tie)


RANDOM = frozenset({"smoke-mask-differs", "smoke-mask-repeated", "smoke-loader-seed-differs"})
"""Defects of random numbers: of the lines that are recorded only those count that seed a generator."""
_SEEDING = {"random.seed": "python", "numpy.random.seed": "numpy", "torch.manual_seed": "torch"}
_RANK = re.compile(r"(?<![\w.\"'])(?:\w{1,20}\.)?(?:\w{1,10}_)?rank(?![\w\"'=(])|\b(?:\w{1,20}\.){0,2}get_rank\(\)")
_FILE = re.compile(r"[\w.-]+", re.ASCII)


class DataReport(msgspec.Struct, frozen=True):
    """What the digests of all ranks show."""

    causes: tuple[ValueDefect, ...]
    consequences: tuple[tuple[ValueDefect, str], ...]
    """Each with the check that holds its cause."""
    notes: tuple[ValueDefect, ...]
    """No findings: what may be meant."""
    inferred: tuple[str, ...]
    """What was taken for granted of the program's groups, in words."""
    unseen: tuple[str, ...]
    """What could not be looked at, in words: it counts as unknown, not as healthy."""
    steps: int
    """Steps that were digested on some rank."""

    def concerns(self, checks: Iterable[Check]) -> bool:
        """Whether a defect is of one of these checks."""
        defects = (*self.causes, *(defect for defect, _ in self.consequences))
        return not {defect.check for defect in defects}.isdisjoint(check.name for check in checks)


def analyze_records(files: Iterable[bytes]) -> DataReport:
    """The report on the files that the processes of a job wrote. Raises nothing.

    Example: ``analyze_records(path.read_bytes() for path in folder.glob("*.probe")).causes``.
    """
    return analyze_job(read_records(files))


def analyze_job(job: JobRecords) -> DataReport:
    """The same, of records that were read before."""
    roles = group_roles(job)
    inputs = list(input_defects(job, roles))
    rules = (shard_defects(job, roles), inputs, worker_defects(job, roles, inputs), value_defects(job, roles))
    defects_found = []
    for defect in chain(*rules, stated_defects(job)):
        places = _seeds(job, defect) if defect.check in RANDOM else _lines(job, defect)
        defects_found.append(msgspec.structs.replace(defect, values={**defect.values, **places}))
    notes = tuple(defect for defect in defects_found if defect.level == "note")
    causes, explained = separate_causes(
        _without_repetition([defect for defect in defects_found if defect.level != "note"])
    )
    steps = len({record.step for entry in job.ranks.values() for record in entry.of("inputs")})
    return DataReport(
        tuple(causes), tuple(explained), notes, tuple(roles.sentences()), tuple(_unseen(job, steps)), steps
    )


def _lines(job: JobRecords, defect: ValueDefect) -> dict[str, str]:
    """Where the program makes or calls what is looked at, on the defect's first rank; empty where no rank tells."""
    entry = job.ranks.get(min(defect.ranks, default=min(job.ranks)))
    records = [record.values for record in entry.of("line")] if entry else []
    calls = [values for values in records if values.get("n") not in _SEEDING]
    texts = (printable(f"{values.get('n')} {values.get('at')}", 130) for values in calls)
    places = ", ".join(dict.fromkeys(texts))
    return {"evidence": filled("Lines of its program: {0}", beginning(places, 600))} if places else {}


def _seeds(job: JobRecords, defect: ValueDefect) -> dict[str, object]:
    """Where the ranks of the defect seed unlike the others, and the command that ends it; empty where no line does."""
    generators = defect.values.get("generators") or list(_SEEDING.values())
    texts: dict[str, object] = {}
    for (name, at, text), seeds in by_rank(job, "line", "n", "at", "text").items():
        file, _, number = str(at).rpartition(":")
        if not isinstance(generators, list) or _SEEDING.get(str(name)) not in generators or not _FILE.fullmatch(file):
            continue
        line, call = printable(str(text), 200), str(name)
        place = filled("{0}:{1} seeds on {2}: `{3}`", file, number, describe(seeds), hide_secrets(line))
        if set(seeds) < set(job.ranks) and set(seeds) <= set(defect.ranks):
            edit = f"{number}s/{_literal(call)}(.*/pass/" if line.count(call) == 1 and line.endswith(")") else ""
        elif len({str(values.get("seed")) for values in seeds.values()}) > 1:
            word, size = next(iter(_RANK.findall(line)), "#"), _model_size(defect, job)
            may_edit = size and line.count(word) == 1 and "#" not in line
            edit = f"{number}s:{_literal(word)}:({word} // {size}):" if may_edit else ""
        else:
            continue
        texts = {"evidence": place}
        if edit:
            command = filled(
                "In the folder of {0}: `{1}`, then start the program again.", file, f"sed -i.bak '{edit}' {file}"
            )
            return {**texts, "corrected": [command]}
    return texts


def _literal(text: str) -> str:
    """A name or a call as sed's basic expressions read it: a bracket stands for itself there."""
    return text.replace(".", r"\.")


def _model_size(defect: ValueDefect, job: JobRecords) -> int:
    """Ranks of each model, where those of one follow each other; 0 where that is not so, or not known."""
    match defect.values.get("members"):
        case [int(first), *_] as ranks if len(ranks) > 1 and first % len(ranks) == 0:
            follow = ranks == list(range(first, first + len(ranks)))
            return len(ranks) if follow and len(job.ranks) % len(ranks) == 0 else 0
    return 0


def _without_repetition(defects: list[ValueDefect]) -> list[ValueDefect]:
    """One defect of each check and kind, the clearest of all groups; ranks of clear ones are put together."""
    merged: dict[tuple[str, str, str], ValueDefect] = {}
    for defect in sorted(defects, key=lambda entry: (entry.tie, entry.step)):
        key = (defect.check, defect.kind, str(defect.values.get("name", "")))
        earlier = merged.get(key)
        if earlier is None:
            merged[key] = defect
        elif not earlier.tie and not defect.tie and earlier.ranks and earlier.step == defect.step:
            merged[key] = msgspec.structs.replace(earlier, ranks=tuple(sorted({*earlier.ranks, *defect.ranks})))
    return list(merged.values())


def _unseen(job: JobRecords, steps: int) -> list[str]:
    texts = [filled("a hook failed: {0}", text) for text in job.failed]
    if job.unreadable:
        lines = count_noun(job.unreadable, "line")
        texts.append(filled("{0} of digests could not be read", lines))
    if job.cut:
        ranks = count_noun(len(set(job.cut)), "rank")
        texts.append(filled("the digests of {0} are not complete: a file was full, or a hook ended itself", ranks))
    notes = {note.values.get("text") for entry in job.ranks.values() for note in entry.of("note")}
    if "compiled" in notes:
        texts.append("gradients, modules and, after module.compile(), inputs of compiled models were not looked into")
    if "joined" in notes:
        texts.append("nothing was compared behind a Join, where ranks have taken unlike numbers of steps")
    silent = sorted(rank for rank, entry in job.ranks.items() if not any(entry.of("inputs")))
    if steps and silent:
        ranks = (
            f"rank {silent[0]}" if len(silent) == 1 else filled("{0} ranks, the first is {1}", len(silent), silent[0])
        )
        texts.append(filled("no forward pass was seen on {0}", ranks))
    return texts
