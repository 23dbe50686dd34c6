"""Finds signatures by an error code or by pasted lines of a log, without loading all of them.

A signature's text is looked through as it stands in its file; only those that may be meant are parsed. Pure, but for
reading the bundled files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache, partial

import msgspec

from doctor.diagnose.events import Event
from doctor.diagnose.render.log_values import fill_advice, values_in_logs
from doctor.diagnose.signature import FOLDER, Signature
from doctor.engine import toml_compat
from doctor.engine.shell_quote import PLACEHOLDER
from doctor.engine.texts import joined, rewritten

MAX_TEXT_CHARS = 4096
"""Characters of a pasted text that are looked at."""
MAX_LINES = 20
MAX_CANDIDATES = 60
"""Signatures that are parsed for one pasted text: those that share its rarest words."""
MIN_UNKNOWN_LETTERS = 4
_HEAD = "[[signature]]\n"
_CODE_LINES = ("{code}", "error code is {code}", "error code: {code}", "failed: {code}", "ret[{code}]")
"""Ways in which a log prints a bare number."""
_TORCH_NPU_LINE = "[ERROR] 2026-01-01-00:00:00 (PID:1, Device:0, RankID:0) {code} DIST"
_ROLES = ("root", "link", "ambiguous", "victim", "wrapper", "evidence", "benign")


class SignatureMatch(msgspec.Struct, frozen=True):
    """A signature that a text leads to."""

    signature: Signature
    is_exact: bool
    """By its id, its code or one of its patterns; else by words alone."""


def find(text: str) -> list[SignatureMatch]:
    """The bundled signatures that ``text`` names or matches, the most telling first; else those that share its words.

    >>> [match.signature.id for match in find("EJ0001")][:1]
    ['ej0001-hccp-init']
    """
    text = text.strip()[:MAX_TEXT_CHARS]
    blocks = list(signature_blocks())
    named = [block for block in blocks if f'"{text.upper()}"' in block or f'"{text.lower()}"' in block]
    by_name = [
        signature
        for signature in map(_parsed, named)
        if text.upper() in signature.codes or text.lower() == signature.id
    ]
    if by_name or not text:
        return [SignatureMatch(signature, True) for signature in by_name]
    weights = word_weights(text, blocks)
    scored = sorted(((score_text(block, text, weights), number) for number, block in enumerate(blocks)), reverse=True)
    candidates = [(score, _parsed(blocks[number])) for score, number in scored[:MAX_CANDIDATES] if score]
    lines = [line.strip() for line in text.splitlines() if line.strip()][:MAX_LINES]
    if re.fullmatch(r"(?:0x[0-9a-fA-F]{2,8}|[0-9]{3,8})", text):
        lines = [form.format(code=text) for form in _CODE_LINES]
    elif re.fullmatch(r"ERR[0-9]{5}", text.upper()):
        lines = [_TORCH_NPU_LINE.format(code=text.upper())]
    exact = sorted(
        (place for _, signature in candidates if (place := _place(signature, lines))), key=lambda place: place[:-1]
    )
    if exact:
        return [SignatureMatch(place[-1], True) for place in exact]
    enough = 0.6 * sum(weights.values())
    return [SignatureMatch(signature, False) for score, signature in candidates if score >= enough]


@lru_cache(256)
def fix_of(text: str, *, of_program: bool = False) -> str:
    """What to do about an error that a process reports, in parts between semicolons; empty where no signature knows it.

    Only that of a fault of the process itself: not of one that waited for another, nor of text around an error.
    ``of_program``: also what to correct in the program.

    >>> fix_of("exit status 13: unhandled system error, NCCL version 2.28.9; Failed to open libnvidia-ml.so.1")[:21]
    'where `nvidia-smi -L`'
    """
    parts = re.sub(r"^exit status \d{1,3}: ", "", text[:MAX_TEXT_CHARS]).split("; ")[:MAX_LINES]
    for part in reversed(parts):
        for match in find(f"{part}\nRuntimeError: {part}"):
            signature = match.signature
            is_cause = match.is_exact and signature.role == "root" and "unspecific" not in signature.traits
            is_meant = of_program or signature.action != "fix-program"
            if is_cause and is_meant and signature.fix and not any(map(PLACEHOLDER.search, signature.fix)):
                lines = [line for pattern in signature.compiled if (line := pattern.regex.search(part))]
                values = values_in_logs([Event("", 0, 0, part, line.groupdict("")) for line in lines[:1]])
                return joined("; ", [rewritten(text, partial(fill_advice, values=values)) for text in signature.fix])
    return ""


def signature_blocks() -> Iterator[str]:
    """The text of each bundled signature, unparsed."""
    for path in toml_compat.toml_files(FOLDER):
        yield from path.read_text("utf-8").split(_HEAD)[1:]


def _parsed(block: str) -> Signature:
    """One of our own signatures; they are valid, so that the rules for them need not be applied."""
    return msgspec.convert(toml_compat.loads(_HEAD + block)["signature"][0], Signature)


def _place(signature: Signature, lines: Collection[str]) -> tuple[bool, int, int, str, Signature] | None:
    """Where a signature that matches a line belongs: specific ones first, then by role, then the longest match."""
    longest = 0
    for pattern in signature.compiled:
        candidates = [line for line in lines if pattern.literal in line]
        if candidates:
            matches = filter(None, (pattern.regex.search(line[:MAX_TEXT_CHARS]) for line in candidates))
            longest = max(longest, *(match.end() - match.start() for match in matches), 0)
    if not longest:
        return None
    return "unspecific" in signature.traits, _ROLES.index(signature.role), -longest, signature.id, signature


def word_weights(text: str, documents: Collection[str]) -> dict[str, float]:
    """The words of ``text`` by how much they tell: those that few documents contain more.

    A word that no document has counts as well, since a page cannot be about a line if they share only common words; not
    one with digits or underscores, or a short one, which are names of hosts and variables.
    """
    tokens = dict.fromkeys(re.findall(r"[a-z0-9_]{3,}", text.lower()[:MAX_TEXT_CHARS]))
    lowered = [document.lower() for document in documents]
    counts = {word: sum(word in document for document in lowered) for word in list(tokens)[:200]}
    return {
        word: math.log(1 + len(lowered) / max(count, 1))
        for word, count in counts.items()
        if count or (word.isalpha() and len(word) >= MIN_UNKNOWN_LETTERS)
    }


def score_text(document: str, text: str, weights: Mapping[str, float]) -> float:
    """How much of ``text`` a document has: the weight of its words, twice where they stand there as they are."""
    lowered = document.lower()
    score = sum(weight for word, weight in weights.items() if word in lowered)
    return score * 2 if len(weights) > 1 and text.lower() in lowered else score
