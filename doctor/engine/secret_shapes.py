"""What is a secret by its own shape, such as tokens of services, and by the command that it stands in.

Also what programs write for the characters of a text that they pass on, and the texts below such layers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

_ROWS = [
    [line.split(" ", 1) for line in part.splitlines() if not line.startswith("#")]
    for part in Path(__file__).with_suffix(".txt").read_text("utf-8").split("\n\n")
]
SHAPES = dict(_ROWS[0])
"""Tokens by letters that they hold; one that was cut ends in ``…``."""
PRIVATE_KEY = (
    r"----[ -]BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?[ -]----"
    r"(?:(?:(?!----)[\s\S]){0,16384}----[ -]END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?[ -]----"
    r"|(?:(?:\\+[nr]|\s)+(?:[^\n\\]{0,80}?\s)?[A-Za-z0-9+/]{16,}={0,2})*[A-Za-z0-9+/=\s\\]*)"
    r"|(?<=Private-Lines: )[0-9]{1,4}\s[A-Za-z0-9+/=\s]{1,16384}"
)
"""To its end, also where a log puts a time and a rank before each line."""
KEY_END = (
    r"(?m)^(?:(?:[^\n]{0,80}[ \t])?[A-Za-z0-9+/]{16,80}={0,2}[ \t\r]*\n){1,64}"
    r"[^\n]{0,80}----[ -]END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?[ -]----"
)
"""Of a text whose beginning was cut off."""
GAP = r"(?:[ \t]+|[\"'],[ \t]*[\"'])"
"""Between words of a command, also where a log shows them as a list."""
COMMANDS = tuple((programs, before.replace("GAP", GAP)) for programs, before in _ROWS[1])
"""Programs, and what stands before a secret among their words."""

INNOCENT = (
    r"(?:[\w.-]*[_.-])?(?:(?:eos|bos|pad|unk|sep|cls|mask|per|first|next|stop|start|image|video|audio|special)[_-]token"
    r"|(?:barrier|sort|primary|foreign|missing|unexpected|past|json|metric|reward|input|label|prompt|text|image|host"
    r"|cache|group|partition|lookup|row|column|dict|order|state|module|param|dataset|feature|target|query|attention|layer"
    r"|weight|output|batch|sample|unique|dedup|rank|prefix|hash|kv|loss|score|answer|question|response|messages|chosen"
    r"|rejected|caption|tensor|checkpoint|ckpt|tokenizer|split|content)"
    r"[_-]key|password-?less|(?:secrets?|passw(?:or)?d|token|key|credentials?)[_-]?(?:file|path|dir|name|policy|length|ttl))"
    r"(?![\w.-])"
)
"""Names of a tokenizer, of a column of data, and of statistics."""

WORDS = (
    *("pass", "secret", "credential", "key", "token", "auth", "pwd", "cookie", "密码", "口令", "login", "curl", ":/"),
    *("密钥", "パスワード", "비밀번호", "пароль", "Пароль", "ПАРОЛЬ", "senha", "contrase", "kennwort", "contraseÑ"),
    *(f"{sign}{end}" for sign in "_.-" for end in ("sk", "sas", "dsn")),
    *(
        *("pw", "bearer", "jwt", "psk", "sessid", "sessionid", "sig=", "sign=", "signature=", "netloc"),
        *("community", "hook"),
    ),
    *("oracle", "azure", "echo", "sk=", " sk:", "\tsk:", "ak/sk", "dockerconfigjson", "_pat=", "_pat:", "proxy"),
    *(program for programs, _ in COMMANDS for program in programs.split("|") if len(program) > 2),
    *("alias", "telegram", "passw", "psswd", "ftqq", "day.app", "conda", "(echo", "printf", "minio", "ssh.connect"),
    *("salt", "pepper", "setuser", "otp=", '"sk"', "'sk'", "session_id", "session-id", "identified", "signature:"),
    *("dingtalk", "7z", "send '", 'send "', "send --", "cryptsetup", "http -", "https -"),
    *("\u017f", "\u212a"),  # a long s and the sign of Kelvin are letters of these words, too, where case is ignored
    *map(str.lower, SHAPES),
)
"""In small letters: a line in which none of these stands holds no part of a secret, but that of a private key or login
that a line of the three before it began. `tests/diagnose/test_secrets_gate.py` holds it against the patterns."""
LONGEST_END = 1000
CLOSES = (
    ('"', '"'),
    ("'", "'"),
    ("<", "</"),
    ("echo", " | kinit"),
    ("printf", " | kinit"),
    ("://", "@h"),
    ("curl", "@h"),
)
"""What a text with a secret at its end holds, and what would stand behind the secret."""
CUT_PASSWORD = r"(?=\D*\d)(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])(?<![^\s\"'=:/(])[^\s\"'=:/(]{8,64}\Z"
"""The beginning of a password at the end of a text."""
MORE_LETTERS = "ZzZzZzZzZzZz"
"""What would stand behind it: with them it has as many characters as the rules of named passwords ask for."""


_OF_TOKENS = r"[\w.+/=~,$-]"


def hide_cut(text: str, mark: str) -> str:
    """``text`` with ``mark`` in the place of the beginning of a token at its end, where a token was cut."""
    for start, cut in _cut_shapes().items():
        if start in text:
            text = re.compile(cut).sub(mark, text)
    return re.compile(_cut_start()).sub(mark, text) if re.fullmatch(rf"{_OF_TOKENS}+", text[-12:]) else text


@cache
def _cut_shapes() -> dict[str, str]:
    """Of tokens with a number of characters, by the letters that they hold: with half of those of their last part."""
    counted = re.compile(r"(.*)\{([0-9]{2,3})(?:,[0-9]*)?\}(?:\(\?![^()]*\))?")
    matches = ((start, counted.fullmatch(shape)) for start, shape in SHAPES.items())
    begin = r"(?<![A-Za-z0-9])(?=\D{0,200}[0-9])"
    return {start: rf"{begin}{match[1]}{{{int(match[2]) // 2},}}\Z" for start, match in matches if match}


@cache
def _cut_start() -> str:
    """The beginning of a token at the end of a text; one of a few letters may begin any word, or a version."""
    starts = (start for start, shape in SHAPES.items() if shape.startswith((start, re.escape(start), "(?:", "[prs]")))
    others = ("key-", "v1.0-", "LS0tLS1CRUdJTi")
    short = (start for start in SHAPES if start == "A3-" or "(?=…)" in SHAPES[start])
    usual = dict.fromkeys([*(start for start in starts if len(start) > 3 and start not in others), *short])
    random = r"(?:(?=\D*\d)(?=[^a-zA-Z]*[a-zA-Z])|(?=(?:[^A-Z]*[A-Z]){4})(?=(?:[^a-z]*[a-z]){4}))"
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, usual))}){random}{_OF_TOKENS}{{12,}}\Z"


_MARKS = ("&quot;", "&#", "&lt;", "&gt;", "&amp;", "\\x", "'\"'\"'", "'\\''", "\\u", '\\"', "\\'", "\\n  ")
_MOST_LAYERS = 8
"""Of quoting, one in another, that are taken away: a text may have as many as it has characters."""
LEAST_WORD = 8
"""Characters of a word that is looked for wherever it stands."""
_LONG_WORD = 4096
_LAYERS = (
    (r"&(?:quot|#0?34|#x22);", '"'),
    (r"&(?:apos|#0?39|#x27);|'\"'\"'|'\\''", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
    (r"(?<!\\)\\+([\"'])", r"\1"),
    (r"(?<!\\)\\+[rn]", "\n"),
)
"""What a program that passes a text on writes for a character of it: of HTML, of a shell's words, of JSON."""


