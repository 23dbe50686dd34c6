"""A diagnosis for people: the sentence that is read out first, then the proof."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping

from doctor.diagnose.cause import Cause, Culprit, Diagnosis, Waiting
from doctor.diagnose.events import Event
from doctor.diagnose.render.document import checked_lines, format_time, playbook_names, verdict
from doctor.diagnose.rules.named import count_ranks
from doctor.diagnose.signature import Signature
from doctor.engine.record import redact
from doctor.engine.sanitize import count_noun
from doctor.transport.messages import format_size

MAX_ITEMS = 3
"""Likely causes, commands and fixes of a cause without ``--verbose``."""
MAX_WAITING = 6
MAX_EARLIER = 3
"""Earlier jobs that are shown without ``--verbose``."""
_LABEL = 10
"""Columns of a label such as ``proof``."""


def render_text(
    diagnosis: Diagnosis,
    signatures: Mapping[str, Signature],
    playbooks: Mapping[str, tuple[str, ...]],
    width: int,
    *,
    bold: bool = False,
    verbose: bool = False,
) -> str:
    """The report, in lines of at most ``width`` columns where words allow; 0: lines are not folded."""
    lines = _job_lines(diagnosis, signatures, playbooks, width, bold, verbose)
    for job in diagnosis.earlier if verbose else diagnosis.earlier[:MAX_EARLIER]:
        lines += ["", *_earlier_heading(job, width), *_job_lines(job, signatures, playbooks, width, bold, verbose)]
    if len(diagnosis.earlier) > MAX_EARLIER and not verbose:
        lines += ["", f"{len(diagnosis.earlier) - MAX_EARLIER} earlier jobs more (--verbose)"]
    return "\n".join(lines) + "\n"


def _earlier_heading(job: Diagnosis, width: int) -> list[str]:
    """Of a job whose logs lie beside those of the newest."""
    starts = [summary.first_time for summary in job.files if summary.first_time is not None]
    ends = [summary.last_time for summary in job.files if summary.last_time is not None]
    first, last = format_time(min(starts, default=None)), format_time(max(ends, default=None))
    span = f", {first[:19]} to {last[:19]}" if first and last else ""
    return _folded(f"An earlier job{span}:", width, "")


def _job_lines(
    diagnosis: Diagnosis,
    signatures: Mapping[str, Signature],
    playbooks: Mapping[str, tuple[str, ...]],
    width: int,
    bold: bool,
    verbose: bool,
) -> list[str]:
    lines = [*_folded(headline(diagnosis), width, "")]
    if bold and lines:
        lines = [f"\x1b[1m{line}\x1b[0m" for line in lines]
    for number, cause in enumerate(diagnosis.causes, 1):
        lines += ["", *_cause_lines(diagnosis, signatures, playbooks, cause, number, width, verbose)]
    if diagnosis.waiting:
        lines += ["", *_waiting_lines(diagnosis, signatures, width, verbose)]
    if diagnosis.undecidable:
        lines.append("")
        for item in diagnosis.undecidable.needed:
            lines += _labelled("decides", [item], width)
    lines += ["", *_file_lines(diagnosis, width, verbose)]
    return [*lines, *_labelled("earlier" if diagnosis.attempts else "", attempt_lines(diagnosis, verbose), width)]


def attempt_lines(diagnosis: Diagnosis, verbose: bool = False) -> list[str]:
    """One line for each earlier attempt of the job, and for each job before it in the same file."""
    shown = diagnosis.attempts if verbose else diagnosis.attempts[:MAX_EARLIER]
    lines = []
    for attempt in shown:
        files = [summary for summary in attempt.diagnosis.files if summary.last_line]
        where = f" ({files[0].name}:{files[0].first_line}-{files[0].last_line})" if len(files) == 1 else ""
        kind = "another job" if attempt.is_job else "an attempt that was started again"
        what = "the same cause" if attempt.same else headline(attempt.diagnosis)
        lines.append(f"{kind}{where}: {what}")
    more = len(diagnosis.attempts) - len(shown)
    return lines + ([f"and {more} more (--verbose)"] if more else [])


def headline(diagnosis: Diagnosis) -> str:
    """The sentence that is read out first."""
    if diagnosis.causes:
        first = diagnosis.causes[0]
        doubt = {"certain": "", "likely": "Most likely: ", "possible": "Possibly: "}[first.confidence]
        more = len(diagnosis.causes) - 1
        rest = f" ({count_noun(more, 'further cause')} below)" if more else ""
        return f"{doubt}{first.summary}.{rest}"
    if diagnosis.undecidable:
        return f"Undecidable: {diagnosis.undecidable.reason}."
    files = count_noun(len(diagnosis.files), "file")
    if diagnosis.unread and not any(summary.lines for summary in diagnosis.files):
        return "Undecidable: no log could be read."
    if not any(summary.lines for summary in diagnosis.files):
        return f"No log to read: {files} without a line."
    if verdict(diagnosis) == "ended-well":
        return f"No failure: the run ended well ({files})."
    if diagnosis.failed:
        return f"Undecidable: the logs show errors without a cause ({files})."
    return f"No failure in {files}, and no line shows that the run ended well: a rank that was killed writes nothing."


def _cause_lines(
    diagnosis: Diagnosis,
    signatures: Mapping[str, Signature],
    playbooks: Mapping[str, tuple[str, ...]],
    cause: Cause,
    number: int,
    width: int,
    verbose: bool,
) -> Iterator[str]:
    signature = signatures[cause.signature]
    code = f", {signature.codes[0]}" if signature.codes else ""
    heading = f"cause {number}" if len(diagnosis.causes) > 1 else "cause"
    yield from _labelled(heading, [f"{signature.title} ({signature.id}{code})"], width)
    yield from _labelled("who", [_names(cause.culprits, verbose) or "the job as a whole"], width)
    yield from _labelled("rule", [f"{cause.rule}; {cause.confidence}"], width)
    yield from _labelled("proof", [_quoted(diagnosis, event) for event in cause.evidence], width)
    limit = 100 if verbose else MAX_ITEMS
    yield from _labelled("why", signature.causes[:limit], width)
    yield from _labelled("confirm", signature.confirm[:limit], width)
    yield from _labelled("fix", signature.fix[:limit], width)
    names = playbook_names(signature, playbooks)
    if names:
        yield from _labelled("playbooks", [", ".join(names[:limit]) + " (doctor explain NAME)"], width)
    if number <= len(diagnosis.checked):
        yield from _labelled("now", checked_lines(diagnosis.checked[number - 1]), width)
    elif signature.checks:
        yield from _labelled(
            "before", ["doctor check" + "".join(f" --select {name}" for name in signature.checks[:4])], width
        )


def _names(culprits: tuple[Culprit, ...], verbose: bool) -> str:
    limit = 100 if verbose else 8
    names = [culprit.name for culprit in culprits[:limit]]
    more = len(culprits) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def _quoted(diagnosis: Diagnosis, event: Event) -> str:
    time = format_time(event.time)
    stamp = f" {time[11:]}" if time and not event.inferred_time else ""
    return f"{diagnosis.files[event.file].name}:{event.line}{stamp}: {redact(event.text)}"


def _waiting_lines(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], width: int, verbose: bool
) -> Iterator[str]:
    total = sum(len(item.culprits) for item in diagnosis.waiting)
    listed = diagnosis.waiting if verbose else diagnosis.waiting[:MAX_WAITING]
    rows = [f"{_who(item)}: {signatures[item.signature].title}" for item in listed]
    if len(diagnosis.waiting) > len(listed):
        rows.append(f"and {count_noun(len(diagnosis.waiting) - len(listed), 'kind')} more")
    yield from _labelled("waited" if diagnosis.causes else f"{total} report", rows, width)


def _who(item: Waiting) -> str:
    ranks = [culprit.rank for culprit in item.culprits if culprit.rank is not None]
    if len(ranks) == len(item.culprits):
        return count_ranks(ranks)
    return item.culprits[0].name if len(item.culprits) == 1 else f"{len(item.culprits)} processes"


def _file_lines(diagnosis: Diagnosis, width: int, verbose: bool) -> Iterator[str]:
    size = sum(summary.bytes for summary in diagnosis.files)
    world = f" of {diagnosis.world_size} ranks" if diagnosis.world_size else ""
    lines = sum(summary.lines for summary in diagnosis.files)
    text = f"{count_noun(len(diagnosis.files), 'file')}, {count_noun(lines, 'line')}, {format_size(size)}; "
    text += f"{diagnosis.processes} process{'' if diagnosis.processes == 1 else 'es'}{world}"
    yield from _labelled("read", [text], width)
    if diagnosis.source:
        yield from _labelled("from", [diagnosis.source], width)
    yield from _labelled("unread", _limited(diagnosis.unread, verbose), width)
    yield from _labelled("note", _limited(diagnosis.notes, verbose), width)
    if not diagnosis.clocks_comparable:
        yield from _labelled("clocks", ["differ between hosts: times of different hosts were not compared"], width)
    noted = [summary for summary in diagnosis.files if summary.notes]
    limit = len(noted) if verbose else 4
    for summary in noted[:limit]:
        yield from _labelled("note", [f"{summary.name}: {'; '.join(summary.notes)}"], width)
    if len(noted) > limit:
        yield from _labelled("note", [f"{len(noted) - limit} more files have notes (--verbose)"], width)


def _limited(items: tuple[str, ...], verbose: bool) -> list[str]:
    limit = len(items) if verbose else MAX_WAITING
    more = len(items) - limit
    return [*items[:limit], *([f"and {more} more (--verbose)"] if more > 0 else [])]


def _labelled(label: str, items: Iterable[str], width: int) -> Iterator[str]:
    """The items, the first beside the label, all indented alike."""
    for item in items:
        indent = " " * (_LABEL + 2)
        folded = _folded(item, width, indent)
        first = f"  {label:<{_LABEL}}{folded[0].lstrip() if folded else ''}"
        yield first.rstrip()
        yield from folded[1:]
        label = ""


def _folded(text: str, width: int, indent: str) -> list[str]:
    if not width:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
