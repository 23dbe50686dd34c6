"""`doctor list WORD...`: checks and playbooks by the words in them, best matches first. Files are read, not run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from doctor.engine.errors import CommandError
from doctor.engine.texts import filled, joined

NO_MATCH_EXIT_CODE = 1
"""As grep: nothing matches."""

ItemT = TypeVar("ItemT")


class SearchText(Generic[ItemT]):
    """What a search reads of one check or playbook. Words of the name count more than those of the claim, and so on.

    ``claim``: a check's claim and area; a playbook's title.
    """

    def __init__(self, item: ItemT, name: str, claim: str, page: str) -> None:
        self.item, self.name, self.claim, self.page = item, name, claim, page


def search(terms: Sequence[str], texts: Iterable[SearchText[ItemT]], kind: str) -> list[ItemT]:
    """The items that have every word, in any letter case: those with the words in the name first, then in the claim.

    ``kind`` names the items in messages: ``check``, ``playbook`` or ``signature``.

    Raises: CommandError, exit code 1, with the nearest words when nothing matches.

    >>> entries = [SearchText(1, "shm-full", "", "about ports"), SearchText(2, "port-taken", "A port is free", "")]
    >>> search(["PORT"], entries, "check")
    [2, 1]
    """
    candidates = list(texts)
    needles = [" ".join(word.casefold().split()) for word in terms]
    ranked = [(rank, text) for text in candidates if (rank := _rank(needles, text)) is not None]
    if not ranked:
        raise CommandError(_no_match(terms, needles, candidates, kind), NO_MATCH_EXIT_CODE)
    return [text.item for _, text in sorted(ranked, key=lambda pair: pair[0])]


def _rank(needles: Sequence[str], text: SearchText[ItemT]) -> tuple[int, int, int, str] | None:
    """The worst place that a word is in, the sum of all places, the words found only within others, and the name.

    None when a word is nowhere.
    """
    places = [_place(needle, text) for needle in needles]
    worst = max(places, default=0)
    if worst == _NOWHERE:
        return None
    complete_text = f" {text.name} {text.claim} {text.page}".casefold()
    inner = sum(re.search(rf"(?<![a-z0-9]){re.escape(needle)}", complete_text) is None for needle in needles)
    return worst, sum(places), inner, text.name


_NOWHERE = 3


def _place(needle: str, text: SearchText[ItemT]) -> int:
    if needle.replace("_", "-").replace(" ", "-") in text.name:
        return 0
    for place, part in ((1, text.claim), (2, text.page)):
        if needle in " ".join(part.casefold().split()):
            return place
    return _NOWHERE


def _no_match(terms: Sequence[str], needles: Sequence[str], candidates: Sequence[SearchText[ItemT]], kind: str) -> str:
    """One line: what was looked for, and what is near."""
    from doctor.engine.sanitize import printable

    counts = [sum(_place(needle, text) != _NOWHERE for text in candidates) for needle in needles]
    quoted = [f"'{printable(word, 60)}'" for word in terms[:10]]
    if all(counts):
        parts = ", ".join(f"{word} {count}" for word, count in zip(quoted, counts, strict=False))
        return filled("no {0} has all of these words; each alone matches: {1}", kind, parts)
    absent = [number for number, count in enumerate(counts[:10]) if not count]
    near = [word for number in absent for word in _nearest(needles[number], candidates)]
    hint = (
        filled("did you mean {0}?", joined(" or ", dict.fromkeys(near)))
        if near
        else filled("`{0}` names them all", _LIST[kind])
    )
    return filled(
        "no {0} has the words {1}; {2}" if len(absent) > 1 else "no {0} has the word {1}; {2}",
        kind,
        ", ".join(quoted[i] for i in absent),
        hint,
    )


_LIST = {"check": "doctor list", "playbook": "doctor list --playbooks", "signature": "doctor list --signatures"}


def _nearest(needle: str, candidates: Sequence[SearchText[ItemT]]) -> list[str]:
    import difflib

    vocabulary: dict[str, None] = {}
    for text in candidates:
        vocabulary.update(dict.fromkeys((text.name, *text.name.split("-"))))
    for text in candidates:
        vocabulary.update(dict.fromkeys(re.findall(r"[a-z0-9_.]{3,}[a-z0-9]", f"{text.claim} {text.page}".casefold())))
    return difflib.get_close_matches(needle, vocabulary, 2, 0.75)
