"""Shell text as words and operators, in one pass. Pure, and linear in the length of the text.

The grammar is that of POSIX.1-2017, "Shell Command Language", with bash's arrays, ``$'...'``, ``[[``, ``((`` and
here-strings (https://pubs.opengroup.org/onlinepubs/9699919799/utilities/V3_chap02.html, sections 2.2 to 2.10).
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Literal, NamedTuple

from doctor.engine.texts import filled

MAX_TEXT = 1 << 20
"""Characters of a script."""
MAX_TOKENS = 200_000
_DEEPEST_DEFAULT = 4

PartKind = Literal["text", "variable", "array", "arithmetic", "here", "unresolved"]


class Part(NamedTuple):
    """A piece of a word."""

    kind: PartKind
    text: str
    """The text itself; of a variable its name; of the rest the source."""
    quoted: bool = False
    default: tuple[Part, ...] | None = None
    """Of ``${NAME:-default}``; of ``$(cat <<END)`` its text."""
    source: str = ""
    """Of a variable: as it stands in the text."""


class Token(NamedTuple):
    """A word, an array assignment, or an operator."""

    line: int
    parts: tuple[Part, ...] = ()
    operator: str = ""
    """``;`` (also the end of a line), ``&``, ``|``, ``&&``, ``||``, ``;;``, ``(``, ``)``; empty: a word."""
    elements: tuple[tuple[Part, ...], ...] | None = None
    """The words of ``NAME=(...)``; the parts are ``NAME=``."""
    here: tuple[Part, ...] | None = None
    """The text of a here-document, in place of a word."""
    redirection: str = ""
    """The operator before the file that the parts name, such as ``>>``."""

    @property
    def keyword(self) -> str:
        """The text of a word that stands without quotes and variables; else empty."""
        if len(self.parts) == 1 and self.parts[0].kind == "text" and not (self.parts[0].quoted or self.redirection):
            return self.parts[0].text
        return ""


class UnreadableShell(ValueError):
    """Text that no shell would accept, or that is too long: what, and in which line."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(filled("line {0}: {1}", line, reason))
        self.reason = reason
        self.line = line


_OPERATORS = ("&&", "||", ";;", ";", "&", "|", "(", ")")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UNQUOTED = re.compile(r"[^\s\\'\"$`;&|()<>#]+")
_QUOTED_PLAIN = re.compile(r"[^\\\"$`]+")
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[1-9@])(\[[@*]\])?(?:(:?[-=])(.*))?", re.ASCII | re.DOTALL)
_REDIRECTION = re.compile(r"&>>?|[0-9]*(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>])")
_HERE = re.compile(r"<<(-?)[ \t]*(['\"\\]?)([A-Za-z_][A-Za-z0-9_]*)\2", re.ASCII)
_CAT_HERE = re.compile(r"\$\(\s*cat\s+<<(-?)[ \t]*(['\"\\]?)([A-Za-z_][A-Za-z0-9_]*)\2[ \t]*\n", re.ASCII)
_BRACES = re.compile(r"\{([^{}\s]*)\}")


def tokenize(text: str) -> list[Token]:
    """The words and operators of shell text. Raises: UnreadableShell."""
    if len(text) > MAX_TEXT:
        raise UnreadableShell(filled("longer than {0} MiB", MAX_TEXT >> 20), 1)
    return _Scanner(text).tokens()