def inner_texts(text: str) -> Iterator[str]:
    """The text with one layer of quoting taken away, then with two, and so on.

    >>> list(inner_texts("a &amp;lt; b"))
    ['a &lt; b', 'a < b']
    """
    if "\\" not in text and "&" not in text and "'" not in text:  # as most texts: each of the marks has one of them
        return
    inner = text
    for _ in range(_MOST_LAYERS):
        outer = inner
        inner = _without_layer(outer) if any(mark in outer for mark in _MARKS) else outer
        if inner == outer:
            return
        yield inner


def _without_layer(text: str) -> str:
    inner = text
    for pattern, plain in _LAYERS:
        inner = re.compile(pattern).sub(plain, inner)
    inner = re.compile(r"(?<!\\)\\+u([0-9a-f]{4})").sub(lambda match: chr(int(match[1], 16)), inner)
    bytes_of = re.compile(r"(?<!\\)(?:\\+x[0-9a-f]{2})+")
    return bytes_of.sub(_decoded, inner)


def _decoded(match: re.Match[str]) -> str:
    return bytes.fromhex(re.sub(r"(?<!\\)\\+x", "", match[0])).decode("utf-8", "replace")


def parts_between(text: str, hidden: str, mark: str) -> Iterator[str]:
    """What of ``text`` is not in ``hidden``, which has ``mark`` in the place of each; none where it has other text.

    >>> list(parts_between("a=b c=d", "a=[x] c=[x]", "[x]"))
    ['b', 'd']
    """
    first, *kept = hidden.split(mark)
    place, end = len(first), len(text) - len(kept[-1]) if kept else 0
    for number, literal in enumerate(kept, 1):
        begin = end if number == len(kept) else text.find(literal, place + 1, end)
        if begin <= place:
            return
        yield text[place:begin]
        place = begin + len(literal)


