"""Takes secrets out of text and of documents: the one place that says what looks like one. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

from doctor.engine.secret_shapes import (
    CLOSES,
    COMMANDS,
    CUT_PASSWORD,
    GAP,
    INNOCENT,
    KEY_END,
    LEAST_WORD,
    LONGEST_END,
    MORE_LETTERS,
    PRIVATE_KEY,
    SHAPES,
    WORDS,
    hide_cut,
    inner_texts,
    parts_between,
    without_cut_secret,
    without_words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HIDDEN = "[hidden]"

_ANYWHERE = (
    r"pass(?:_?word|wd|wrd|phrase|code)|passw(?![a-z])|psswd|secret|credential"
    r"|dockerconfigjson|api[_-]?key|access[_-]?key|auth[_-]config|azure[.](?:account[.]key|sas)[.]"
)
_AT_THE_END = (
    r"(?:token|auth|[\w.-]pwd|(?<!public)(?<=[a-z0-9])[_.-]key(?:[_-]?(?:base64|b64|hex|pem))?"
    r"|(?:private|encryption|signing|ssh|master|shared|account|access|auth)key|key[_-]?data"
    r"|(?:db|smtp|user|root|admin|login|ldap|http|proxy|default|ftp|mail|redis|mysql|postgres|registry|ssh|become"
    r"|vault|bind|sudo|krb5|kerberos|mqtt|amqp|mongo|kafka|elastic|grafana|jenkins|harbor|keystore|bmc|ipmi|snmp|wifi"
    r"|vnc|rdp|sql|oracle|imap|pop3?|wifi|web|sys|sa|me|site|rpc|nats|zabbix)[_.-]pass|key[_-]?pass|(?:ssh|db|smtp|mail|imap|user|root|admin|my)pass|(?:db|user|root|admin|bind|my)[_.-]?pw"
    r"|bearer|[_.-]dsn|jwt|[_.-]psk|authtok|(?:php|j)?sess(?:ion)?id|(?:x[_-][a-z]{2,5}|q)[_-]signature"
    r"|cookie|[_.-]sk|[_.-]sas|密码|口令|密钥|パスワード|비밀번호|пароль|senha|contrase[nñ]a|passwort|kennwort"
    r"|mot[_.-]?de[_.-]?passe)"
)
"""Of a name. ``tokenizer`` and ``max_tokens`` are none, nor are ``PWD``, ``OLDPWD`` and a bare ``key``."""
_NAME = rf"(?=[\w.-]*?(?:{_ANYWHERE}|{_AT_THE_END}(?![\w.-])))(?!{INNOCENT})(?!oldpwd(?![\w.-]))[\w.-]+"
_VALUE = r"""(?!(?:ok|none|null|nil|true|false|yes|no|on|off|enabled|disabled|failed|required|missing|invalid|expired
    |unset|empty|not|command|[*]{3,}|(?:self|args|cfg|config|kwargs|opts|options|settings)(?:[.][a-z_]{1,40}){1,4}
    |os[.]environ(?=\[))(?![\w./+=(-])
    |[\w-]{0,30}(?:password|passwd|token|secret|key|user(?:name)?|type|signature):[ \t]|[|>][0-9]?[+-]?[0-9]?[ \n]
    |/(?:etc|var|root|home|run|opt|usr|tmp|data|mnt)/[\w.-])
    (?:\\{2,7}"[^"\\\n]*\\{2,7}"|\\"(?:[^"\\\n]|\\(?!"))*\\"|"(?:[^"\\\n]|\\.)*"
    |'(?:[^'\\\n]|\\.)*'|(?:"[^"\n]{8,1000}|'[^'\n]{8,1000})\Z|[^\s"',;&|<$\[{][^\s"',;&|]*)"""
"""A placeholder such as ``<token>``, a variable such as ``$HF_TOKEN``, and a word such as ``none`` are no value."""
# `key=value`, `key: value`, and `--key value`; a bare word before another is no assignment. A key begins where a run of
# its letters begins, so that each run is read once: what a host prints may be one run of megabytes.
_ASSIGNED = rf"""(?ix)
    (?P<key> (?:(?<![\w.-])|(?<=\\[nrt]))
        (?: {_NAME} (?: \\{{0,7}}["']?\]?[ \t]*(?::=|=[ \t]{{0,3}}=?>|[=:：]>?|->(?=\S{{0,200}}[0-9])(?=\S{{16}}))
            [ \t]*(?:[bru]{{1,2}}(?=["']))?
        | ["'][ \t]*,[ \t]*(?=["'][^"'\s]{{12}})(?=["'][^"'\s0-9]{{0,99}}[0-9])(?=["'][^"'\sa-zA-Z]{{0,99}}[a-zA-Z])
        | :[ \t]*[|>][0-9]?[+-]?[0-9]?
            (?:(?:\n|\\{{1,7}}n)[ \t]+|[ ]+(?:/[ ]+)?(?=\S{{0,200}}[0-9])(?=\S{{0,200}}[A-Za-z])(?=\S{{8}})) )
        | (?<=<){_NAME}[ ]value[ ]?=[ ]?(?=["'])
    | (?: (?=[\w.]*--|-|[\w.]+-[\w.-]{{0,99}}[ \t]+\S{{0,200}}[0-9])
        | (?=[\w-]+\.[\w.-]*(?:secret|passw)[\w.-]*[ \t]+\S{{0,200}}[0-9])
        | (?<=setenv[ ]) | (?<=setx[ ]) | (?<=set[ ]-x[ ]) | (?<=set[ ]-gx[ ])
        | (?<=(?-i:ENV)[ ]) | (?<=configure[ ]set[ ]) | (?<=config[ ]set[ ]) | (?<=--secret[ ]) ) {_NAME}[ \t]+
    | (?-i:pwd)[ \t]*(?:=>?[ \t]*|:[ \t]+(?=\S{{0,200}}[0-9])(?=\S{{8}}))(?![/.~$\\])
    | (?-i:pass|PASS|pw|PW|[\w.-]{{0,60}}[_.-](?:pass|PASS)(?==\S{{8}})|--(?:pass|pw)
        |[A-Z_]{{1,60}}_PAT(?=[=:][ ]?\S{{12}}))
        (?:=|(?<=_PAT):[ ]?)(?=\S{{0,200}}[0-9])(?=\S{{0,200}}[A-Za-z])
    | (?-i:key|KEY)=(?=["']?(?:[^\s0-9]{{0,40}}[0-9]){{3}})(?-i:(?=[^\sa-z]{{0,40}}[a-z])
        (?=[^\sA-Z]{{0,40}}[A-Z]))(?=["']?[\w+/=-]{{24,200}}(?![\w.:]))
    | (?:salt|pepper)\\?["']?[ \t]*[=:][ \t]*(?=["']?[\w+/=-]{{16}})(?=[^\s0-9]{{0,40}}[0-9]) | t?otp=(?=[0-9]{{6}})
    | (?-i:sk|SK|session[_-]id)\\?["']?[ \t]*[=:][ \t]*(?=["']?[\w+/=-]{{20}})(?-i:(?=[^\sa-z]{{0,40}}[a-z]))
        (?-i:(?=[^\sA-Z]{{0,40}}[A-Z]))(?=[^\s0-9]{{0,40}}[0-9])
    | psk[ \t]*(?:=[ \t]*|(?=["'])) | (?-i:pass):[ ](?=\S{{0,200}}[0-9])(?=\S{{0,200}}[A-Za-z]) ) )
    {_VALUE}
    """
_URL_SECRET = (
    r"(:/{1,2}[^/\s:@\"']{0,200}:)(?:(?:[^/\s\"'<>]|'(?![\s,\]})])){1,400}"
    r"|(?![0-9]{1,5}/)[\w+/=.-]{40,4000})@(?=[\w.\[-])"
)
"""The last ``@`` before the host ends the password, which may have one itself."""
_URL_TOKEN = r"(?<=://)[0-9A-Za-z_-]{20,}(?=(?::\[hidden\])?@[\w.\[-])"
"""A token in place of the user, such as ``https://TOKEN@github.com/``."""
_URL_SIGNATURE = (
    r"(?i)([?&](?:sig(?:nature)?|sign(?==[\w%+/-]{20})|key)=|netloc=[\"'][^:\"'\s]{0,100}:|(?<![\w.])signature=(?=[0-9a-f]{64})|sctapi\.ftqq\.com/|api\.day\.app/|/with/key/|hooks\.slack\.com/(?:services|workflows|triggers)/|webhook\.office\.com/webhookb2/|/open-apis/bot/(?:v2/)?hook/"
    r"|conda\.\S{0,60}/t/(?=[^/\s]{12}|[^/\s]{6,11}\Z)|discord(?:app)?\.com/api/webhooks/|/incomingwebhook/|api\.telegram\.org/bot)[^&\s\"'<>\\]+"
)
"""Of an address that anybody who has it may open: Azure's SAS, presigned addresses of S3 and GCS, chat webhooks."""
_SIGNATURE_MARKS = (
    *("sig=", "sign=", "signature=", "?key=", "&key=", "netloc=", "hook", "telegram", "ftqq", "day.app", "/key/"),
    "conda",
)
"""In small letters: an ASCII text without any of them has no part that `_URL_SIGNATURE` matches."""
_AUTHORIZATION = (
    r"(?i)(\bauthorization[\"']?[:=]\s*[\"']?(?:(?:bearer|basic|token|digest)\s+|(?:[\w-]{2,20}\s+)?(?:token=)?"
    r"(?=[^\s\"'0-9]{0,200}[0-9])(?=[^\s\"']{12}))"
    r"|\bbearer\s+(?=[a-z+/._~-]{0,200}[0-9])(?=[\w+/.~=-]{16})"
    r"|\b(?:password|passphrase|token)\s+(?:for\s+\S{1,100}\s+)?(?:is|was):?\s+(?=[^\s0-9]{0,200}[0-9])(?=[^\s\"']{8}))[^\s\"']+"
)
_START = r"(?:(?<![\w-])|(?<=\\[nrt]))"
"""Of a word, also where the end of the line before it is shown as ``\\n``."""
_OPTIONS = 2
"""So many secrets of one command are hidden, such as those of ``snmpwalk -A ... -X ...``."""
_MIXED = r"(?-i:(?=[^\s0-9]{0,200}[0-9])(?=[^\sa-z]{0,200}[a-z])(?=[^\sA-Z]{0,200}[A-Z]))"
"""What follows has small letters, capitals and digits."""
_LOGIN = (
    r"(?i)(\blogin[ \t\n]\S{1,200}[ \t\n]+password\s+"
    r"|\bu(?:ser[ ]?)?id=[^;\s]{1,100};\s*pwd=|\bak=[\"']?[\w+/=-]{1,100}[\"']?[ ,;&]{1,3}sk=[\"']?"
    r"|\bproxy[ \t]*[=:][ \t]*(?![0-9]{1,6}:[0-9]{1,6}@)[^\s:/@]{1,100}:(?=[^\s@]{1,200}@)"
    rf"|{_START}(?:requirepass|masterauth|bindpw|rootpw|olcrootpw|wpa-psk|r[ow]community6?|snmp-server[ ]community"
    r"|enable[ ]secret(?:[ ][0-9])?|(?:enable|username[ ]\S{1,60})[ ]password[ ][0-9]|tacacs-server[ ]key[ ][0-9]"
    r"|auth(?:enticate)?[ ](?:plain|login|xoauth2|oauthbearer|ntlm|cram-md5)(?=[ ][\w+/=]{0,200}[0-9=]))[ \t]+"
    r"|(?-i:\bHELLO[ ][23][ ]AUTH)[ ][^\s<]{1,60}[ ]+(?!<)"
    rf"|\b(?-i:AUTH)[ ]+(?:[\w-]{{1,60}}[ ]+)?(?=[^\s/._:\"'\\]{{12}}){_MIXED}"
    # FTP, POP, and Redis as its MONITOR and a capture show it: a capital word, then what has letters and digits, to the
    # end of a line, or to the next of several texts in one line.
    r"|(?:(?:(?:[>:/\"']|\+ok)[ ]?|\b(?=PASS[ ]\D{1,99}[0-9]{1,99}[^\s0-9]{1,99}[0-9]))(?-i:PASS)[ ]+"
    r"|\b(?-i:AUTH)[ ]+(?:default[ ]+|[\w-]{1,60}[ ]+(?=(?-i:[^\sA-Z]{0,99}[A-Z])))?"
    r"|\bsetuser\b[^\n]{0,100}?[\s\"]>|\"(?-i:AUTH)\"[ ](?:\"[^\"\s]{1,100}\"[ ])?\")"
    r"(?-i:(?=[^\s0-9]{0,100}[0-9])(?=[^\sa-z]{0,100}[a-z]))(?=[^\s/._:\"'\\]{8,200}(?:[\r\n\"']|\\r|;[ ]|$))"
    r"|(?:\+ok|\b331[ ][^\n]{0,99})(?:\\[rn]|[\s/|;]){0,6}(?:[\w-]{0,20}[:>]{1,4}[ ])?(?-i:\bPASS)[ ]+"
    r"(?=[^\s0-9]{0,100}[0-9])(?=\S{8})"
    r"|\b(?:sen[dt]s?|sending|command|cmd|after|issued|ftp|pop3?|irc|user|login|tried|rejected|line|request)\b[^\n]{0,60}?"
    r"(?-i:\bPASS)[ ]+(?=[^\s0-9]{0,100}[0-9])(?=[^\s/._:\"'\\]{8})(?-i:(?=[^\sa-z]{0,100}[a-z]))"
    r"|(?-i:\bAUTH)(?:\\r\\n|\s{1,2})\$[0-9]{1,4}(?:\\r\\n|\s{1,2})"
    r"(?:[\w.-]{1,60}(?:\\r\\n|\s{1,2})\$[0-9]{1,4}(?:\\r\\n|\s{1,2}))?"
    r"|\"username\":[ ]?\"[^\"\n]{1,60}\",[ ]?\"key\":[ ]?\"(?=[0-9a-f]{32}\")"
    r"|\bjdbc:oracle:\w{1,20}:[\w.-]{1,60}/)[^\s\"';]+"
)
"""Of a line of .netrc, of a connection, and directives of configuration files."""
_STATED = (
    r"(?i)(\b(?:api|access|secret|private|license|shared)[ ]key(?:[ ]provided|[ ]verification[ ]failed[ ]for[ ]key)?"
    r"(?:[ ](?:is|was)(?:[ ]configured)?)?:?[ \t]+[\"']?"
    r"(?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{0,200}[a-z])(?=[^\s\"']{12})"
    r"|\b(?:password|passphrase|token)[ ]+[\"'](?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{0,200}[a-z])(?=[^\s\"']{12})"
    r"|\b(?:password|token)[ ]+"
    r"(?-i:(?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{0,200}[a-z])(?=[^\s\"']{0,200}[A-Z]))(?=[\w-]{12})"
    r"|\b(?:pass(?:word|phrase)[ ]for|temporary[ ]password[ ]is[ ]generated[ ]for)[ ][^\n]{1,100}?:[ \t]+"
    r"(?=[^\s]{0,200}[0-9])"
    r"|\badd_argument\([\"']--[\w-]{0,60}(?:token|password|passwd|secret|api[_-]key)[\"'][^\n)]{0,100}?"
    r"\bdefault=[\"'](?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{8})"
    r"|\b(?-i:[A-Z][A-Z0-9_]{1,60}_(?:KEY|TOKEN|SECRET|PASSWORD))[ ](?=[\w+/=-]{16})"
    + _MIXED
    + r"|\b(?:secret|credentials?)[ ](?:(?:is|was)[ ])?[(\"']?(?=[\w+/=-]{12})"
    + _MIXED
    + r"|\bak/sk[ \t]*[:=][ \t]*[\w+=-]{1,100}/(?=[\w+=-]{12})"
    r"|\bcookies=\{[^}\n]{0,100}?:[ ]?[\"']|\bcookie:[ \t]+[^\n\"']{0,400}?=(?=[^\s;\"']{12})"
    r"|\bsend(?:[ ]--)?[ ][\"'](?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{0,200}[a-z])(?=[^\s\"']{8,200}\\\\?r[\"'])"
    r"|<\([ ]?(?:echo|printf)[ ](?:-[ne]{1,2}[ ])?[\"']?(?=[^\s\"')]{8})"
    r"|\b(?:minio|(?:ssh|\w{0,9}mysql\w{0,9})\.connect)\((?:[\"'][^\"'\n]{0,100}[\"'],[ ]?|[0-9]{1,5},[ ]?){2,3}[\"']"
    r"(?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{8,200}[\"'])"
    r"|\bidentified[ ](?:with[ ]\S{1,60}[ ])?(?:by|as)[ ](?:password[ ])?[\"']"
    r"|(?-i:\bSignature:\s{1,3}(?=[0-9a-f]{64}\b))"
    r"|(?-i:\bSEC(?=[0-9a-f]{64}\b))|(?:密码|口令|密钥)[是为][ \t]*|mot de passe[ \t]*[:=][ \t]*"
    r"|\blogin\((?:key=)?[\"'](?=[^\s\"']{0,200}[0-9])(?=[^\s\"']{8})"
    r"|(?:basic_?auth|digest_?auth|\bauth|\blogin|\bcredentials?)\([\"'][^\"'\n]{0,100}[\"'],[ ]?[\"']"
    r"|\bauth=\([\"'][^\"'\n]{0,100}[\"'],[ ]?[\"'])[^\s\"',;)]+"
)
"""Of sentences of exceptions, and calls in the source that a traceback quotes."""
_IN_WORDS = tuple(text.replace(r"\b", r"(?:\b|(?<=\\[nrt]))") for text in (_AUTHORIZATION, _LOGIN, _STATED))
"""A word begins behind the end of a line that is shown as ``\\n``, too."""
_ENCODED = r"(?i)((?:pass(?:word|wd)|secret|token|api_?key)(?:%22|%27)?(?:%3A|%3D)(?:%20|%22|%27|\+){0,9})[^%&\s\"']+"
_NAMED_VALUE = rf"""(?ix)
    (\b(?:name|key)\\?["']?[ \t]*[:=][ \t]*\\?["']?
    (?:{_NAME}|PASS|PW)\\?["']?(?:[ \t]*[,;/|])?(?:\\+[nr]|\s)*\\?["']?value\\?["']?[ \t]*[:=][ \t]*)
    {_VALUE}
    """
"""Of a variable in a pod's specification, also where its lines are joined."""

_PIPED = (
    r"(\b(?:echo|printf)\s+(?:-[ne]{1,2}\s+|[\"']?%s(?:\\n)?[\"']?\s+)?)[^\s|]{1,200}"
    r"(?=\s{0,9}\|\s{0,9}(?:sudo\s[^\n|]{0,60}-S\b|(?:sudo\s+)?chpasswd\b|kinit\b"
    r"|(?:sudo\s+)?passwd\s[^\n|]{0,60}--stdin\b"
    r"|[^\n|]{0,100}--(?:password-stdin|with-token|key-file[ =]-)|(?:sudo\s+)?cryptsetup\b))"
)
_ELEMENT = (
    rf"(?i)(<{_NAME}>|<name>{_NAME}</name>\s{{0,9}}<value>|<\w{{1,40}}[ ]name=[\"']{_NAME}[\"']>)"
    r"[^<>\s][^<>]{0,400}(?=</)"
)
"""Of XML."""
_FULL_MATCH = ("PRIVATE KEY", "Private-Lines: ")
"""A text with one of these is searched as a whole."""
_BEHIND = 3
"""Lines that are not empty behind one that is searched: a header or a login may go on in them."""
_IN_ELEMENT = 8
"""Behind one with XML: lines of a value that `_ELEMENT` may take."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """When it is needed: most commands show nothing that looks like a secret."""
    return re.compile(pattern)


def hide_tokens(text: str) -> str:
    """``text`` without what is a secret by its own shape: known tokens, private keys, passwords in a URL.

    A document of JSON or HTML is as valid as before. A long text is searched once: what was rendered is then written.
    """
    if any(text is clean for clean in _clean):
        return text
    for start, shape in SHAPES.items():
        if start in text:
            text = _compiled(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?=\$)){shape}").sub(HIDDEN, text)
    if "PRIVATE KEY" in text or "Private-Lines: " in text:
        text = _compiled(PRIVATE_KEY).sub(HIDDEN, text)
        text = _compiled(KEY_END).sub(HIDDEN, text) if "END " in text else text
    if ":/" in text:
        text = _compiled(_URL_SECRET).sub(rf"\1{HIDDEN}@", text)
        text = _compiled(_URL_TOKEN).sub(HIDDEN, text)
    lowered = text.lower() if text.isascii() else ""
    if not lowered or any(mark in lowered for mark in _SIGNATURE_MARKS):
        text = _compiled(_URL_SIGNATURE).sub(rf"\1{HIDDEN}", text)
    if len(text) > _LONG:
        _clean[:] = [text]
    return text


_LONG = 1 << 16
_clean: list[str] = []
"""The last text of so many characters that `hide_tokens` has returned."""


def hide_secrets(text: str) -> str:
    """The same, also without what is assigned to a name of a secret, and bearer tokens.

    >>> hide_secrets("train.py --api-key abc --lr 3 https://me:pw@x/")
    'train.py --api-key [hidden] --lr 3 https://me:[hidden]@x/'
    """
    return _without_own(hide_layered(text))


def hide_layered(text: str) -> str:
    """The text without what is a secret once layers of quoting are taken away: it stands there as it stands here."""
    return without_words(text, {word for inner in inner_texts(text) for word in _hidden_words(inner)}, HIDDEN)


def _without_own(text: str) -> str:
    """Without the secrets that stand in it as they are."""
    lower = text.lower()
    words = [word for word in (_words_like(_NUMBERS.sub("0", lower)) if len(lower) < 2048 else WORDS) if word in lower]
    if not _PRINTED.issuperset(words) or "|" in text or "<(" in text:
        text = hide_in_lines(text, _lines_with(words, lower))
    return _without_cut_end(text) if words else text


_PRINTED = {"echo", "printf"}
"""Of `WORDS`: what they print is a secret where a pipe leads on, or ``<(`` stands before them."""


_NUMBERS = re.compile("[0-9]+")
_WORDS_LIKE = [(_NUMBERS.sub("0", word), word) for word in WORDS]


@lru_cache(maxsize=1 << 11)
def _words_like(text: str) -> tuple[str, ...]:
    """Those of `WORDS` that may stand in a text which this is with a 0 for each number: many hosts' texts are one."""
    return tuple(word for like, word in _WORDS_LIKE if like in text)


def _without_cut_end(text: str) -> str:
    """A text may have been cut before it came here: its end is searched again with what would close a secret there.

    >>> _without_cut_end("sh: echo Hunter2hunter2"), _without_cut_end("token: 'Hunter2hun"), _without_cut_end("echo it")
    ('sh: echo [hidden]', 'token: [hidden]', 'echo it')
    """
    body = text.rstrip("\\ \t\r\n…")
    start = max(body.rfind("\n") + 1, len(body) - LONGEST_END)
    tail = hide_cut(body[start:], HIDDEN)
    if not tail.endswith(HIDDEN) and _compiled(CUT_PASSWORD).search(tail):
        tail = without_cut_secret(tail, MORE_LETTERS, _without_named, HIDDEN)
    for mark, close in CLOSES:
        if not tail.endswith(HIDDEN) and mark in tail and (mark != close or tail.count(mark) % 2):
            tail = without_cut_secret(tail, close, _without_piped if "|" in close else _searched, HIDDEN)
    return text if tail == body[start:] else text[:start] + tail + text[len(body) :]


def _hidden_words(text: str) -> Iterator[str]:
    """The words of those secrets, each as often as it stands there."""
    for key in _compiled(PRIVATE_KEY).finditer(text) if "PRIVATE KEY" in text else ():
        yield from re.findall(r"\S{16,}", key[0])
    lines, hidden_lines = text.split("\n"), _without_own(text).split("\n")
    if len(lines) != len(hidden_lines):
        hidden_lines = [_without_own(line) for line in lines]
    for line, hidden in zip(lines, hidden_lines, strict=True):
        yield from re.findall(rf"[^\s\"'<>]{{{LEAST_WORD},}}", " ".join(parts_between(line, hidden, HIDDEN)))


def hide_in_lines(text: str, numbers: Iterable[int]) -> str:
    """The same, where only lines of these ``numbers``, from 0, in order, hold one of `WORDS`."""
    if any(mark in text for mark in _FULL_MATCH):
        return _searched(text)
    lines = text.split("\n")
    pieces: list[str] = []
    end = 0
    for first, last in _runs(lines, numbers):
        pieces += [*lines[end:first], _searched("\n".join(lines[first:last]))]
        end = last
    return "\n".join([*pieces, *lines[end:]])


def _lines_with(words: Iterable[str], text: str) -> list[int]:
    ends = list(accumulate(len(line) + 1 for line in text.split("\n")))
    numbers = set()
    for word in words:
        place = text.find(word)
        while place >= 0:
            number = bisect_right(ends, place)
            numbers.add(number)
            place = text.find(word, ends[number])
    return sorted(numbers)


def _runs(lines: list[str], numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """From where to where lines are searched together, in order: the chosen ones, and some behind each."""
    first = last = -1
    for number in numbers:
        if number >= last:
            if last > 0:
                yield first, last
            first = number
        lines_left, last = _IN_ELEMENT if "<" in lines[number] else _BEHIND, number + 1
        if _ENCODED_LINE.fullmatch(lines[number]):
            lines_left = 0
        while last < len(lines) and lines_left:
            lines_left -= bool(lines[last].strip())
            last += 1
    if last > 0:
        yield first, last


_ENCODED_LINE = re.compile(r"[A-Za-z0-9+/]{40,}={0,2}\r?")
"""A whole line of base64: nothing is assigned in it, and it holds no words; a token may stand there."""
_LONG_RUN = re.compile(r"([A-Za-z0-9+/]{128})([A-Za-z0-9+/]{768,})([A-Za-z0-9+/]{128})")
"""Of base64. What is assigned, or named, in the middle of it begins or ends in one of its ends."""
_CUT = re.compile("\ue000(\\d{1,9})aA\ue001")


def _searched(text: str) -> str:
    """Of long runs of base64, in which most of the time would go, the middles are searched for tokens alone."""
    text = hide_tokens(text)
    if _ENCODED_LINE.fullmatch(text):
        return text
    middles: list[str] = []

    def cut(match: re.Match[str]) -> str:
        middles.append(match[2])
        return f"{match[1]}\ue000{len(middles) - 1}aA\ue001{match[3]}"

    hidden = _without_named(_LONG_RUN.sub(cut, text) if "\ue000" not in text else text)
    return _CUT.sub(lambda match: middles[int(match[1])], hidden) if middles else hidden


def _without_piped(text: str) -> str:
    return _compiled(_PIPED).sub(rf"\1{HIDDEN}", text)


def _without_named(text: str) -> str:
    for pattern in (_IN_WORDS[0], *[_commands()] * _OPTIONS, *_IN_WORDS[1:]):
        text = _compiled(pattern).sub(rf"\1{HIDDEN}", text)
    for mark, pattern in (("</", _ELEMENT), ("|", _PIPED), ("%3", _ENCODED), ("value", _NAMED_VALUE)):
        if mark in text:
            text = _compiled(pattern).sub(rf"\1{HIDDEN}", text)
    return _compiled(_ASSIGNED).sub(_hide_value, text)


def hidden_parts(text: str) -> tuple[str, ...]:
    """What `hide_secrets` takes out of a text, without parts that are too short to be looked for elsewhere.

    >>> hidden_parts("echo me:hunter2hunter2 | chpasswd")
    ('me:hunter2hunter2',)
    """
    hidden = hide_secrets(text)
    if len(text) > 10_000 or hidden.count(HIDDEN) > 3:
        return ()
    return tuple(part for part in parts_between(text, hidden, HIDDEN) if len(part) >= 8)


def _hide_value(match: re.Match[str]) -> str:
    """A number of tokens, or seconds of each, is no token; six digits alone may be a password for one use."""
    is_count = match.string[match.start() - 1 : match.start()] == "#" and match[0].lower().startswith("token")
    number = r"[0-9]{1,9}" if is_count else r"[0-9]{0,6}\.[0-9]{1,12}(?:e[+-]?[0-9]{1,3})?(?:[mu]?s)?"
    is_number = _compiled(rf"(?i)(?:[\w.-]*[_.-])?token[\"'\s=:]*{number}$").match(match[0])
    return match[0] if is_number else match["key"] + HIDDEN


@cache
def _commands() -> str:
    """Each of `COMMANDS`, and what stands before a secret among its words."""
    between = rf"(?:{GAP}(?![ \t])[^\n|;&]{{0,200}}?)??(?<![ \t]){GAP}"
    rows = (rf"(?:{programs}){between}(?:{option})" for programs, option in COMMANDS)
    return rf"({_START}(?:{'|'.join(rows)})[\"']?)(?!-|\[hidden|\$\{{?[A-Z_]{{2,40}}\}}?(?:[\"'\s]|$))[^\s\"',;|&]+"


@lru_cache(maxsize=1 << 14)
def is_secret_name(name: str) -> bool:
    """Whether what such a variable, field or option holds is hidden.

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "wandb_key", "PWD", "tokenizer", "key")]
    [True, True, False, False, False]
    """
    return _compiled(_ASSIGNED).match(f"{name}=/") is not None


def hide_in(value: Any) -> Any:
    """Plain values, as of JSON, without secrets: in texts, and texts under a secret's name."""
    if isinstance(value, str):
        return hide_secrets(value)
    if isinstance(value, dict):
        if isinstance(value.get("value"), str) and is_secret_name(str(value.get("name", ""))):
            value = {**value, "value": HIDDEN}  # a variable of a pod's specification
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
