"""`doctor explain TEXT`: an error code, or lines of a log, and the pages that they lead to. Built-in pages alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from doctor.diagnose.lookup import SignatureMatch, find, score_text, signature_blocks, word_weights
from doctor.diagnose.signature import Signature
from doctor.engine.catalog import bundled_folder
from doctor.engine.language import localized, phrase
from doctor.engine.output_encoding import padded
from doctor.remedy.playbook import built_in_playbook
from doctor.report.layout.terminal import page_width

MAX_PAGES = 2
"""Pages that are displayed where several match; the others are listed."""
MAX_ROWS = 8
_XID = re.compile(r"(?:\bS?Xid\b[^0-9]{0,4}|NVRM: Xid \([^)]{1,40}\): )([0-9]{1,4})\b", re.IGNORECASE)


class _Row(NamedTuple):
    score: float
    name: str
    kind: str
    title: str


def explain_text(text: str) -> str:
    """The pages that ``text`` leads to, or a list of the nearest ones; empty where no page has enough of its words."""
    matches = find(text)
    exact = [match.signature for match in matches if match.is_exact]
    rows = _rows(text, matches)
    if not exact:
        return _xid_page(text) or (
            localized("Pages on these words; `doctor explain NAME` shows one:\n") + rows if rows else ""
        )
    displayed = list({signature.title: signature for signature in reversed(exact)}.values())[::-1][:MAX_PAGES]
    pages = [_xid_page(text), *map(_page, displayed)]
    others = [signature for signature in exact if signature not in displayed]
    if others:
        pages.append(
            localized("See also\n")
            + "".join(
                f"  {signature.id}{localized(': ')}{localized(signature.title)}\n" for signature in others[:MAX_ROWS]
            )
        )
    return "\n\n".join(page for page in pages if page)


def _page(signature: Signature) -> str:
    """A signature's page with the playbooks that treat its checks; only files that mention one are parsed."""
    from doctor.diagnose.render.page import signature_page

    playbooks = dict.fromkeys(signature.playbooks)
    for path, text in _texts("playbooks", "toml"):
        if any(name in text for name in signature.checks):
            playbook = built_in_playbook(path)
            if set(playbook.treats) & set(signature.checks):
                playbooks.setdefault(playbook.name)
    return signature_page(signature, playbooks, page_width())


def _xid_page(text: str) -> str:
    """What NVIDIA says of an Xid; empty where the text has none, or one that is not in its catalog."""
    match = _XID.search(text)
    if not match:
        return ""
    from doctor.facts.xid import CATALOG

    code = int(match[1])
    if code not in CATALOG:
        return phrase(
            "Xid {code} is no fault of the host in NVIDIA's catalog: it is attributed to the program that ran.\n",
            code=code,
        )
    meaning, action = map(localized, CATALOG[code])
    return phrase(
        "Xid {code}: {meaning}. What to do: {action}. More: doctor explain gpu-xid-logged\n",
        code=code,
        meaning=meaning,
        action=action,
    )


def _rows(text: str, matches: list[SignatureMatch]) -> str:
    """Checks, playbooks, topics and signatures that have most of the words, the best first."""
    documents = [*_documents(), *(_document(match.signature) for match in matches)]
    weights = word_weights(text, [page for _, _, _, page in documents] + list(signature_blocks()))
    total = sum(weights.values())
    rows = []
    for name, kind, title, page in documents:
        score = score_text(page, text, weights) + score_text(f"{name} {title}", text, weights) / 2
        if total and score >= 0.6 * total:
            rows.append(_Row(score, name, kind, title))
    rows.sort(key=lambda row: (-row.score, row.name))
    width = max((len(row.name) for row in rows[:MAX_ROWS]), default=0)
    return "".join(
        f"  {row.name:<{width}}  {padded(localized(row.kind), 8)}  {localized(row.title)}\n" for row in rows[:MAX_ROWS]
    )


def _documents() -> Iterator[tuple[str, str, str, str]]:
    """Name, kind, title and text of every check, playbook and topic."""
    from doctor.report.explain.topics import localized_page, title, topics

    for path, text in _texts("checks", "py"):
        claim = re.search(r'"""(.+?)\.?(?:"""|\n)', text[max(0, text.find("\n@check")) :])
        yield path.stem.replace("_", "-"), "check", claim[1] if claim else "", text
    for path, text in _texts("playbooks", "toml"):
        heading = re.search(r'^title = "(.*)"$', text, re.M)
        yield path.stem.replace("_", "-"), "playbook", heading[1] if heading else "", text
    for name, path in topics().items():
        if name == "catalogue":  # it has the words of all checks
            continue
        yield name, "topic", title(localized_page(path)), path.read_text("utf-8")


def _document(signature: Signature) -> tuple[str, str, str, str]:
    parts = (signature.note, *signature.patterns, *signature.causes, *(sample.text for sample in signature.samples))
    return signature.id, "log", signature.title, " ".join((signature.id, signature.title, *parts))


def _texts(folder: str, suffix: str) -> Iterator[tuple[Path, str]]:
    for path in sorted(bundled_folder(folder).glob(f"[a-z]*.{suffix}")):
        yield path, path.read_text("utf-8")
