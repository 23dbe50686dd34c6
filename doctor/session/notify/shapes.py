"""What a webhook is sent, and whether its answer says that it was taken. Pure."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import urllib.parse
from functools import cache
from typing import Any

import msgspec

from doctor.engine.sanitize import printable, strip_control_chars
from doctor.engine.texts import filled
from doctor.engine.toml_compat import loads


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of ``shapes.toml``."""

    source: str
    """Where the vendor documents it."""
    body: dict[str, object]
    """The JSON of a request, with ``{text}`` in the place of the message."""
    escape: dict[str, str] = {}
    """What stands for a character that the service would read as markup."""
    most: int = 3000
    """Characters of the message."""
    code: str = ""
    """The member of the answer that is 0 where the message was taken; empty: the HTTP status alone says so."""
    reason: str = ""
    """The member that says why not."""
    sign: str = ""
    """Where the signature goes: body, url; empty: it has none."""


@cache
def shapes() -> dict[str, Shape]:
    """By name."""
    with open(os.path.join(os.path.dirname(__file__), "shapes.toml"), encoding="utf-8") as file:
        return msgspec.convert(loads(file.read()), dict[str, Shape])


def request_of(shape: Shape, url: str, secret: str, text: str, now: float) -> tuple[str, dict[str, object]]:
    """The URL and the body, signed where there is a secret. ``now``: Unix time."""
    text = text if len(text) <= shape.most else text[: shape.most - 1] + "…"
    for character, instead in shape.escape.items():
        text = text.replace(character, instead)
    body = _with_text(shape.body, text)
    if secret and shape.sign == "body":
        stamp = str(int(now))
        body = {"timestamp": stamp, "sign": _digest(f"{stamp}\n{secret}", ""), **body}
    elif secret and shape.sign == "url":
        stamp = str(int(now * 1000))
        query = urllib.parse.urlencode({"timestamp": stamp, "sign": _digest(secret, f"{stamp}\n{secret}")})
        url += ("&" if urllib.parse.urlsplit(url).query else "?") + query
    return url, body


def refusal(shape: Shape, answer: bytes) -> str:
    """Why the service did not take a message, though its HTTP status is a good one; empty where it took it."""
    if not shape.code:
        return ""
    try:
        document = msgspec.json.decode(answer, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return "the answer is not the service's JSON"
    code = document.get(shape.code)
    if code == 0 and not isinstance(code, bool):
        return ""
    reason = strip_control_chars(str(document.get(shape.reason, "")), 120)
    return filled("the service answered {0} {1}", printable(str(code), 40), reason)


def _with_text(value: Any, text: str) -> Any:
    if isinstance(value, dict):
        return {key: _with_text(item, text) for key, item in value.items()}
    return text if value == "{text}" else value


def _digest(key: str, message: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), message.encode(), hashlib.sha256).digest()).decode()
