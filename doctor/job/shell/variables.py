"""The shell variables of a script that is read: values, arrays, and what is not resolved. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice

from doctor.engine.texts import beginning, filled
from doctor.job.job_size import VARIABLES as SIZE_VARIABLES
from doctor.job.shell.arithmetic import arithmetic
from doctor.job.shell.tokens import Part, Token
from doctor.job.shell.word import Word, is_open, literal_words
from doctor.job.variable_names import documented_variables
from doctor.job.variables import JOB_WIDE, RANK_NUMBERS

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", re.ASCII)
ARGUMENTS = ("@", *"123456789")
LONGEST_VALUE = 32_768
MAX_ELEMENTS = 1024
MOST_EXPORTED = 512
_BUDGET = 4 << 20
"""Characters that all expansions of one text may produce."""
_OF_A_SCHEDULER = re.compile(
    r"(SLURM|PBS|LSB|LSF|SGE|PE|CCS|FLUX|OMPI|PMI|PMIX|COBALT|OAR|PJM|KUBERNETES|VC)_"
    r"|(?:NODE|GROUP|HOST|MACHINE)_RANK\Z"
)

_OF_ARRAY = re.compile(r"\$\{(#?)([A-Za-z_][A-Za-z0-9_]{0,200})\[([@*]|[0-9]{1,4})\]\}", re.ASCII)
_JOINED = re.compile(r"""\$\( *IFS=["']?([,:;])["']? *[;\n] *echo +"\$\{(\w+)\[\*\]\}" *\)""", re.ASCII)
_ELEMENT = re.compile(r"\$\{([A-Za-z_]\w*)\[([^\]]{0,200})\].{0,200}\}", re.ASCII)
_SETS_DEFAULT = re.compile(r"\$\{\w+:?=", re.ASCII)
_ASSIGNED = re.compile(r", (?:un)?set ")

OPEN = "\0"
"""Before and after the number of an open part of the text."""

ArrayValue = tuple[Word, ...]
Value = Word | ArrayValue


def is_assigned(unresolved: str) -> bool:
    """Whether the script itself sets what is unresolved: in a loop, in a branch, on a condition, by ``read``.

    >>> is_assigned("$i, set by a loop in line 3"), is_assigned("$N, unset on a condition"), is_assigned("$N")
    (True, True, False)
    """
    return _ASSIGNED.search(unresolved) is not None


class ShellVariables:
    """Values by name. What is neither set by the text nor in the environment is unresolved, never empty."""

    def __init__(
        self, environ: Mapping[str, str | Word], arguments: ArrayValue | None = None, open_parts: ArrayValue = ()
    ) -> None:
        """``arguments``: of the script, None where they are not known. ``open_parts``: see `evaluate`."""
        self.values: dict[str, Value] = dict(zip(environ, literal_words([*environ.values()]), strict=True))
        if arguments is not None:
            self.values["@"] = arguments
            self.values |= {str(number): word for number, word in enumerate(arguments[:9], 1)}
        self.open_parts = open_parts
        self.own_arguments = True
        """False: ``$1`` is not that of the script: within a function, and after ``set`` and ``shift``."""
        self.exported: set[str] = set()
        """Names that the text exports."""
        self.unset: set[str] = set()
        self.absent: set[str] = set()
        """Names that the text reads where nothing has set them."""
        self.assigned: set[str] = set()
        """Names that the text sets anywhere."""
        self.written: dict[str, str] = {}
        """See `ShellCommand`."""
        self._inherited = frozenset(environ)
        self._budget = _BUDGET

    def write(self, argv: list[Word], files: list[Token], here: tuple[Part, ...] | None, *, is_certain: bool) -> None:
        """Notes what ``cat``, ``tee``, ``echo`` and ``printf`` write into files; what else is written is not known.

        ``here``: the parts of the here-document; in a text with parts that are not known these stand as in the source.
        """
        paths = [word for file in files for word in self.expand(file.parts)]
        paths += argv[1:] if argv[:1] == [Word("tee")] else []
        if not paths or len(self.written) >= MAX_ELEMENTS:
            return
        text = self.single(here) if here is not None and argv[0].text in ("cat", "tee") else _printed(argv)
        names = {word.text.removeprefix("./") for word in paths}
        before = {path: text for path, text in self.written.items() if path in names}
        adds = any(file.redirection == ">>" for file in files)
        is_known = is_certain and (text.pieces or not text.unresolved) and (not adds or before.keys() == names)
        written = {name: (before[name] if adds else "") + text.text for name in names} if is_known else {}
        self.written = {path: text for path, text in self.written.items() if path not in names} | written

    def read(self, argv: list[Word], here: tuple[Part, ...] | None, assignments: list[Token]) -> Value | None:
        """What ``read`` gives its variable of a here-document or a here-string; None: not known."""
        options, text = " ".join(word.text for word in argv[1:-1]), self.single(here or ())
        if here is None or options.strip() in ("-r -d", "-d", "-d  -r", "-rd"):
            return text if here is not None else None
        separators = next((token.keyword[4:] for token in assignments if token.keyword.startswith("IFS=")), " \t\n")
        if text.unresolved or not separators or options not in ("-a", "-ra", "-r -a"):
            return None
        return tuple(map(Word, re.split(f"[{re.escape(separators)}]+", text.text.strip())))[:MAX_ELEMENTS]

    def expanded(self, arguments: list[Token]) -> list[str]:
        """Each ``NAME`` of ``$NAME=value`` that is not set, so that this sets no variable."""
        pairs = [token.parts[:2] for token in arguments if len(token.parts) > 1]
        expansions = [(first, after) for first, after in pairs if first.kind == "variable" and not first.quoted]
        names = [first.text for first, after in expansions if after.text.startswith("=") and first.default is None]
        return [name for name in names if name not in self.values]

    def assign(self, name: str, value: Value) -> None:
        """Sets a variable; an inherited one stays exported."""
        self.unset.discard(name)
        self.assigned.add(name)
        if name in self._inherited:
            self.exported.add(name)
        self.values[name] = value

    def value_of(self, token: Token) -> Value:
        """What a word that assigns a variable gives it."""
        match = ASSIGNMENT.match(token.parts[0].text)
        name, adds, end = (match[1], bool(match[2]), match.end()) if match else ("", False, 0)
        before = self.values.get(name, ())
        if token.elements is not None:
            elements = tuple(word for parts in token.elements for word in self.expand(parts))[:MAX_ELEMENTS]
            return ((before,) if isinstance(before, Word) else before)[:MAX_ELEMENTS] + elements if adds else elements
        rest = (token.parts[0]._replace(text=token.parts[0].text[end:]), *token.parts[1:])
        value = self.single((Part("variable", name, quoted=True, source=f"${name}"), *rest) if adds else rest)
        return value if isinstance(before, Word) or name not in self.values else (value, *before[1:])

    def is_set(self, name: str) -> bool:
        """By the text so far, or before it."""
        return name in self.values

    def exported_words(self, assignments: list[Token]) -> dict[str, Word]:
        """What a command gets: what is exported, `MOST_EXPORTED` at most, and the assignments before it."""
        named = ((name, self.values.get(name)) for name in sorted(islice(self.exported, MOST_EXPORTED)))
        exported = {name: value for name, value in named if isinstance(value, Word)}
        for token in assignments:
            match = ASSIGNMENT.match(token.parts[0].text)
            if match and token.elements is None:
                first = token.parts[0]._replace(text=token.parts[0].text[match.end() :])
                exported[assigned_name(token)] = self.single((first, *token.parts[1:]))
        return exported

    def remove(self, name: str) -> None:
        """``unset NAME``."""
        self.values.pop(name, None)
        self.exported.discard(name)
        self.unset.add(name)

    def forget(self, name: str, reason: str) -> None:
        """From here on the value of the variable is not known, even where it was before."""
        self.values[name] = Word(f"${name}", f"${name}, {reason}", may_be_several=True)

    def expand(self, parts: tuple[Part, ...]) -> tuple[Word, ...]:
        """The words that one word of the text becomes: usually one; without quotes none or several."""
        if self._budget < 0:
            source = "".join(part.source or part.text for part in parts)[:80]
            return (Word(source, filled("{0}: the text expands to too much", source), may_be_several=True),)
        texts: list[str] = []
        unresolved = ""
        several = quoted = is_ended = False
        pieces: list[Word] = []
        result: list[Word] = []

        def finish() -> None:
            nonlocal texts, unresolved, several, quoted, is_ended, pieces
            text = "".join(texts)
            if text or quoted or unresolved:
                kept = tuple(pieces) if unresolved and 1 < len(pieces) <= MAX_ELEMENTS else ()
                result.append(self._bounded(Word(text, unresolved, several, kept)))
            texts, unresolved, several, quoted, is_ended, pieces = [], "", False, False, False, []

        for part in parts:
            argv = self._part(part)
            quoted |= part.quoted and bool(argv)  # "${A[@]}" of an empty array is no word
            for number, word in enumerate(argv):
                if number:
                    finish()
                is_split = not part.quoted and part.kind != "text"
                for piece in word.pieces or (word,):
                    splits = is_split and not piece.unresolved
                    if is_ended or (splits and piece.text[:1].isspace()):
                        finish()
                    for index, text in enumerate(piece.text.split() if splits else [piece.text]):
                        if index:
                            finish()
                        texts.append(text)
                        pieces += [piece] if piece.unresolved and not splits else [Word(text)]
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
            return Word(beginning(word.text, 80), filled("{0}..., too long", beginning(word.text, 80)))
        return word

    def _part(self, part: Part) -> tuple[Word, ...]:
        if part.kind == "text":
            return (self._text(part),)
        if part.kind == "here":
            return (self.single(part.default or ()),)
        if not self.own_arguments and part.text in ARGUMENTS:
            return (Word(part.source, part.source, may_be_several=True),)
        if part.kind == "unresolved":
            return self._numbers(part.text) or (self._of_array(part.text),)
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

    def _numbers(self, text: str) -> ArrayValue:
        """The places of ``${!A[@]}``, where all elements are known."""
        match = re.fullmatch(r"\$\{!(\w+)\[[@*]\]\}", text, re.ASCII)
        values = self.values.get(match[1]) if match else None
        is_known = values is not None and not isinstance(values, Word) and not any(map(is_open, values))
        return tuple(Word(str(number)) for number in range(len(values or ()))) if is_known else ()

    def _of_array(self, text: str) -> Word:
        """The number of elements, or one of them, of an array whose elements are all known; else unresolved."""
        match, joined = _OF_ARRAY.fullmatch(text), _JOINED.fullmatch(text)
        values = self.values.get(match[2] if match else joined[2] if joined else "")
        if joined and isinstance(values, tuple) and not isinstance(values, Word) and not any(map(is_open, values)):
            return Word(joined[1].join(value.text for value in values))
        if match and values is not None and not isinstance(values, Word) and not any(map(is_open, values)):
            if match[1] and match[3] in "@*":
                return Word(str(len(values)))
            if not match[1] and match[3].isdecimal() and int(match[3]) < len(values):
                return values[int(match[3])]
        if not (element := _ELEMENT.fullmatch(text)) or element[1] not in self.assigned | self.values.keys():
            return Word(text, text, may_be_several=True)
        values, key = self.values.get(element[1]), f"[{element[2]}]="
        named = (
            [] if values is None or isinstance(values, Word) else [word for word in values if word.text.startswith(key)]
        )
        if len(named) == 1 and not match and not named[0].unresolved:
            return Word(named[0].text[len(key) :])
        number = self.values.get(element[2].strip("${}"))
        reason = number.unresolved.partition(", ")[2] if isinstance(number, Word) else ""
        return Word(
            text, f"{text}, {reason}" if reason else filled("{0}, set in the script", text), may_be_several=True
        )

    def _text(self, part: Part) -> Word:
        """Text that may hold marks of parts that an outer shell leaves open."""
        if OPEN not in part.text or not self.open_parts:
            return Word(part.text)
        pieces: list[Word] = []
        for number, text in enumerate(part.text.split(OPEN)):
            if number % 2 == 0:
                pieces += [Word(text)] if text else []
            elif text.isdecimal() and int(text) < len(self.open_parts):
                pieces.append(self.open_parts[int(text)]._replace(may_be_several=not part.quoted))
        unresolved = next((piece.unresolved for piece in pieces if piece.unresolved), "")
        several = any(piece.may_be_several for piece in pieces)
        return Word("".join(piece.text for piece in pieces), unresolved, several, tuple(pieces))

    def _absent(self, part: Part, value: Word | None) -> tuple[Word, ...]:
        """What a variable without a value becomes."""
        if part.default is not None and (value is not None or self._is_known_unset(part.text)):
            value = self.single(part.default)
            if _SETS_DEFAULT.match(part.source):
                self.assign(part.text, value)
            return (value,)
        if part.default is None and len(self.absent) < MAX_ELEMENTS:
            self.absent.add(part.text)
        if part.text in self.unset:
            return () if part.kind == "array" else (Word(""),)
        return (Word(part.source, part.source, may_be_several=True),)

    def _is_known_unset(self, name: str) -> bool:
        """A scheduler may set its variables when the script runs, and each host has its number; others are as now."""
        if name.isdecimal():
            return self.own_arguments
        return name in self.unset or not _OF_A_SCHEDULER.match(name)

    def with_numbers(self, text: str) -> str:
        """Source text in which numbers stand for what is known: ``$(seq 0 $((N - 1)))``, ``((i=0; i<N; i++))``."""
        text = re.sub(r"\$\(\(([^()]{1,80})\)\)", self._computed, text[:400])
        if text.startswith("(("):
            return re.sub(r"(?<=[<=])([^;<=]{1,80})(?=;)", self._computed, text)
        return re.sub(r"\$\{?([A-Za-z_]\w*)\}?", self._number, text, flags=re.ASCII)

    def _computed(self, match: re.Match[str]) -> str:
        return self._arithmetic(Part("arithmetic", match[1], source=match[0])).text

    def _number(self, match: re.Match[str]) -> str:
        value = self.values.get(match[1])
        text = value.text if isinstance(value, Word) and not value.unresolved else ""
        return text if re.fullmatch(r"[0-9]{1,15}", text) else match[0]

    def _arithmetic(self, part: Part) -> Word:
        read = re.findall(r"\$\{?([A-Za-z_]\w*)\}?", part.text[:200], re.ASCII)
        self.absent.update([name for name in read if name not in self.values][: MAX_ELEMENTS - len(self.absent)])
        text = re.sub(r"\$?\{?([A-Za-z_][A-Za-z0-9_]*)\}?", self._number, part.text[:200], flags=re.ASCII)
        result = arithmetic(text) if len(part.text) <= 200 else None
        if result is not None:
            return Word(str(result))
        values = map(self.values.get, re.findall(r"[A-Za-z_]\w*", part.text[:200], re.ASCII))
        reasons = (value.unresolved.partition(", ")[1:] for value in values if isinstance(value, Word))
        return Word(part.source, part.source + "".join(next(filter(any, reasons), ())))


def _printed(argv: list[Word]) -> Word:
    """What ``echo`` and ``printf`` print, where that is known."""
    name, *texts = [word.text for word in argv] or [""]
    slots = re.findall("%[sd]", texts[0]) if texts else []
    if not texts or any(word.unresolved for word in argv):
        return Word("", "?")
    if name == "echo" and texts[0][:1] != "-":
        return Word(" ".join(texts) + "\n")
    if (
        name != "printf"
        or not slots
        or len(texts) % len(slots) != 1 % len(slots)
        or re.search(r"%[^sd]|\\[^n]", texts[0])
    ):
        return Word("", "?")
    form = texts[0].replace("%d", "%s").replace("\\n", "\n")
    rounds = range(1, len(texts), len(slots))
    return Word("".join(form % tuple(texts[start : start + len(slots)]) for start in rounds)[:LONGEST_VALUE])


_VALUE = re.compile(r"[0-9][0-9.,:]{0,80}|\$\S.{0,200}|`.{0,200}", re.ASCII)
_HOST = re.compile(r"localhost|[A-Za-z][\w-]{0,60}[0-9](?:\.[\w.-]{1,200})?", re.ASCII)
_OF_LIST = re.compile(r"[a-z0-9][\w.:,-]{0,200}", re.ASCII)
_NEVER_EMPTY = frozenset((*JOB_WIDE, *RANK_NUMBERS, *SIZE_VARIABLES))


_OF_LIBRARIES = re.compile(r"INFO|WARN|TRACE|DETAIL|(?:eth|ib|bond|en[opsx]|hsn|mlx5_)[\w.:]{0,40}", re.ASCII)
"""Values of libraries that are no commands: levels of logs, interfaces, adapters."""


def value_apart(assignment: Token, following: Token | Word) -> str:
    """What stands behind ``NAME=`` and a space and is its value, as no command begins so; else empty.

    So is what stands behind the comma of a list, ``NCCL_SOCKET_IFNAME=eth0, eth1``.
    """
    name, equals, rest = assignment.keyword.partition("=")
    if isinstance(following, Word):
        text = following.text
    else:
        text = "".join(part.source or part.text for part in following.parts)
    if rest.endswith(",") and name in documented_variables():
        return text if _OF_LIST.fullmatch(text) else ""
    if not equals or rest:
        return ""
    is_value = (name in _NEVER_EMPTY or text[:1].isdigit()) and _VALUE.fullmatch(text)
    is_value = is_value or (name in documented_variables() and _OF_LIBRARIES.fullmatch(text))
    return text if is_value or (name in ("MASTER_ADDR", "MS_SCHED_HOST") and _HOST.fullmatch(text)) else ""


def with_open_parts(argv: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """The words as one text for `evaluate`, in which numbers stand for what is not resolved."""
    parts: list[Word] = []
    text = ""
    for position, word in enumerate(argv):
        text += " " if position else ""
        for piece in word.pieces or (word,):
            if piece.unresolved:
                text += f"{OPEN}{len(parts)}{OPEN}"
                parts.append(piece)
            else:
                text += piece.text
    return text, tuple(parts)


def assigned_name(token: Token) -> str:
    """The variable that a word assigns, or the empty string."""
    if not token.parts or token.parts[0].kind != "text" or token.parts[0].quoted:
        return ""
    match = ASSIGNMENT.match(token.parts[0].text)
    return match[1] if match else ""
