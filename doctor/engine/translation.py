"""Finds the translation of a text in a catalogue: as it stands, or by the template and values that it was filled with.

No text is taken apart to guess its template: `doctor.engine.texts` knows it, or `doctor.engine.text_table` has read it.
What neither knows stays as it is, as what another program has printed. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.engine.texts import OWN_SPACE, fill, origin, template_pieces, with_own_spaces

COMMA = ", "
MAX_DEPTH = 8
"""How often a part of a text is itself looked up."""
MAX_TEMPLATE_CHARS = 600
"""Characters of a template whose parts are looked up."""


class Catalogue:
    """The texts of one language, by their English text or template."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    def filled(self, english: str, depth: int = 0) -> str:
        """The translation of a text, or itself.

        Where a template has none, as ``{0}: {1}``, its words and signs are looked up piece by piece, beside values
        that have one. A comma stays where words are between the values: it is that of a list of names.
        """
        exact = self.texts.get(english)
        made_of = origin(english) if exact is None and english and depth < MAX_DEPTH else None
        if made_of is None:
            return exact or english
        template, values = made_of
        if callable(values):
            return values(self.filled(template, depth + 1))
        texts = {name: self.filled(value, depth + 1) for name, value in values.items()}
        is_foreign = texts == values
        texts = {name: with_own_spaces(text) if text == values[name] else text for name, text in texts.items()}
        shape = self.texts.get(template)
        if shape is not None:
            return fill(shape, texts)
        pieces = template_pieces(template)
        letters = {piece for is_text, piece in pieces if is_text and re.search("[A-Za-z]", piece)}
        if is_foreign and not letters & self.texts.keys():
            return english
        as_they_stand = {COMMA} if letters else set[str]()
        return "".join(
            texts.get(piece, piece)
            if not is_text
            else piece
            if piece in as_they_stand
            else self.texts.get(piece, piece)
            for is_text, piece in pieces
        )

    def phrase(self, template: str, values: Mapping[str, object]) -> str:
        """The translation of a template, filled with values that are in the language already."""
        kept = {name: with_own_spaces(value) if isinstance(value, str) else value for name, value in values.items()}
        return self.without_loose_spaces(self.texts.get(template, template).format(**kept))

    @staticmethod
    def without_loose_spaces(text: str) -> str:
        if text.isascii():
            return text.replace(OWN_SPACE, " ")
        parts = enumerate(text.split("`"))
        closed = "`".join(part if number % 2 else _LOOSE_SPACE.sub("", part) for number, part in parts)
        closed = _SECOND_STOP.sub("。", closed)
        return closed.replace(OWN_SPACE, " ")

    def template(self, english: str) -> str:
        """The translation of a template, also of one that was joined from several: every part has to be known.

        A part is a text of the catalogue, or placeholders and signs alone. The fewest parts are taken.
        """
        exact = self.texts.get(english)
        if exact is not None or not 0 < len(english) <= MAX_TEMPLATE_CHARS:
            return exact or english
        ends = [0, *(match.start() for match in _PART_ENDS.finditer(english)), len(english)]
        best: dict[int, list[str]] = {0: []}
        for place, end in enumerate(ends[1:], 1):
            for start in ends[:place]:
                before, piece = best.get(start), english[start:end]
                if before is None or (end in best and len(before) + 1 >= len(best[end])):
                    continue
                translated = self.texts.get(piece)
                if translated is None and start == ends[place - 1] and _WITHOUT_WORDS.fullmatch(piece):
                    translated = piece
                if translated:
                    best[end] = [*before, translated]
        return "".join(best.get(len(english), [english]))


_SECOND_STOP = re.compile(r"。[ ]?(?:。|\.(?![\w./]))")
"""Where a sentence that ends was filled in before the end of another one."""
_LOOSE_SPACE = re.compile("(?<=[\u3001-\u3011\u4e00-\u9fff\uff01-\uff5e]) (?=[\u4e00-\u9fff\uff08\u201c])")
"""Between two letters or signs of Chinese."""
_PART_ENDS = re.compile(r"(?<=[ }])(?=\S)|(?<=\S)(?=[ {;,:])")
_WITHOUT_WORDS = re.compile(r"(?:\{\w+\}|[\s,;:.()=/-])+")
