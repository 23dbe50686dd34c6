"""A diagnosis for people: the sentence that is read out first, then the proof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from doctor.diagnose.diagnosis import GROUNDS, Culprit, Diagnosis, alike_causes, sorted_culprits
from doctor.diagnose.events import Event
from doctor.diagnose.render.document import (
    Advice,
    CauseDocument,
    DiagnosisDocument,
    SignatureCatalog,
    advised_commands,
    checked_lines,
    document,
    format_time,
    summary_text,
    verdict,
)
from doctor.diagnose.rules.named import name_all
from doctor.engine.language import is_english, localized, localized_filled, phrase
from doctor.engine.output_encoding import display_width
from doctor.engine.quantities import bytes_text
from doctor.report.layout.advice import marks
from doctor.report.layout.formatting import bracketed, count_noun, wrapped

MAX_ITEMS = 3
"""Likely causes, commands and fixes of a cause without ``--verbose``."""
MAX_WAITING = 6
MAX_EARLIER = 3
"""Earlier jobs that are shown without ``--verbose``."""
_LABEL = 10
"""Columns of a label such as ``proof``."""


def render_text(
    diagnosis: Diagnosis, catalogue: SignatureCatalog, width: int, *, bold: bool = False, verbose: bool = False
) -> str:
    """The report, in lines of at most ``width`` columns where words allow; 0: lines are not folded."""
    layout = _TextLayout(catalogue, width, bold, verbose)
    lines = layout.job(diagnosis)
    for job in diagnosis.earlier if verbose else diagnosis.earlier[:MAX_EARLIER]:
        lines += ["", *layout.earlier_heading(job), *layout.job(job)]
    if len(diagnosis.earlier) > MAX_EARLIER and not verbose:
        more = len(diagnosis.earlier) - MAX_EARLIER
        lines += ["", phrase("{jobs} more (--verbose)", jobs=count_noun(more, "earlier job"))]
    return "\n".join(lines) + "\n"


def attempt_lines(diagnosis: Diagnosis, verbose: bool = False) -> list[str]:
    """One line for each earlier attempt of the job, and for each job before it in the same file."""
    attempts = diagnosis.attempts if verbose else diagnosis.attempts[:MAX_EARLIER]
    lines = []
    for attempt in attempts:
        files = [summary for summary in attempt.diagnosis.files if summary.last_line]
        where = f"{files[0].name}:{files[0].first_line}-{files[0].last_line}" if len(files) == 1 else ""
        kind = localized("another job" if attempt.is_job else "an attempt that was started again")
        what = localized("the same cause") if attempt.same else headline(attempt.diagnosis)
        lines.append(f"{kind}{bracketed(where)}{localized(': ')}{what}")
    more = len(diagnosis.attempts) - len(attempts)
    return lines + ([phrase("and {count} more (--verbose)", count=more)] if more else [])


def headline(diagnosis: Diagnosis) -> str:
    """The sentence that is read out first."""
    if diagnosis.causes:
        first = diagnosis.causes[0]
        doubt = {"certain": "", "likely": "Most likely: ", "possible": "Possibly: "}[first.confidence]
        alike, *others = alike_causes(diagnosis.causes)
        more = len(others)
        rest = phrase(" ({causes} below)", causes=count_noun(more, "further cause")) if more else ""
        same = sorted_culprits(culprit for index in alike[1:] for culprit in diagnosis.causes[index].culprits)
        names = localized(", ").join(localized_filled(culprit.name) for culprit in same)
        also = phrase(" The same: {names}.", names=names) if same else ""
        return f"{localized(doubt)}{summary_text(first.summary)}{localized('.')}{also}{rest}"
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


class _TextLayout:
    """Lays out the parts of a diagnosis as labelled lines."""

    def __init__(self, catalogue: SignatureCatalog, width: int, bold: bool, verbose: bool) -> None:
        self.catalogue, self.width, self.bold, self.verbose = catalogue, width, bold, verbose
        self.limit = 100 if verbose else MAX_ITEMS

    def job(self, diagnosis: Diagnosis) -> list[str]:
        """The lines of one job: the verdict, causes, who waited, what would decide, what was read."""
        content = document(diagnosis, self.catalogue, 0)
        lines = self.folded(headline(diagnosis), "")
        if self.bold:
            lines = [f"\x1b[1m{line}\x1b[0m" for line in lines]
        if content.action and content.action.kind != "none":
            lines += ["", *self.labelled("do", [content.action.text])]
        groups = alike_causes(diagnosis.causes)
        for number, alike in enumerate(groups, 1):
            numbers = str(number) if len(groups) > 1 else ""
            lines += ["", *self.cause(diagnosis, content, alike, numbers)]
        if diagnosis.waiting:
            lines += ["", *self.waiting(diagnosis, content)]
        if content.undecidable:
            lines += [*self.reported(content.undecidable.reported), ""]
            lines += (line for item in content.undecidable.missing for line in self.labelled("decides", [item]))
        lines += ["", *self.labelled("", self.unfilled(lines)), *self.files(diagnosis, content)]
        return [
            *lines,
            *self.labelled("earlier" if diagnosis.attempts else "", _marked(attempt_lines(diagnosis, self.verbose))),
        ]

    def unfilled(self, lines: Sequence[str]) -> list[str]:
        """What a reader fills in, of the commands in these lines."""
        names = marks(" ".join(line.strip() for line in lines))
        return [localized("Fill in yourself: ") + ", ".join(names)] if names else []

    def earlier_heading(self, job: Diagnosis) -> list[str]:
        """Of a job whose logs lie beside those of the newest."""
        starts = [summary.first_time for summary in job.files if summary.first_time is not None]
        ends = [summary.last_time for summary in job.files if summary.last_time is not None]
        first, last = format_time(min(starts, default=None)), format_time(max(ends, default=None))
        span = phrase(", {first} to {last}", first=first[:19], last=last[:19]) if first and last else ""
        return self.folded(phrase("An earlier job{span}:", span=span), "")

    def cause(
        self, diagnosis: Diagnosis, content: DiagnosisDocument, alike: Sequence[int], numbers: str
    ) -> Iterator[str]:
        """Those of one group of `alike_causes`, as one."""
        cause, item = diagnosis.causes[alike[0]], content.causes[alike[0]]
        code = f", {item.codes[0]}" if item.codes else ""
        culprits = [culprit for index in alike for culprit in diagnosis.causes[index].culprits]
        yield from self.labelled("cause", [item.title + bracketed(f"{item.signature}{code}")], numbers)
        yield from self.labelled("who", [self.who(cause.culprits if len(alike) == 1 else sorted_culprits(culprits))])
        grounds = localized(GROUNDS.get(cause.rule, cause.rule))
        yield from self.labelled("certainty", [f"{item.confidence}{localized(': ')}{grounds}"])
        yield from self.labelled("memory", [item.memory] if item.memory else [])
        yield from self.labelled("proof", [_quoted(diagnosis, event) for event in cause.evidence])
        yield from self.advice("possible" if len(item.likely_causes) > 1 else "why", item)
        yield from self.labelled("now", checked_lines(item.checked) if item.checked else [])

    def reported(self, reported: Sequence[Advice]) -> Iterator[str]:
        """Where nothing is decided: what the report of most ranks comes from, and how to find out; others' pages."""
        detailed = reported if self.verbose else reported[:1]
        for item in detailed:
            yield ""
            if len(reported) > 1:
                yield from self.labelled("for", [item.title])
            yield from self.advice("possible", item)
        if rest := reported[len(detailed) :]:
            yield from self.labelled("more", [f"doctor explain {item.signature}" for item in rest[:MAX_ITEMS]])

    def advice(self, label: str, item: Advice) -> Iterator[str]:
        """Causes, under this label, what confirms them, what to do, and what to type then."""
        for heading, texts in ((label, item.likely_causes), ("confirm", item.confirm), ("fix", item.fix)):
            yield from self.labelled(heading, _marked(texts[: self.limit]))
        for name, text in advised_commands(item):
            if name == "playbooks" or not (isinstance(item, CauseDocument) and item.checked):
                yield from self.labelled(name, [localized_filled(text)])

    def who(self, culprits: tuple[Culprit, ...]) -> str:
        """Their names; with a word where no log names a host or a rank of any of them."""
        names = self.names(culprits) or localized("the job as a whole")
        first = culprits[0] if len(culprits) == 1 else Culprit(0)
        is_nameless = first.rank is None and not first.host and not (first.label and not first.label.startswith("pid "))
        return phrase("{names}; the logs name neither its host nor its rank", names=names) if is_nameless else names

    def names(self, culprits: tuple[Culprit, ...]) -> str:
        unique = tuple(dict.fromkeys(localized_filled(culprit.name) for culprit in culprits))
        names = unique[: 100 if self.verbose else 8]
        more = len(unique) - len(names)
        return localized(", ").join(names) + (phrase(" and {count} more", count=more) if more else "")

    def waiting(self, diagnosis: Diagnosis, content: DiagnosisDocument) -> Iterator[str]:
        total = sum(item.count for item in content.waiting)
        rows = [
            f"{localized_filled(name_all(item.culprits))}{localized(': ')}{entry.title}"
            for item, entry in zip(diagnosis.waiting, content.waiting, strict=True)
        ]
        shown_rows = rows if self.verbose else rows[:MAX_WAITING]
        if len(rows) > len(shown_rows):
            more = count_noun(len(rows) - len(shown_rows), "kind")
            shown_rows = [*shown_rows, phrase("and {kinds} more", kinds=more)]
        if diagnosis.causes:
            yield from self.labelled("waited", shown_rows)
        else:
            yield from self.labelled("report", shown_rows, str(total))

    def files(self, diagnosis: Diagnosis, content: DiagnosisDocument) -> Iterator[str]:
        size = localized_filled(bytes_text(sum(file.bytes for file in content.files)))
        lines = sum(file.lines for file in content.files)
        sizes = (count_noun(len(content.files), "file"), count_noun(lines, "line"), size)
        text = count_noun(content.processes, "process", "processes")
        if content.world_size:
            text = phrase("{processes} of {ranks}", processes=text, ranks=count_noun(content.world_size, "rank"))
        yield from self.labelled("read", [f"{localized(', ').join(sizes)}{localized('; ')}{text}"])
        yield from self.labelled("from", [content.source] if content.source else [])
        yield from self.labelled("unread", self.limited(content.unread))
        yield from self.labelled("note", self.limited(content.notes))
        if not content.clocks_comparable:
            text = localized("differ between hosts: times of different hosts were not compared")
            yield from self.labelled("clocks", [text])
        notes = [
            f"{file.name}{localized(': ')}{localized('; ').join(file.notes)}" for file in content.files if file.notes
        ]
        limit = len(notes) if self.verbose else 4
        for note in notes[:limit]:
            yield from self.labelled("note", [note])
        if len(notes) > limit:
            files = count_noun(len(notes) - limit, "file")
            yield from self.labelled("note", [phrase("{files} more with notes (--verbose)", files=files)])

    def limited(self, items: Sequence[str]) -> Sequence[str]:
        more = len(items) - MAX_WAITING
        if self.verbose or more <= 0:
            return items
        return [*items[:MAX_WAITING], phrase("and {count} more (--verbose)", count=more)]

    def labelled(self, label: str, items: Iterable[str], numbers: str = "") -> Iterator[str]:
        """The items, the first beside the label, all indented alike."""
        text = label_text(label, numbers)
        for item in items:
            first, *rest = self.folded(item, " " * (_LABEL + 2))
            yield f"  {text}{' ' * max(_LABEL - display_width(text), 1 if text else 0)}{first.lstrip()}".rstrip()
            yield from rest
            text = ""

    def folded(self, text: str, indent: str) -> list[str]:
        if not self.width:
            return [indent + text]
        return [indent + line for line in wrapped(text, max(self.width, 40) - len(indent))]


def _marked(items: Sequence[str]) -> Sequence[str]:
    """Several items, each with a dash: their lines are of unequal length, and an end of one is not seen otherwise."""
    return items if len(items) < 2 else [f"- {item}" for item in items]


def _quoted(diagnosis: Diagnosis, event: Event) -> str:
    time = format_time(event.time)
    stamp = f" {time[11:]}" if time and not event.inferred_time else ""
    return f"{diagnosis.files[event.file].name}:{event.line}{stamp}: {event.text}"


_LABELS = frozenset((
    "do", "memory", "cause", "who", "certainty", "proof", "why", "confirm", "fix", "playbooks",
    "now", "before", "waited", "report", "read", "from", "unread", "note", "clocks", "earlier",
    "decides", "for", "possible", "more",
))  # fmt: skip
"""The labels. The catalogue names each with ``label: `` before it: some mean something else in other reports."""


def label_text(label: str, numbers: str = "") -> str:
    """A label in the language of this process; ``numbers`` stand behind a cause, and before a count of reports."""
    text = label if is_english() or label not in _LABELS else localized(" ".join(("label:", label)))
    pair = (numbers, text) if label == "report" else (text, numbers)
    return " ".join(part for part in pair if part)
