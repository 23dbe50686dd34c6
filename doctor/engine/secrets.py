"""Takes secrets out of text and of documents: the one place that says what looks like one. Pure."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Any

HIDDEN = "[hidden]"

_ANYWHERE = r"pass(?:word|wd|phrase)|secret|credential|api[_-]?key|access[_-]?key"
_AT_THE_END = (
    r"(?:token|auth|[\w.-]pwd|[a-z0-9][_.-]key|(?:private|encryption|signing|ssh|master|shared|account|access)key"
    r"|(?:db|smtp|user|root|admin|login|ldap|http|proxy|default|ftp|mail|redis|mysql|postgres|registry|ssh)[_.-]pass"
    r"|cookie|[_.-]sk|[_.-]sas|密码|口令|密钥|パスワード|비밀번호|пароль|senha|contrase[nñ]a|passwort|kennwort"
    r"|mot[_.-]?de[_.-]?passe)"
)
"""Of a name. ``tokenizer`` and ``max_tokens`` are none, nor are ``PWD``, ``OLDPWD`` and a bare ``key``."""
_NAME = rf"(?=[\w.-]*?(?:{_ANYWHERE}|{_AT_THE_END}(?![\w.-])))(?!oldpwd(?![\w.-]))[\w.-]+"
_VALUE = r"""(?:\\"(?:[^"\\\n]|\\(?!"))*\\"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[^\s"',;&|<$\[{][^\s"',;&|]*)"""
"""A placeholder such as ``<token>``, and a variable such as ``$HF_TOKEN``, are no value."""
# `key=value`, `key: value`, and `--key value`; a bare word before another is no assignment. A key begins where a run of
# its letters begins, so that each run is read once: what a host prints may be one run of megabytes.
_ASSIGNED = rf"""(?ix)
    (?P<key> (?<![\w.-]) (?: {_NAME}\\?["']?\]?[ \t]*[=:：][ \t]*b?
    | (?: (?=[\w.]*-) | (?<=setenv[ ]) | (?<=setx[ ]) | (?<=set[ ]-x[ ]) | (?<=set[ ]-gx[ ]) ) {_NAME}[ \t]+ ) )
    {_VALUE}
    """
_URL_SECRET = r"(://[^/\s:@\"']{0,200}:)(?:[^/\s\"'<>]|'(?![\s,\]})])){1,400}@(?=[\w.\[-])"
"""The last ``@`` before the host ends the password, which may have one itself."""
_URL_TOKEN = r"(?<=://)[0-9A-Za-z_-]{24,}(?=(?::\[hidden\])?@[\w.\[-])"
"""A token in place of the user, such as ``https://TOKEN@github.com/``."""
_URL_SIGNATURE = (
    r"(?i)([?&](?:(?:x-(?:amz|goog)-)?sig(?:nature)?|key)=|hooks\.slack\.com/services/|/open-apis/bot/v2/hook/"
    r"|discord(?:app)?\.com/api/webhooks/)[^&\s\"'<>\\]+"
)
"""Of an address that anybody who has it may open: Azure's SAS, presigned addresses of S3 and GCS, chat webhooks."""
_AUTHORIZATION = (
    r"(?i)(\bauthorization[\"']?:\s*[\"']?(?:bearer|basic|token|digest)\s+"
    r"|\b(?:bearer|basic)\s+(?=[a-z+/._~-]{0,200}[0-9])(?=[\w+/.~=-]{16})"
    r"|\b(?:password|passphrase|token)\s+(?:is|was)\s+(?=[^\s0-9]{0,200}[0-9])(?=[^\s\"']{8}))[^\s\"']+"
)
_LOGIN = (
    r"(?i)(\blogin[ \t\n]\S{1,200}[ \t\n]+password\s+|\bsshpass\s+-p\s*"
    r"|\bcurl\s[^\n|;&]{0,200}?(?:-u|--user)[ =][\"']?[^\s:\"']{1,100}:"
    r"|\b(?:docker|podman|nerdctl|skopeo|oc|az)\s+login\s[^\n|;&]{0,200}?\s-p[ =]+"
    r"|\b(?:mysql|mysqldump|mysqladmin|mariadb)\s(?:[^\n|;&]{0,200}?\s)?-p|\s-pass(?:in|out)?\s+pass:"
    r"|\bossutil\s[^\n|;&]{0,200}?\s-k[ =]+|\b(?:kinit|sudo)\s[^\n|;&]{0,100}?<<<\s*[\"']?"
    r"|\bu(?:ser[ ]?)?id=[^;\s]{1,100};\s*pwd=|\bak=[\w+/=-]{1,100}[ ,;&]{1,3}sk="
    r"|\bproxy[ \t]*[=:][ \t]*[^\s:/@]{1,100}:(?=[^\s@]{1,200}@))[^\s\"';]+"
)
"""Of a line of .netrc, and of commands that take a password as a word."""

_PIPED = r"(\becho\s+)[^\s|]{1,200}(?=\s{0,9}\|\s{0,9}sudo\s[^\n|]{0,60}-S\b)"
_ELEMENT = rf"(?i)(<{_NAME}>)[^<>\s][^<>]{{0,400}}(?=</)"
"""Of XML."""

_SHAPES = {
    "hf_": r"hf_(?:[A-Za-z0-9]{16,}|[A-Za-z0-9]+(?=…))",
    **{f"gh{kind}_": rf"gh{kind}_(?:[A-Za-z0-9]{{20,}}|[A-Za-z0-9]+(?=…))" for kind in "opsur"},
    "github_pat_": r"github_pat_(?:\w{20,}|\w+(?=…))",
    "sk-": r"sk-(?=[A-Za-z_-]*[0-9])(?:[\w-]{20,}|[\w-]{4,}(?=…))",
    "glpat-": r"glpat-(?:[\w-]{16,}|[\w-]+(?=…))",
    "xox": r"xox[a-z]-(?:[A-Za-z0-9-]{10,}|[A-Za-z0-9-]+(?=…))",
    "AKIA": r"AKIA(?:[A-Z0-9]{16}(?![A-Za-z0-9])|[A-Z0-9]+(?=…))",
    "ASIA": r"ASIA(?:[A-Z0-9]{16}(?![A-Za-z0-9])|[A-Z0-9]+(?=…))",
    "AIza": r"AIza[\w-]{35}",
    "eyJ": r"eyJ(?:[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?|[\w.-]{8,}(?=…))",
    "npm_": r"npm_(?:[A-Za-z0-9]{20,}|[A-Za-z0-9]+(?=…))",
    "pypi-": r"pypi-[\w-]{32,}",
    "nvapi-": r"nvapi-[\w-]{20,}",
    "gsk_": r"gsk_[A-Za-z0-9]{20,}",
    "r8_": r"r8_[A-Za-z0-9]{30,}",
    "dckr_": r"dckr_(?:pat|oat)_[\w-]{20,}",
    "dapi": r"dapi[0-9a-f]{32}(?:-\d)?(?![\w])",
    "dop_v1_": r"dop_v1_[0-9a-f]{40,}",
    **{f"gl{kind}-": rf"gl{kind}-[\w.-]{{16,}}" for kind in ("rt", "dt", "ptt", "cbt", "soat", "ft", "imt")},
    "glsa_": r"glsa_[A-Za-z0-9]{20,}_?[0-9a-f]*",
    **{f"hv{kind}.": rf"hv{kind}\.[\w-]{{20,}}" for kind in "sb"},
    "LTAI": r"LTAI[A-Za-z0-9]{12,}(?![A-Za-z0-9])",
    "AKID": r"AKID[A-Za-z0-9]{28,}(?![A-Za-z0-9])",
    "ya29.": r"ya29\.[\w-]{20,}",
    "GOCSPX-": r"GOCSPX-[\w-]{20,}",
    "SG.": r"SG\.[\w-]{16,}\.[\w-]{16,}",
    "k_live_": r"[prs]k_live_[A-Za-z0-9]{16,}",
    "xapp-": r"xapp-[A-Za-z0-9-]{16,}",
    "lsv2_": r"lsv2_[a-z]{2}_[0-9a-f]{20,}(?:_[0-9a-f]+)?",
    "tskey-": r"tskey-[A-Za-z0-9-]{16,}",
    "shp": r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    "lin_api_": r"lin_api_[A-Za-z0-9]{20,}",
    "ATATT3": r"ATATT3[\w=-]{20,}",
    "secret_": r"secret_[A-Za-z0-9]{40,}",
    "ntn_": r"ntn_[A-Za-z0-9]{40,}",
    "AGE-SECRET-KEY-": r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
}
"""Tokens by the letters that they begin with; one that was cut ends in ``…``."""
_PRIVATE_KEY = (
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
    r"(?:(?:(?!-----)[\s\S]){0,16384}-----END [A-Z ]{0,30}PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)"
)
"""To its end, also where a log puts a time and a rank before each line."""


WORDS = (
    *("pass", "secret", "credential", "key", "token", "auth", "pwd", "cookie", "密码", "口令", "login", "curl", "://"),
    *(f"{sign}{end}" for sign in "_.-" for end in ("sk", "sas")),
    *("\u017f", "\u212a"),  # a long s and the sign of Kelvin are letters of these words, too, where case is ignored
    *map(str.lower, _SHAPES),
)
"""In small letters: a line in which none of these stands holds no part of a secret, but that of a private key or login
that a line of the three before it began. `tests/test_secrets_gate.py` holds it against the patterns."""
WHOLE = b"PRIVATE KEY-----"
"""A text with this is searched as a whole."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """When it is needed: most commands show nothing that looks like a secret."""
    return re.compile(pattern)


def hide_tokens(text: str) -> str:
    """``text`` without what is a secret by its own shape: known tokens, private keys, passwords in a URL.

    A document of JSON or HTML is as valid as before.
    """
    for start, shape in _SHAPES.items():
        if start in text:
            text = _compiled(f"(?<![A-Za-z0-9]){shape}").sub(HIDDEN, text)
    if "PRIVATE KEY-----" in text:
        text = _compiled(_PRIVATE_KEY).sub(HIDDEN, text)
    if "://" in text:
        text = _compiled(_URL_SECRET).sub(rf"\1{HIDDEN}@", text)
        text = _compiled(_URL_TOKEN).sub(HIDDEN, text)
        text = _compiled(_URL_SIGNATURE).sub(rf"\1{HIDDEN}", text)
    return text


def hide_secrets(text: str) -> str:
    """The same, also without what is assigned to a name of a secret, and bearer tokens.

    >>> hide_secrets("train.py --api-key abc --lr 3 https://me:pw@x/")
    'train.py --api-key [hidden] --lr 3 https://me:[hidden]@x/'
    """
    text = _compiled(_AUTHORIZATION).sub(rf"\1{HIDDEN}", hide_tokens(text))
    text = _compiled(_LOGIN).sub(rf"\1{HIDDEN}", text)
    if "</" in text:
        text = _compiled(_ELEMENT).sub(rf"\1{HIDDEN}", text)
    if "sudo" in text:
        text = _compiled(_PIPED).sub(rf"\1{HIDDEN}", text)
    return _compiled(_ASSIGNED).sub(lambda match: match["key"] + HIDDEN, text)


@lru_cache(maxsize=1 << 14)
def is_secret_name(name: str) -> bool:
    """Whether what such a variable, field or option holds is hidden.

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "wandb_key", "PWD", "tokenizer", "key")]
    [True, True, False, False, False]
    """
    return _compiled(_ASSIGNED).match(f"{name}=x") is not None


def hide_in(value: Any) -> Any:
    """Plain values, as of JSON, without secrets: in texts, and texts under a secret's name."""
    if isinstance(value, str):
        return hide_secrets(value)
    if isinstance(value, dict):
        return {
            hide_tokens(key) if isinstance(key, str) else key: HIDDEN
            if isinstance(item, str) and item and isinstance(key, str) and is_secret_name(key)
            else hide_in(item)
            for key, item in value.items()
        }
    return [hide_in(item) for item in value] if isinstance(value, (list, tuple)) else value


def hide_in_output(text: str) -> str:
    """What a command printed, without secrets; JSON stays valid JSON, so that it can be evaluated again."""
    hidden = hide_secrets(text)
    if hidden == text or text[:1] not in ("{", "["):
        return hidden
    import msgspec  # every command prints; few have outputs of commands in JSON

    try:
        return msgspec.json.encode(hide_in(msgspec.json.decode(text))).decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return hidden