def without_cut_secret(tail: str, close: str, search: Callable[[str], str], mark: str) -> str:
    """A text without the secret at its end that ``search`` replaces by ``mark`` where ``close`` stands behind it.

    Without a quote before it, only what has eight characters, a digit and a letter is one.
    """
    hidden = search(tail + close).removesuffix(close)
    if not hidden.endswith(mark) or (close == "@h" and hidden.endswith(f"/{mark}")):
        return tail
    cut = "".join([*parts_between(tail, hidden, mark)][-1:])
    return hidden if close in ("'", '"') or _LIKE_PASSWORD.match(cut) else tail


_LIKE_PASSWORD = re.compile(r"(?=\D*\d)(?=[^a-zA-Z]*[a-zA-Z]).{8}")


def without_words(text: str, words: Collection[str], mark: str) -> str:
    """``text`` with ``mark`` in the place of each of the words, of `LEAST_WORD` characters or more; also of all that
    overlap. A text may have as many words as lines: each place of it is compared with a few of them, not with all.

    >>> without_words("a=12345678, b=123456789", {"12345678", "123456789"}, "[x]")
    'a=[x], b=[x]'
    """
    for word in words:
        if len(word) > _LONG_WORD:
            text = text.replace(word, mark)
    ordered = sorted(word for word in words if len(word) <= _LONG_WORD)
    heads, longest = {word[:LEAST_WORD] for word in ordered}, max(map(len, ordered), default=0)
    pieces, end = [], 0
    for place in range(len(text) - LEAST_WORD + 1 if heads else 0):
        if text[place : place + LEAST_WORD] not in heads:
            continue
        size = _longest_start(text[place : place + longest], ordered)
        if size and place >= end:
            pieces += [text[end:place], mark]
        end = max(end, place + size) if size else end
    return "".join([*pieces, text[end:]])


def _longest_start(text: str, ordered: Sequence[str]) -> int:
    """Characters of the longest of the words that ``text`` begins with; 0: it begins with none."""
    while number := bisect_right(ordered, text):
        word = ordered[number - 1]
        if text.startswith(word):
            return len(word)
        text = text[: next(place for place, letter in enumerate(word) if text[place : place + 1] != letter)]
    return 0
