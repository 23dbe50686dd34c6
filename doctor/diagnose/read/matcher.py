"""Chooses lines of a log quickly: nearly all lines of a log are of a few shapes that match no signature.

The shape of a line is the line without digits and the letters a to f, so that numbers, addresses and times make no
difference. Whether a shape can match a signature is decided once, and remembered.
"""

from __future__ import annotations

from collections.abc import Iterable

from doctor.diagnose.signature import Pattern, Signature

MAX_LINE = 4096
"""Bytes of a line that are looked at."""
MAX_SHAPES = 1 << 16
"""Shapes that are remembered; after that, all are forgotten."""
_DROPPED = b"0123456789abcdef"
_GRAM = 4
_QUIET_GRAM = 9
"""Characters: long enough that few lines at INFO level contain such a text by chance."""
_NUMBER_HEAD = 3

Candidate = tuple[Signature, Pattern]


class Matcher:
    """All patterns, arranged for selecting lines."""

    def __init__(self, signatures: Iterable[Signature]) -> None:
        self._patterns: list[Candidate] = [(item, pattern) for item in signatures for pattern in item.compiled]
        self._reduced: dict[bytes, list[int]] = {}
        self._numbers: dict[bytes, list[tuple[bytes, Candidate]]] = {}
        """Literals that are numbers, which a shape does not show, by their first digits."""
        for index, (_, pattern) in enumerate(self._patterns):
            literal = pattern.literal.encode()
            reduced = literal.translate(None, _DROPPED)
            if len(reduced) < 2:
                self._numbers.setdefault(literal[:_NUMBER_HEAD], []).append((literal, self._patterns[index]))
            else:
                self._reduced.setdefault(reduced, []).append(index)
        quiet = {pattern.literal.encode() for signature, pattern in self._patterns if signature.quiet}
        self.quiet_literals = _covering_grams(quiet, _QUIET_GRAM)
        """Short texts of which each line at INFO level that can be an event contains at least one."""
        self._grams = _covering_grams(self._reduced, _GRAM)
        self._shapes: dict[bytes, tuple[Candidate, ...]] = {}

    def candidates(self, line: bytes) -> tuple[Candidate, ...]:
        """The patterns that a line of this shape may match; those for a number are not among them."""
        shape = line.translate(None, _DROPPED)
        cached = self._shapes.get(shape)
        if cached is None:
            if len(self._shapes) >= MAX_SHAPES:
                self._shapes.clear()
            cached = self._shapes[shape] = self._classify(shape)
        return cached

    def number_heads(self, block: bytes) -> list[bytes]:
        """The first digits of literals that are numbers, as far as they occur somewhere in a block of lines."""
        return [head for head in self._numbers if head in block]

    def numbered(self, line: bytes, heads: list[bytes]) -> tuple[Candidate, ...]:
        """The patterns whose literal is a number that occurs in the line."""
        literals = (item for head in heads if head in line for item in self._numbers[head])
        return tuple(candidate for literal, candidate in literals if literal in line)

    def _classify(self, shape: bytes) -> tuple[Candidate, ...]:
        if not any(gram in shape for gram in self._grams):
            return ()
        matching = [index for literal, indexes in self._reduced.items() if literal in shape for index in indexes]
        return tuple(self._patterns[index] for index in sorted(matching))


def _covering_grams(literals: Iterable[bytes], length: int) -> list[bytes]:
    """Few texts of at most this length of which each literal contains at least one; greedy."""
    uncovered = {
        literal: {literal[at : at + length] for at in range(max(1, len(literal) - length + 1))} for literal in literals
    }
    counts: dict[bytes, int] = {}
    for grams in uncovered.values():
        for gram in grams:
            counts[gram] = counts.get(gram, 0) + 1
    chosen = []
    while uncovered:
        best = max(counts, key=lambda gram: (counts[gram], gram))
        chosen.append(best)
        for literal in [literal for literal, grams in uncovered.items() if best in grams]:
            for gram in uncovered.pop(literal):
                counts[gram] -= 1
    return chosen
