"""A diagnosis for people: the sentence that is read out first, then the proof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from doctor.diagnose.cause import Cause, Culprit, Diagnosis, Waiting
from doctor.diagnose.events import Event
from doctor.diagnose.render.document import (
    checked_lines,
    format_time,
    playbook_names,
    reported_signatures,
    values_of_report,
    verdict,
)
from doctor.diagnose.render.log_values import fill_values, values_in_logs
from doctor.diagnose.rules.named import count_ranks
from doctor.diagnose.signature import Signature
from doctor.engine.display_cells import display_width
from doctor.engine.language import is_english, localized, localized_filled, phrase
from doctor.report.layout.formatting import bracketed, count_noun, wrapped
from doctor.transport import format_size

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
        more = len(diagnosis.earlier) - MAX_EARLIER
        lines += ["", phrase("{jobs} more (--verbose)", jobs=count_noun(more, "earlier job"))]
    return "\n".join(lines) + "\n"


def _earlier_heading(job: Diagnosis, width: int) -> list[str]:
    """Of a job whose logs lie beside those of the newest."""
    starts = [summary.first_time for summary in job.files if summary.first_time is not None]
    ends = [summary.last_time for summary in job.files if summary.last_time is not None]
    first, last = format_time(min(starts, default=None)), format_time(max(ends, default=None))
    span = phrase(", {first} to {last}", first=first[:19], last=last[:19]) if first and last else ""
    return _folded(phrase("An earlier job{span}:", span=span), width, "")


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
    lines += _reported_lines(diagnosis, signatures, playbooks, width, verbose)
    if diagnosis.undecidable:
        lines.append("")
        for item in diagnosis.undecidable.needed:
            lines += _labelled("decides", [localized_filled(item)], width)
    lines += ["", *_file_lines(diagnosis, width, verbose)]
    return [*lines, *_labelled("earlier" if diagnosis.attempts else "", attempt_lines(diagnosis, verbose), width)]


def attempt_lines(diagnosis: Diagnosis, verbose: bool = False) -> list[str]:
    """One line for each earlier attempt of the job, and for each job before it in the same file."""
    shown = diagnosis.attempts if verbose else diagnosis.attempts[:MAX_EARLIER]
    lines = []
    for attempt in shown:
        files = [summary for summary in attempt.diagnosis.files if summary.last_line]
        where = f"{files[0].name}:{files[0].first_line}-{files[0].last_line}" if len(files) == 1 else ""
        kind = localized("another job" if attempt.is_job else "an attempt that was started again")
        what = localized("the same cause") if attempt.same else headline(attempt.diagnosis)
        lines.append(f"{kind}{bracketed(where)}{localized(': ')}{what}")
    more = len(diagnosis.attempts) - len(shown)
    return lines + ([phrase("and {count} more (--verbose)", count=more)] if more else [])


def headline(diagnosis: Diagnosis) -> str:
    """The sentence that is read out first."""
    if diagnosis.causes:
        first = diagnosis.causes[0]
        doubt = {"certain": "", "likely": "Most likely: ", "possible": "Possibly: "}[first.confidence]
        more = len(diagnosis.causes) - 1
        rest = phrase(" ({causes} below)", causes=count_noun(more, "further cause")) if more else ""
        return f"{localized(doubt)}{_summary(first.summary)}{localized('.')}{rest}"
    if diagnosis.undecidable:
        return phrase("Undecidable: {reason}.", reason=localized_filled(diagnosis.undecidable.reason))
    files = count_noun(len(diagnosis.files), "file")
    if diagnosis.unread and not any(summary.lines for summary in diagnosis.files):
        return localized("Undecidable: no log could be read.")
    if not any(summary.lines for summary in diagnosis.files):
        return phrase("No log to read: {files} without a line.", files=files)
    if verdict(diagnosis) == "ended-well":
        return phrase("No failure: the run ended well ({files}).", files=files)
    if diagnosis.failed:
        return phrase("Undecidable: the logs show errors without a cause ({files}).", files=files)
    return phrase(
        "No failure in {files}, and no line shows that the run ended well: a rank that was killed writes nothing.",
        files=files,
    )


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
    numbers = str(number) if len(diagnosis.causes) > 1 else ""
    yield from _labelled("cause", [localized(signature.title) + bracketed(f"{signature.id}{code}")], width, numbers)
    yield from _labelled("who", [_names(cause.culprits, verbose) or localized("the job as a whole")], width)
    yield from _labelled("rule", [f"{localized(cause.rule)}{localized('; ')}{localized(cause.confidence)}"], width)
    yield from _labelled("proof", [_quoted(diagnosis, event) for event in cause.evidence], width)
    yield from _advice_lines(
        "why", signature, playbooks, width, verbose, values_in_logs(cause.evidence, cause.culprits)
    )
    if number <= len(diagnosis.checked):
        yield from _labelled("now", checked_lines(diagnosis.checked[number - 1]), width)
    else:
        yield from _check_lines(signature, width)


def _reported_lines(
    diagnosis: Diagnosis,
    signatures: Mapping[str, Signature],
    playbooks: Mapping[str, tuple[str, ...]],
    width: int,
    verbose: bool,
) -> Iterator[str]:
    """Where nothing is decided: what the report of most ranks comes from, and how to find out; pages of the others."""
    reported = reported_signatures(diagnosis, signatures)
    detailed = reported if verbose else reported[:1]
    for signature in detailed:
        yield ""
        if len(reported) > 1:
            yield from _labelled("for", [localized(signature.title)], width)
        yield from _advice_lines(
            "possible", signature, playbooks, width, verbose, values_of_report(diagnosis, signature)
        )
        yield from _check_lines(signature, width)
    if rest := [signature.id for signature in reported[len(detailed) :]]:
        yield from _labelled("more", [f"doctor explain {name}" for name in rest[:MAX_ITEMS]], width)


def _advice_lines(
    label: str,
    signature: Signature,
    playbooks: Mapping[str, tuple[str, ...]],
    width: int,
    verbose: bool,
    log_values: Mapping[str, str],
) -> Iterator[str]:
    """Causes, under this label, what confirms them, and what to do, with the values that are known."""
    limit = 100 if verbose else MAX_ITEMS
    for heading, texts in ((label, signature.causes), ("confirm", signature.confirm), ("fix", signature.fix)):
        yield from _labelled(heading, [fill_values(localized(text), log_values) for text in texts[:limit]], width)
    names = playbook_names(signature, playbooks)
    if names:
        yield from _labelled("playbooks", [", ".join(names[:limit]) + " (doctor explain NAME)"], width)


def _check_lines(signature: Signature, width: int) -> Iterator[str]:
    if signature.checks:
        selected = "".join(f" --select {name}" for name in signature.checks[:4])
        yield from _labelled("before", [f"doctor check{selected}"], width)


def _summary(text: str) -> str:
    """Who, and the title of a signature behind a colon; else a sentence. A title may have colons of its own."""
    sentence = localized_filled(text)
    who, *rest = text.split(": ", 4)
    for number in range(len(rest)):
        title = ": ".join(rest[number:])
        if title in sentence and localized(title) != title:
            return f"{localized_filled(': '.join((who, *rest[:number])))}{localized(': ')}{localized(title)}"
    return sentence


def _names(culprits: tuple[Culprit, ...], verbose: bool) -> str:
    limit = 100 if verbose else 8
    names = [localized_filled(culprit.name) for culprit in culprits[:limit]]
    more = len(culprits) - len(names)
    return localized(", ").join(names) + (phrase(" and {count} more", count=more) if more else "")


def _quoted(diagnosis: Diagnosis, event: Event) -> str:
    time = format_time(event.time)
    stamp = f" {time[11:]}" if time and not event.inferred_time else ""
    return f"{diagnosis.files[event.file].name}:{event.line}{stamp}: {event.text}"


def _waiting_lines(
    diagnosis: Diagnosis, signatures: Mapping[str, Signature], width: int, verbose: bool
) -> Iterator[str]:
    total = sum(len(item.culprits) for item in diagnosis.waiting)
    listed = diagnosis.waiting if verbose else diagnosis.waiting[:MAX_WAITING]
    rows = [
        f"{localized_filled(_who(item))}{localized(': ')}{localized(signatures[item.signature].title)}"
        for item in listed
    ]
    if len(diagnosis.waiting) > len(listed):
        rows.append(phrase("and {kinds} more", kinds=count_noun(len(diagnosis.waiting) - len(listed), "kind")))
    yield from _labelled(
        "waited" if diagnosis.causes else "report", rows, width, "" if diagnosis.causes else str(total)
    )


def _who(item: Waiting) -> str:
    ranks = [culprit.rank for culprit in item.culprits if culprit.rank is not None]
    if len(ranks) == len(item.culprits):
        return count_ranks(ranks)
    return item.culprits[0].name if len(item.culprits) == 1 else f"{len(item.culprits)} processes"


def _file_lines(diagnosis: Diagnosis, width: int, verbose: bool) -> Iterator[str]:
    size = sum(summary.bytes for summary in diagnosis.files)
    lines = sum(summary.lines for summary in diagnosis.files)
    sizes = (count_noun(len(diagnosis.files), "file"), count_noun(lines, "line"), localized_filled(format_size(size)))
    text = count_noun(diagnosis.processes, "process", "processes")
    if diagnosis.world_size:
        text = phrase("{processes} of {ranks}", processes=text, ranks=count_noun(diagnosis.world_size, "rank"))
    yield from _labelled("read", [f"{localized(', ').join(sizes)}{localized('; ')}{text}"], width)
    if diagnosis.source:
        yield from _labelled("from", [localized_filled(diagnosis.source)], width)
    yield from _labelled("unread", _limited(diagnosis.unread, verbose), width)
    yield from _labelled("note", _limited(diagnosis.notes, verbose), width)
    if not diagnosis.clocks_comparable:
        text = localized("differ between hosts: times of different hosts were not compared")
        yield from _labelled("clocks", [text], width)
    noted = [summary for summary in diagnosis.files if summary.notes]
    limit = len(noted) if verbose else 4
    for summary in noted[:limit]:
        notes = localized("; ").join(map(localized_filled, summary.notes))
        yield from _labelled("note", [f"{summary.name}{localized(': ')}{notes}"], width)
    if len(noted) > limit:
        files = count_noun(len(noted) - limit, "file")
        yield from _labelled("note", [phrase("{files} more with notes (--verbose)", files=files)], width)


def _limited(items: tuple[str, ...], verbose: bool) -> list[str]:
    limit = len(items) if verbose else MAX_WAITING
    more = len(items) - limit
    shown = [localized_filled(item) for item in items[:limit]]
    return [*shown, *([phrase("and {count} more (--verbose)", count=more)] if more > 0 else [])]


_LABELS = {
    "cause": "label: cause",
    "who": "label: who",
    "rule": "label: rule",
    "proof": "label: proof",
    "why": "label: why",
    "confirm": "label: confirm",
    "fix": "label: fix",
    "playbooks": "label: playbooks",
    "now": "label: now",
    "before": "label: before",
    "waited": "label: waited",
    "report": "label: report",
    "read": "label: read",
    "from": "label: from",
    "unread": "label: unread",
    "note": "label: note",
    "clocks": "label: clocks",
    "earlier": "label: earlier",
    "decides": "label: decides",
    "for": "label: for",
    "possible": "label: possible",
    "more": "label: more",
}
"""The labels, and how the catalogue names them: some mean something else in other reports."""


def label_text(label: str, numbers: str = "") -> str:
    """A label in the language of this process; ``numbers`` stand behind a cause, and before a count of reports."""
    text = label if is_english() or not label else localized(_LABELS[label])
    pair = (numbers, text) if label == "report" else (text, numbers)
    return " ".join(part for part in pair if part)


def _labelled(label: str, items: Iterable[str], width: int, numbers: str = "") -> Iterator[str]:
    """The items, the first beside the label, all indented alike."""
    text = label_text(label, numbers)
    for item in items:
        folded = _folded(item, width, " " * (_LABEL + 2))
        yield f"  {text}{' ' * max(_LABEL - display_width(text), 1 if text else 0)}{folded[0].lstrip()}".rstrip()
        yield from folded[1:]
        text = ""


def _folded(text: str, width: int, indent: str) -> list[str]:
    if not width:
        return [indent + text]
    return [indent + line for line in wrapped(text, max(width, 40) - len(indent))]
