"""The shell variables of a script that is read: values, arrays, and what is not resolved. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.engine.texts import filled
from doctor.job.shell.arithmetic import arithmetic
from doctor.job.shell.tokens import Part
from doctor.job.shell.word import Word

LONGEST_VALUE = 32_768
MAX_ELEMENTS = 1024
_BUDGET = 4 << 20
"""Characters that all expansions of one text may produce."""
_OF_A_SCHEDULER = re.compile(r"(SLURM|PBS|LSB|LSF|SGE|PE|CCS|FLUX|OMPI|PMI|PMIX|COBALT|OAR|PJM|KUBERNETES|VC)_")

ArrayValue = tuple[Word, ...]
Value = Word | ArrayValue


class ShellVariables:
    """Values by name. What is neither set by the text nor in the environment is unresolved, never empty."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.values: dict[str, Value] = {name: Word(value) for name, value in environ.items()}
        self.exported: set[str] = set()
        """Names that the text exports."""
        self.unset: set[str] = set()
        self._inherited = frozenset(environ)
        self._budget = _BUDGET

    def assign(self, name: str, value: Value) -> None:
        """Sets a variable; an inherited one stays exported."""
        self.unset.discard(name)
        if name in self._inherited:
            self.exported.add(name)
        self.values[name] = value

    def remove(self, name: str) -> None:
        """``unset NAME``."""
        self.values.pop(name, None)
        self.exported.discard(name)
        self.unset.add(name)

    def forget(self, name: str, reason: str) -> None:
        """Whatever the value was, it is not known from here on."""
        self.values[name] = Word(f"${name}", f"${name}, {reason}", may_be_several=True)

    def expand(self, parts: tuple[Part, ...]) -> tuple[Word, ...]:
        """The words that one word of the text becomes: usually one; without quotes none or several."""
        if self._budget < 0:
            source = "".join(part.source or part.text for part in parts)[:80]
            return (Word(source, filled("{0}: the text expands to too much", source), may_be_several=True),)
        texts: list[str] = []
        unresolved = ""
        several = quoted = is_ended = False
        result: list[Word] = []

        def finish() -> None:
            nonlocal texts, unresolved, several, quoted, is_ended
            text = "".join(texts)
            if text or quoted or unresolved:
                result.append(self._bounded(Word(text, unresolved, several)))
            texts, unresolved, several, quoted, is_ended = [], "", False, False, False

        for part in parts:
            argv = self._part(part)
            quoted |= part.quoted and bool(argv)  # "${A[@]}" of an empty array is no word
            for number, word in enumerate(argv):
                if number:
                    finish()
                is_split = not part.quoted and part.kind != "text"
                for piece in (word.pieces or (word,)) if is_split else (word,):
                    splits = is_split and not piece.unresolved
                    if is_ended or (splits and piece.text[:1].isspace()):
                        finish()
                    for index, text in enumerate(piece.text.split() if splits else [piece.text]):
                        if index:
                            finish()
                        texts.append(text)
                    is_ended = splits and piece.text[-1:].isspace()
                    if piece.unresolved:
                        unresolved = unresolved or piece.unresolved
                        several |= part.kind == "array" or (not part.quoted and piece.may_be_several)
        finish()
        return tuple(result[:MAX_ELEMENTS])

    def single(self, parts: tuple[Part, ...]) -> Word:
        """The value of an assignment, which is not split into words."""
        pieces: list[Word] = []
        for part in parts:
            for number, word in enumerate(self._part(part)):
                pieces += [Word(" ")] if number else []
                pieces += word.pieces or (word,)
        text = "".join(piece.text for piece in pieces)
        unresolved = next((piece.unresolved for piece in pieces if piece.unresolved), "")
        is_split = unresolved and 1 < len(pieces) <= MAX_ELEMENTS
        return self._bounded(Word(text, unresolved, bool(unresolved), tuple(pieces) if is_split else ()))

    def _bounded(self, word: Word) -> Word:
        self._budget -= len(word.text) + 16
        if len(word.text) > LONGEST_VALUE or self._budget < 0:
            return Word(word.text[:80], filled("{0}..., too long", word.text[:80]))
        return word

    def _part(self, part: Part) -> tuple[Word, ...]:
        if part.kind == "text":
            return (Word(part.text),)
        if part.kind == "unresolved":
            return (Word(part.text, part.text, may_be_several=True),)
        if part.kind == "arithmetic":
            return (self._arithmetic(part),)
        value = self.values.get(part.text)
        if value is not None and not isinstance(value, Word):
            if part.kind == "array":
                return value
            value = value[0] if value else Word("")
        if value is not None and (value.text or value.unresolved or part.default is None):
            return (value,)
        return self._absent(part, value)

    def _absent(self, part: Part, value: Word | None) -> tuple[Word, ...]:
        """What a variable without a value becomes."""
        if part.default is not None and (value is not None or self._is_known_unset(part.text)):
            return (self.single(part.default),)
        if part.text in self.unset:
            return () if part.kind == "array" else (Word(""),)
        return (Word(part.source, part.source, may_be_several=True),)

    def _is_known_unset(self, name: str) -> bool:
        """A scheduler may set its variables when the script runs; others are as they are in the environment."""
        return name in self.unset or not _OF_A_SCHEDULER.match(name)

    def _arithmetic(self, part: Part) -> Word:
        def number(match: re.Match[str]) -> str:
            value = self.values.get(match[1])
            text = value.text if isinstance(value, Word) and not value.unresolved else ""
            return text if re.fullmatch(r"[0-9]{1,15}", text) else match[0]

        if len(part.text) > 200:
            return Word(part.source, part.source)
        text = re.sub(r"\$?\{?([A-Za-z_][A-Za-z0-9_]*)\}?", number, part.text, flags=re.ASCII)
        result = arithmetic(text)
        return Word(part.source, part.source) if result is None else Word(str(result))
