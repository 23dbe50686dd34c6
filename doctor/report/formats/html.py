"""The report as one HTML file for a browser, a mail or a CI artifact; nothing is loaded, and a policy allows no more.

What hosts print reaches the page through the templates' escaping, or as JSON in a block of data that no browser runs.
The Content Security Policy names style and script by their hashes, so that markup that came in by a fault runs nothing
and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from doctor.engine.language import is_english, localized
from doctor.engine.result import Report
from doctor.report.formats.registry import RenderContext
from doctor.report.web.report_values import report_values

FOLDER = Path(__file__).parents[1] / "web"
_PHRASES = re.compile(r'\bsay\("([^"]+)"')
MAX_WHOLE_CHARS = 30
"""Of a name that no line break divides: two thirds of the narrowest screen."""
_CODE = re.compile(r"`([^`]+)`")


def render(report: Report, context: RenderContext) -> str:
    """The page."""
    values = report_values(report, context.checks_by_name, context.code, context.fixable_checks)
    return self_contained_page("report.html.jinja", **values)


def self_contained_page(template: str, data: dict[str, object], **values: Any) -> str:
    """The page that a template of this package makes of ``values``; ``data`` is what its script reads, as JSON."""
    style, script = _read("page.css"), "".join(map(_read, ("page.js", "check_grid.js", "path_map.js")))
    policy = (
        f"default-src 'none'; style-src {_source_hash(style)}; script-src {_source_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    page = _environment().get_template(template)
    translations = {text: localized(text) for text in script_texts(script)} if not is_english() else {}
    return page.render(
        style=style,
        script=script,
        policy=policy,
        data=data | ({"words": translations} if translations else {}),
        language="en" if is_english() else "zh-CN",
        **values,
    )


def script_texts(source: str) -> list[str]:
    """The texts that a script, or a template, gives to ``say``.

    >>> script_texts('say("{count} more", {count: 3})')
    ['{count} more']
    """
    return list(dict.fromkeys(_PHRASES.findall(source)))


@cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text("utf-8")


def _source_hash(text: str) -> str:
    """As a policy names a text that stands in the page.

    >>> _source_hash("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _environment() -> Environment:
    environment = Environment(
        finalize=_printable,
        keep_trailing_newline=True,
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "sort_keys": False}
    environment.globals["say"] = _phrase
    environment.filters["code"] = mark_code
    environment.filters["whole"] = keep_names_whole
    return environment


def _phrase(text: str, **values: Any) -> str:
    """A text of ours in the language of the page, with its values; the templates escape it."""
    return localized(text).format(**values) if values else localized(text)


def _printable(value: Any) -> Any:
    """A text without what is not printed: control characters, escapes, marks that turn the direction of writing."""
    if not isinstance(value, str) or value.isprintable() or hasattr(value, "__html__"):
        return value
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in value)


def mark_code(text: str) -> Markup:
    """``text`` escaped; what stands between backquotes as code.

    >>> str(mark_code("run `a <b>` on <host>"))
    'run <code>a &lt;b&gt;</code> on &lt;host&gt;'
    """
    parts = _CODE.split(_printable(text))  # every second one stood between backquotes
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


def keep_names_whole(text: str) -> Markup:
    """``text`` escaped; a line breaks behind blanks and commas, and not behind the hyphen of a short name.

    >>> str(keep_names_whole("sb[0020-0022,0030] & 2 more"))
    '<bdi>sb[0020-0022</bdi>,<wbr>0030] &amp; 2 more'
    """

    def kept(part: str) -> Markup:
        if part == ",":
            return Markup(",<wbr>")
        is_whole = "-" in part and len(part) <= MAX_WHOLE_CHARS
        return Markup("<bdi>") + part + Markup("</bdi>") if is_whole else escape(part)

    return Markup("").join(map(kept, re.split(r"(,|\s+)", _printable(text))))
