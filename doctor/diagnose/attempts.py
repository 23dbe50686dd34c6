"""What belongs to an earlier attempt of a run, and what a run overcame: neither is why it failed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from doctor.diagnose.events import Event
from doctor.diagnose.signature import Signature, Trait

_ATTEMPT = re.compile(r"^(?P<run>.*/)?attempt_(?P<number>\d{1,6})/")
_OF_LIBRARY = ("HcclComm", "comm 0x")
"""What libraries print while a process ends, after a failure too: no good end of the program."""


def newest_attempt(events: list[Event], catalog: Mapping[str, Signature], *, restarted: bool = False) -> list[Event]:
    """The events after the last restart in the file. ``restarted``: files of the ranks show that there was one.

    torchrun names a restart only at a level that it does not show. It shows a failed worker, and after the last
    attempt its list of failures; a failed worker that no list follows, but a good end or another one, was restarted.
    """

    def lines(trait: Trait, text: str = "") -> list[int]:
        return [e.line for e in events if trait in catalog[e.signature].traits and text in e.text]

    restarts, later, ends = lines("restart"), lines("failure-heading"), lines("good-end")
    failed = lines("failure-row", "failed (")
    for line in failed:
        after = min((end for end in later if end > line), default=None)
        again = min((end for end in (*ends, *failed) if end > line), default=None)
        if (after is None and restarted) or (again is not None and (after is None or again < after)):
            restarts.append(line)
    last = max(restarts, default=0)
    return [event for event in events if event.line > last]


def older_attempts(names: Sequence[str]) -> list[bool]:
    """For each file, whether its path shows an earlier attempt than that of other files of the same run.

    >>> older_attempts(["a/attempt_0/1/stderr.log", "a/attempt_1/1/stderr.log", "a/train.log"])
    [True, False, False]
    """
    matches = [_ATTEMPT.match(name) for name in names]
    newest: dict[str, int] = {}
    for match in matches:
        if match:
            newest[match["run"] or ""] = max(newest.get(match["run"] or "", 0), int(match["number"]))
    return [match is not None and int(match["number"]) < newest[match["run"] or ""] for match in matches]


def overcome(events: list[Event], catalog: Mapping[str, Signature]) -> list[Event]:
    """Without the errors after which the same log shows that the run ended well: the program went on after them.

    Not where a launcher reports in the same log that a rank failed: then the others may have ended well.
    """
    ends = [event for event in events if "good-end" in catalog[event.signature].traits]
    last = max((event.line for event in ends if not any(word in event.text for word in _OF_LIBRARY)), default=0)
    if not last or any(
        "failure-report" in catalog[event.signature].traits for event in newest_attempt(events, catalog)
    ):
        return events
    return [event for event in events if event.line > last or catalog[event.signature].role in ("evidence", "benign")]


def overcome_beside(files: Mapping[int, str], events: list[Event], catalog: Mapping[str, Signature]) -> list[Event]:
    """The same of one process whose standard output and standard error are two files of one folder.

    ``files`` are names by index. For processes of which no launcher reports a failure.
    """
    ending = {event.file for event in events if "good-end" in catalog[event.signature].traits}
    ended = {files[file].rpartition("/")[0] for file in ending}

    def went_on(event: Event) -> bool:
        folder, _, name = files[event.file].rpartition("/")
        return name.startswith("stderr") and event.file not in ending and folder in ended

    return [e for e in events if catalog[e.signature].role in ("evidence", "benign") or not went_on(e)]
