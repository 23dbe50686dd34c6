"""What of a script's text is bash's own, where its first line names sh: dash is no bash. Pure.

Source: dash(1), and each construct tried with dash 0.5.12.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.job.shell.blocks import PREFIXES, is_arithmetic
from doctor.job.shell.tokens import Token, UnreadableShell, tokenize

_HEAD = re.compile(r"#! ?(/\S{0,100}/(?:da)?sh)[ \t]*(?:-[a-z]+)?\n")
_GOES_ON_IN_BASH = re.compile(r"extglob|\bexec[ \t]+(?:/\S{0,100}/)?bash\b")
_COMMANDS = ("[[", "source", "declare", "typeset", "mapfile", "readarray", "shopt", "pushd", "popd", "let", "function")
_EXPANSION = re.compile(r"\$\{\w+(?:\[|//?|\^|,|:[ 0-9(])|[<>]\(")
"""What only bash expands; of ``${A:0:2}`` the beginning."""
_BRACES = re.compile(r"\{(?:[^{}\s,.]|\.(?!\.))*(?:,|\.\.)[^{}\s]*\}")
_START_A_COMMAND = (*PREFIXES, "if", "elif", "else", "while", "until", "{")


def shell_of(text: str) -> str:
    r"""The ``sh`` that the first line names; empty for another shell, and where the script goes on in bash.

    >>> shell_of("#!/bin/sh\nsource env.sh\n"), shell_of("#!/bin/bash\n"), shell_of("#!/bin/sh\nexec bash job.bash\n")
    ('/bin/sh', '', '')
    """
    match = _HEAD.match(text)
    return "" if match is None or _GOES_ON_IN_BASH.search(text) else match[1]


def unknown_to_sh(text: str) -> list[tuple[int, str]]:
    r"""The constructs that dash does not know, each with its line, in their order; none where bash runs the text.

    >>> unknown_to_sh("#!/bin/sh\nset -eu\nsource env.sh\nA=(1 2)\necho ${A[@]}\n")
    [(3, 'source'), (4, 'A=('), (5, '${A[')]
    """
    if not shell_of(text):
        return []
    try:
        return list(_unknown(tokenize(text)))
    except UnreadableShell:
        return []


def _unknown(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    before, command = Token(0, operator=";"), ""
    for token in tokens:
        starts = bool(before.operator) or before.keyword in _START_A_COMMAND
        command = token.keyword if starts else command
        if token.elements is not None:
            yield token.line, f"{token.keyword}("
        elif token.redirection in ("<<<", "&>", "&>>"):
            yield token.line, token.redirection
        elif (starts and token.keyword in _COMMANDS) or (token.keyword == "pipefail" and before.keyword.endswith("o")):
            yield token.line, token.keyword
        elif (token.keyword == "==" and command in ("[", "test")) or (before.operator, token.operator) == ("|", "&"):
            yield token.line, token.keyword or "|&"
        elif is_arithmetic(token) and (starts or before.keyword == "for"):
            yield token.line, "(("
        else:
            parts = (part for part in token.parts if part.kind not in ("text", "here"))
            matches = (
                _EXPANSION.match(part.source or part.text) or _BRACES.search("" if part.source else part.text)
                for part in parts
            )
            yield from ((token.line, match[0]) for match in matches if match)
        before = token
