"""What a resumed training must have as its checkpoint had it: which quantity, and what is said where it has not. Pure.

A row is all that a kind of loss needs; who compared what, and how sure it is that the loss was not meant, the source
says (`ResumeDifference.level`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from doctor.analysis.values.value_defect import describe
from doctor.engine.result import Finding
from doctor.engine.texts import filled, joined
from doctor.engine.watch_summary import ResumeDifference, ResumeReport, WatchResult

CHECK = "resume-state-lost"

TEMPLATES: Mapping[str, str] = {
    "file-step": "{who} loads what step {now} saved, and the others load what step {step} saved",
    "file-rank": "{who} loads the file that rank {other} saved at step {step}, and not its own: each rank has other "
    "parts of the model",
    "parameters-none": "none of the {count} parameters is as step {step} saved it: what was loaded was not applied, or "
    "other values were meant",
    "parameters": "{count} of {total} parameters are not as step {step} saved them: {tensors}",
    "parameters-replaced": "the optimizer holds other tensors in the place of {count} parameters, and never updates "
    "these: {tensors}",
    "parameters-added": "{count} parameters are not among those that step {step} saved: {tensors}",
    "parameters-untied": "no longer tied to {other}, as at the save of step {step}: {tensors}",
    "unfrozen": "frozen until the save of step {step}, and trained now: {tensors}",
    "evaluating": "in evaluation mode, unlike in the run that saved step {step}: {tensors}",
    "cast": "of type {now}, and of type {before} at the save of step {step}, so values were not compared: {tensors}",
    "unapplied": "{who}: the checkpoint holds {name} ({count} tensors), and no tensor of the program has these values: "
    "others of their shapes are there",
    "buffers": "{count} of {total} buffers are not as step {step} saved them: {tensors}",
    "moments-new": "the optimizer's moments are new: it begins without the state that it had at the save of step "
    "{step}",
    "moments": "{count} of {total} tensors of the optimizer's state are not as step {step} saved them: {tensors}",
    "steps": "the optimizer's step count is {now}, and was {before} at the save of step {step}",
    "rate-restart": "the learning rate starts again at {now}, as at the begin of the first run; at the save of step "
    "{step} it was {before}",
    "rate": "the learning rate is {now}, and was {before} at the save of step {step}",
    "settings": "{name} of the optimizer is {now}, and was {before} at the save of step {step}",
    "scheduler": "the scheduler {name} counts from {now}, and was at {before} at the save of step {step}",
    "scaler": "the gradient scaler begins at a scale of {now}, and had {before} at the save of step {step}",
    "generators": "{who}: the {names} generator is not in the state of the save of step {step}",
    "generators-rank": "{who} begins with the {names} generator of rank {other}: all of them draw the same numbers",
    "gradients": "{who} goes on after {count} batches whose gradients no step had used at the save of step {step}, and "
    "begins without these gradients",
    "data-again": "the data begin again: {who} gets the first batch of the epoch, and {given} of its batches were used "
    "before the save of step {step}",
    "data-repeated": "{who} gets {count} of {total} samples again that were used in this epoch before the save of step "
    "{step}",
    "data-epoch": "{who} reads the data in the order of an epoch that was over at the save of step {step}",
    "data-other": "{who} does not begin with the batch that came after the save of step {step}",
    "data-workers": "{now} workers read the data of {who}, and {before} did at the save of step {step}: of an iterable "
    "data set the samples come in another order",
    "inputs-again": "the data begin again: the first input of {who} is that of the first run's first step, not the one "
    "that came after the save of step {step}",
    "inputs-other": "the first input of {who} is not the one that came after the save of step {step}: the place in the "
    "data, or a generator of the program's own, is another",
    "ranks": "{now} ranks go on from step {step}, which {before} ranks saved: generators, and where each rank was in "
    "the data, were not compared",
    "unrecorded": "{who} recorded nothing at the save of step {step}: generators and the place in the data were not "
    "compared",
}  # fmt: skip
"""By kind of difference, in the order in which they are shown."""
SETTINGS = frozenset({"cast", "rate", "settings"})
"""What a user sets, and sees at once where it is another."""


def resume_findings(watch: WatchResult) -> Iterator[Finding]:
    """What was lost, by the ranks' hosts. A note is no finding: it may be meant."""
    for row in _ordered(watch.resumed):
        if row.level == "note":
            continue
        ranks = [rank for rank in row.ranks or watch.hosts if rank in watch.hosts]
        hosts = tuple(dict.fromkeys(watch.hosts[rank] for rank in ranks))
        template, values = _text(row)
        finding = Finding(template, hosts=hosts, **values, ranks=list(row.ranks))
        yield finding.as_warning(row.level == "warning")


def resume_notes(report: ResumeReport) -> tuple[str, ...]:
    """What differs and may be meant, and what could not be compared."""
    notes = [text for row, text in _texts(report) if row.level == "note"]
    notes += [filled("not compared with the save of step {0}: {1}", report.step, text) for text in report.uncompared]
    return (_head(report), *dict.fromkeys(notes))


def resume_lines(report: ResumeReport) -> list[str]:
    """What was lost, each in a line, for a job that runs; in the last one, which settings are others."""
    settings = [text for row, text in _texts(report) if row.level == "note" and row.kind in SETTINGS]
    lines = [filled("{0}: {1}", CHECK, text) for row, text in _texts(report) if row.level != "note"]
    return [*lines, joined("; ", (_head(report), *dict.fromkeys(settings)))] if settings else lines


def _head(report: ResumeReport) -> str:
    return filled("this training goes on from what step {0} saved", report.step)


def is_lost(report: ResumeReport) -> bool:
    """Whether anything was lost that is more than a note."""
    return any(row.level != "note" for row in report.differences)


def _ordered(report: ResumeReport | None) -> list[ResumeDifference]:
    order = list(TEMPLATES)
    rows = [row for row in (report.differences if report else ()) if row.kind in TEMPLATES]
    return sorted(rows, key=lambda row: order.index(row.kind))


def _texts(report: ResumeReport) -> list[tuple[ResumeDifference, str]]:
    return [(row, filled(template, **values)) for row in _ordered(report) for template, values in [_text(row)]]


def _text(row: ResumeDifference) -> tuple[str, dict[str, object]]:
    template = TEMPLATES[row.kind]
    values: dict[str, object] = {**row.values, "who": describe(row.ranks)}
    if row.ranks and "{who}" not in template:  # of these ranks alone
        return "{who}: {text}", {**values, "text": filled(template, **values)}
    return template, values