class _Scanner:
    def __init__(self, text: str, line: int = 1, depth: int = 0) -> None:
        self.text = text
        self.position = 0
        self.line = line
        self.depth = depth
        self.result: list[Token] = []
        self.heredocs: list[tuple[str, bool, bool, int]] = []
        """Of each: the line that ends it, whether tabs are stripped, whether it is quoted, the place of its token."""
        self.in_test = False
        """Between ``[[`` and ``]]``, where operators end no command."""

    def tokens(self) -> list[Token]:
        text = self.text
        while self.position < len(text):
            if len(self.result) > MAX_TOKENS:
                raise UnreadableShell(filled("more than {0} words", MAX_TOKENS), self.line)
            letter = text[self.position]
            if letter == "\n":
                self._end_line()
            elif letter == "\r":  # bash(1): a blank is a space or tab; sbatch refuses "DOS line breaks"
                raise UnreadableShell("a carriage return, which is a part of the last word of the line", self.line)
            elif letter.isspace():
                self.position += 1
            elif text.startswith("\\\n", self.position):
                self.position, self.line = self.position + 2, self.line + 1
            elif letter == "#":
                self._skip_comment()
            elif text.startswith("((", self.position) and self._starts_command():
                self._add_arithmetic_command()
            elif self.in_test and letter in "&|()<>":
                self.position += 1
            elif match := self._redirection():
                self._redirect(match)
            elif operator := next((op for op in _OPERATORS if text.startswith(op, self.position)), ""):
                self.position += len(operator)
                self.result.append(Token(self.line, operator=operator))
            else:
                self._add_word()
        return self.result

    def _starts_command(self) -> bool:
        return not self.result or bool(self.result[-1].operator) or self.result[-1].keyword in _BEFORE_COMMAND

    def _add_arithmetic_command(self) -> None:
        line, start = self.line, self.position
        self._move(self._matching_paren(start))
        self.result.append(Token(line, (Part("unresolved", self.text[start : self.position]),)))

    def _end_line(self) -> None:
        if not self.in_test:
            self.result.append(Token(self.line, operator=";"))
        self.position, self.line = self.position + 1, self.line + 1
        for delimiter, strip_tabs, is_quoted, place in self.heredocs:
            line, start = self.line, self.position
            end, after = _end_of_here(self.text, start, delimiter, strip_tabs)
            self._move(after)
            here = _here_parts(self.text[start:end], is_quoted, line)
            self.result[place] = self.result[place]._replace(here=here)
        self.heredocs.clear()

    def _skip_comment(self) -> None:
        end = self.text.find("\n", self.position)
        self.position = len(self.text) if end < 0 else end

    def _redirection(self) -> re.Match[str] | None:
        match = _REDIRECTION.match(self.text, self.position)
        return None if match and self.text[match.end() - 1 : match.end() + 1] in ("<(", ">(") else match

    def _redirect(self, match: re.Match[str]) -> None:
        operator, line = match[0].lstrip("0123456789"), self.line
        self.position = match.end()
        while self.position < len(self.text) and self.text[self.position] in " \t":
            self.position += 1
        if self.position < len(self.text) and self.text[self.position] not in "\n;&|()":
            parts = self._word()
            if operator in ("<<", "<<-"):
                delimiter, is_quoted = "".join(part.text for part in parts), any(part.quoted for part in parts)
                self.heredocs.append((delimiter, operator == "<<-", is_quoted, len(self.result)))
                self.result.append(Token(line, here=()))
            elif operator not in ("<&", ">&"):
                here = parts if operator == "<<<" else None
                self.result.append(Token(line, parts, here=here, redirection=operator))
        elif operator != ">&":
            raise UnreadableShell(filled("no file after {0}", operator), line)

    def _add_word(self) -> None:
        line, start = self.line, self.position
        parts = self._word()
        if self.position == start:
            raise UnreadableShell(filled("{0} where a word is expected", self.text[start]), line)
        assigns = parts and parts[-1].kind == "text" and parts[-1].text.endswith("=") and not parts[-1].quoted
        if assigns and self.text.startswith("(", self.position):
            self.position += 1
            self.result.append(Token(line, parts, elements=self._elements()))
        else:
            starts = self._starts_command()
            self.result.append(Token(line, parts))
            keyword = self.result[-1].keyword
            self.in_test = keyword != "]]" if self.in_test else keyword == "[[" and starts

    def _elements(self) -> tuple[tuple[Part, ...], ...]:
        elements: list[tuple[Part, ...]] = []
        start = self.line
        while self.position < len(self.text):
            letter = self.text[self.position]
            if letter == ")":
                self.position += 1
                return tuple(elements)
            if letter == "#":
                self._skip_comment()
            elif letter.isspace() or self.text.startswith("\\\n", self.position):
                width = 2 if letter == "\\" else 1
                self._move(self.position + width)
            elif letter in ";&|<>(":
                raise UnreadableShell(filled("{0} in an array", letter), self.line)
            else:
                elements.append(self._word())
        raise UnreadableShell("an array without its )", start)

    def _move(self, position: int) -> None:
        self.line += self.text.count("\n", self.position, position)
        self.position = position

    def _word(self, to_the_end: bool = False) -> tuple[Part, ...]:
        """``to_the_end``: spaces and operators are text, as in a default value."""
        parts: list[Part] = []
        text = self.text
        while self.position < len(text):
            letter = text[self.position]
            if letter == "'":
                parts.append(Part("text", self._single_quoted(), quoted=True))
            elif letter == '"':
                parts += self._double_quoted()
            elif text.startswith("$'", self.position):
                self.position += 1
                parts.append(self._ansi_quoted())
            elif letter in "$`":
                parts.append(self._expansion(quoted=False))
            elif letter == "\\":
                self._escape(parts, quoted=False)
            elif letter in "<>" and text.startswith("(", self.position + 1):
                parts.append(self._substitution(self.position + 1))
            elif not to_the_end and (letter.isspace() or letter in ";&|()<>"):
                break
            else:
                match = _UNQUOTED.match(text, self.position)
                end = match.end() if match else self.position + 1
                parts.append(_brace_aware(text[self.position : end]))
                self.position = end
        return tuple(_joined(parts))

    def _escape(self, parts: list[Part], quoted: bool) -> None:
        following = self.text[self.position + 1 : self.position + 2]
        if following == "\n":
            self.line += 1
        elif quoted and following not in ("$", "`", '"', "\\"):
            parts.append(Part("text", "\\" + following, quoted=True))
        else:
            parts.append(Part("text", following, quoted=True))
        self.position += 2

    def _single_quoted(self) -> str:
        end = self.text.find("'", self.position + 1)
        if end < 0:
            raise UnreadableShell("a ' without its end", self.line)
        content = self.text[self.position + 1 : end]
        self._move(end + 1)
        return content

    def _ansi_quoted(self) -> Part:
        start, position = self.position, self.position + 1
        while position < len(self.text) and self.text[position] != "'":
            position += 2 if self.text[position] == "\\" else 1
        if position >= len(self.text):
            raise UnreadableShell("a $' without its end", self.line)
        content = self.text[start + 1 : position]
        self._move(position + 1)
        return Part("unresolved" if "\\" in content else "text", content, quoted=True)

    def _double_quoted(self) -> list[Part]:
        line = self.line
        self.position += 1
        parts: list[Part] = []
        while self.position < len(self.text):
            if self.text[self.position] == '"':
                self.position += 1
                return parts or [Part("text", "", quoted=True)]
            self._add_quoted(parts)
        raise UnreadableShell('a " without its end', line)

    def _add_quoted(self, parts: list[Part]) -> None:
        """The next part of text in which only ``$``, a backquote and a backslash mean something."""
        letter = self.text[self.position]
        if letter == "\\":
            self._escape(parts, quoted=True)
        elif letter in "$`":
            parts.append(self._expansion(quoted=True))
        else:
            match = _QUOTED_PLAIN.match(self.text, self.position)
            end = match.end() if match else self.position + 1
            parts.append(Part("text", self.text[self.position : end], quoted=True))
            self._move(end)

    def here(self) -> tuple[Part, ...]:
        """All of the text as that of a here-document."""
        parts: list[Part] = []
        while self.position < len(self.text):
            self._add_quoted(parts)
        return tuple(_joined(parts))

    def _expansion(self, quoted: bool) -> Part:
        text, start = self.text, self.position
        if text[start] == "`":
            end = start + 1
            while end < len(text) and text[end] != "`":
                end += 2 if text[end] == "\\" else 1
            if end >= len(text):
                raise UnreadableShell("a ` without its end", self.line)
            self._move(end + 1)
            return Part("unresolved", text[start : end + 1], quoted)
        if text.startswith(("$((", "$["), start):
            return self._arithmetic(quoted)
        if text.startswith("$(", start):
            return self._substitution(start + 1, quoted)
        if text.startswith("${", start):
            return self._braced(quoted)
        name = _NAME.match(text, start + 1)
        if name:
            self.position = name.end()
            return Part("variable", name[0], quoted, source=text[start : name.end()])
        if start + 1 < len(text) and text[start + 1] in "0123456789@*#?$!-":
            self.position = start + 2
            source, argument = text[start : start + 2], text[start + 1]
            kind: PartKind = "array" if argument == "@" else "variable" if argument in "123456789" else "unresolved"
            return Part(kind, source if kind == "unresolved" else argument, quoted, None, source)
        self.position = start + 1
        return Part("text", "$", quoted)

    def _arithmetic(self, quoted: bool) -> Part:
        text, start, is_old = self.text, self.position, self.text[self.position + 1] == "["  # $[...] of bash
        end = self._matching(start + 1, *"[]") if is_old else self._matching_paren(start + 1)
        self._move(end)
        if is_old or text[end - 2 : end] == "))":
            return Part("arithmetic", text[start + 3 - is_old : end - 2 + is_old], quoted, source=text[start:end])
        return Part("unresolved", self.text[start:end], quoted)

    def _substitution(self, paren: int, quoted: bool = False) -> Part:
        start, line = self.position, self.line
        self._move(self._matching_paren(paren))
        source = self.text[start : self.position]
        match = _CAT_HERE.match(source)
        if match and self.depth < _DEEPEST_DEFAULT:
            content, after = _end_of_here(source, match.end(), match[3], bool(match[1]))
            if source[after:].strip() == ")":
                text = source[match.end() : content].rstrip("\n")
                return Part("here", source, quoted, _here_parts(text, bool(match[2]), line + 1, self.depth + 1), source)
        return Part("unresolved", source, quoted)

    def _matching_paren(self, position: int) -> int:
        """The place after the ``)`` that belongs to the ``(`` at ``position``."""
        return self._matching(position, "(", ")")

    def _matching(self, position: int, opening: str, closing: str) -> int:
        depth, text = 0, self.text
        here: re.Match[str] | None = None
        while position < len(text):
            letter = text[position]
            if letter == "\\":
                position += 1
            elif letter == "'":
                position = text.find("'", position + 1)
                if position < 0:
                    break
            elif letter == '"':
                position = self._after_double_quote(position) - 1
            elif letter == opening:
                depth += 1
            elif letter == closing:
                depth -= 1
                if depth == 0:
                    return position + 1
            elif opening == "(" and letter in "#<\n":
                position, here = self._within_command(position, here)
            position += 1
        raise UnreadableShell(filled("a {0} without its {1}", opening, closing), self.line)

    def _within_command(self, position: int, here: re.Match[str] | None) -> tuple[int, re.Match[str] | None]:
        """The last place of a comment or a here-document that begins here; ``here``: one whose text begins later."""
        text, letter = self.text, self.text[position]
        if letter == "#" and text[position - 1].isspace():
            end = text.find("\n", position)
            return (end - 1 if end > 0 else len(text)), here
        if letter == "<" and (match := _HERE.match(text, position)):
            return match.end() - 1, match
        if letter == "\n" and here:
            return _end_of_here(text, position + 1, here[3], bool(here[1]))[1] - 1, None
        return position, here

    def _after_double_quote(self, position: int) -> int:
        position += 1
        while position < len(self.text) and self.text[position] != '"':
            position += 2 if self.text[position] == "\\" else 1
        return position + 1

    def _braced(self, quoted: bool) -> Part:
        start = self.position
        end = self._matching(start + 1, "{", "}")
        source = self.text[start:end]
        line = self.line
        self._move(end)
        match = _PARAMETER.fullmatch(source[2:-1])
        if not match:
            return Part("unresolved", source, quoted)
        name, index, operator, default = match.groups()
        if index:
            return Part("array", name, quoted, source=source) if not operator else Part("unresolved", source, quoted)
        if operator is None:
            return Part("variable", name, quoted, source=source)
        if self.depth >= _DEEPEST_DEFAULT:
            return Part("unresolved", source, quoted)
        parts = _Scanner(default, line, self.depth + 1)._word(to_the_end=True)
        if not quoted and any(part.quoted and any(map(str.isspace, part.text)) for part in parts):
            return Part("unresolved", source, quoted)
        return Part("variable", name, quoted, parts, source)


