"""What programs write for the characters of a text that they pass on, and the text below one such layer."""

from __future__ import annotations

import re

LAYER_MARKS = ("&quot;", "&#", "&lt;", "&gt;", "&amp;", "\\x", "'\"'\"'", "'\\''", "\\u", '\\"', "\\'", "\\n  ")
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


def without_layer(text: str) -> str:
    """The text, with one more layer of quoting taken away."""
    inner = text
    for pattern, plain in _LAYERS:
        inner = re.compile(pattern).sub(plain, inner)
    inner = re.compile(r"(?<!\\)\\+u([0-9a-f]{4})").sub(lambda match: chr(int(match[1], 16)), inner)
    bytes_of = re.compile(r"(?<!\\)(?:\\+x[0-9a-f]{2})+")
    return bytes_of.sub(_decoded, inner)


def _decoded(match: re.Match[str]) -> str:
    return bytes.fromhex(re.sub(r"(?<!\\)\\+x", "", match[0])).decode("utf-8", "replace")
