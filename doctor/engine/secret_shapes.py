"""What is a secret by its own shape, such as tokens of services, and by the command that it stands in."""

from __future__ import annotations

import re
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