def _end_of_here(text: str, start: int, delimiter: str, strip_tabs: bool) -> tuple[int, int]:
    """Where the text of a here-document ends, and where the line after its delimiter begins."""
    position = start
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        content = text[position:end]
        if (content.lstrip("\t") if strip_tabs else content) == delimiter:
            return position, min(end + 1, len(text))
        position = end + 1
    return len(text), len(text)


def _here_parts(text: str, is_quoted: bool, line: int, depth: int = 0) -> tuple[Part, ...]:
    if is_quoted:
        return (Part("text", text, quoted=True),)
    try:
        return _Scanner(text, line, depth).here()
    except UnreadableShell:
        return (Part("unresolved", text[:200], quoted=True),)


_BEFORE_COMMAND = ("if", "then", "elif", "else", "while", "until", "do", "!", "{", "time", "for")


def _brace_aware(text: str) -> Part:
    several = any("," in inner or ".." in inner for inner in _BRACES.findall(text))
    return Part("unresolved" if several else "text", text)


def _joined(parts: list[Part]) -> list[Part]:
    """Neighbouring texts of one kind as one part."""
    result: list[Part] = []
    for (kind, quoted), group in groupby(parts, lambda part: (part.kind, part.quoted)):
        neighbours = list(group)
        if kind == "text" and len(neighbours) > 1:
            neighbours = [Part(kind, "".join(part.text for part in neighbours), quoted)]
        result += neighbours
    return result
