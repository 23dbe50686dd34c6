"""A word of a command line, resolved or not. Pure."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from doctor.engine.sanitize import printable

FOLDERS, ENDS = ("cd", "pushd", "popd"), ("exit", "exec", "false")
"""Commands that change the folder of the shell, and that end it: ``false`` by ``set -e``."""
_LONGEST_PATH = 4096
_LOGIN = re.compile(r"ssh(?: -[BbcDEeFIiJLlmOopQRSWw] \S+| -\S+)* [^-\s]\S*")
"""``ssh HOST``: its shell reads the input."""
_OF_OWN_FOLDER = re.compile(r"\$\{?0|BASH_SOURCE|\bpwd\b|\bPWD\b")


class Word(NamedTuple):
    """One word as the program receives it."""

    text: str
    """Where ``unresolved`` is set, the source text."""
    unresolved: str = ""
    """The part that only a shell can compute, such as ``$(hostname)``; empty: the text is exact."""
    may_be_several: bool = False
    """An unresolved part outside of quotes: none, one or several words."""
    pieces: tuple[Word, ...] = ()
    """Of a value with an unresolved part: the texts and such parts that it consists of, to be split into words."""


def known_text(word: Word) -> str:
    """What is known of a word that is a shell's text."""
    pieces = word.pieces or (word,)
    return "".join("" if piece.unresolved else piece.text for piece in pieces)


def for_another_shell(word: Word) -> Word:
    r"""The word as it is before a shell on another host reads it: what is left of ``\$RANK`` is unresolved."""
    return word._replace(unresolved=word.text) if "$" in word.text and not word.unresolved else word


class UnreadText(msgspec.Struct, frozen=True):
    """A part of a script or a line that was not followed."""

    text: str
    """At most 120 characters."""
    reason: str
    line: int = 0
    """From 1; 0: not of a file."""


class Loop(NamedTuple):
    """What a loop gives its variable, a value in each round."""

    rounds: int
    least: int
    """Negative where a value is no number."""
    largest: int


class ShellCommand(msgspec.Struct, frozen=True):
    """One simple command."""

    argv: tuple[Word, ...]
    line: int
    environ: Mapping[str, str]
    """What the text exports before it, and the assignments before its first word."""
    unresolved: Mapping[str, str]
    """The same for what is not resolved: the source text by name."""
    open_values: Mapping[str, Word]
    """Of these, the values whose parts are known."""
    unset: frozenset[str]
    """Variables that the text removes."""
    conditional: bool
    """In a branch, a loop or a function: it may run never, or more than once."""
    is_repeated: bool = False
    """Nothing but loops makes it conditional: it runs in each of their rounds."""
    loops: Mapping[str, Loop] = {}
    """Those around it whose values are known, by their variables."""
    operator: str = ""
    """Behind it, where nothing but loops is around it; else empty."""
    written: Mapping[str, str] = {}
    """Here-documents that ``cat`` and ``tee`` write into files before it, by path."""


class Step(NamedTuple):
    """What a statement does to the shell."""

    place: int
    """How many commands stand before it."""
    argv: tuple[Word, ...]
    """``cd``, ``ulimit``, ``exit``, with its arguments."""
    line: int
    is_certain: bool
    """It surely runs in this shell."""


class ShellText(msgspec.Struct, frozen=True):
    """A text's commands, and what was not followed."""

    commands: tuple[ShellCommand, ...]
    unread: tuple[UnreadText, ...] = ()
    sourced: tuple[str, ...] = ()
    """Paths of the files that were followed."""
    mistakes: tuple[tuple[str, str, str], ...] = ()
    """What the shell refuses, or takes for empty: command or variable, text, what was meant."""
    steps: tuple[Step, ...] = ()
    refused: bool = False
    """No shell accepts the text: ``unread`` says where and why."""
    assigned: frozenset[str] = frozenset()
    """Variables that the text sets anywhere."""

    @property
    def moves(self) -> list[Step]:
        """Each change of the folder."""
        return [step for step in self.steps if step.argv[0].text in FOLDERS]

    def folder_at(self, place: int, path: str = "") -> tuple[str, str]:
        """The folder in which a command runs, empty: as before the text; and the ``cd`` that only a shell knows.

        ``place``: of the command among `commands`; ``path``: of the file with the text, for a ``cd`` to its folder.
        """
        return self.folders(path)[bisect_right(self.steps, place, key=lambda step: step.place)]

    def folders(self, path: str = "") -> list[tuple[str, str]]:
        """The same before each of `steps`, and behind the last."""
        listed = [("", "")]
        for step in self.steps:
            folder, unknown = listed[-1]
            is_move = step.argv[0].text in FOLDERS and not unknown
            listed.append(_moved(folder, step, path) if is_move else (folder, unknown))
        return listed


def _moved(folder: str, step: Step, path: str) -> tuple[str, str]:
    """The folder behind a change of it, and the ``cd`` that only a shell knows."""
    name, *arguments = step.argv
    target = arguments[0].text if len(arguments) == 1 and arguments[0].text[:1] not in "-~" else ""
    beside = beside_script(f"{target}/.") if path else ""
    is_beside = beside not in ("", f"{target}/.") and re.search(r"\$\{?0|BASH_SOURCE", target)
    is_known = name.text == "cd" and target and step.is_certain and (is_beside or not arguments[0].unresolved)
    folder = os.path.join(folder, os.path.join(os.path.dirname(path), beside) if is_beside else target)
    if is_known and len(folder) <= _LONGEST_PATH:
        return folder, ""
    return "", " ".join(word.unresolved or word.text for word in step.argv)


def unread(text: str, reason: str, line: int = 0) -> UnreadText:
    """With the text cut and made printable."""
    return UnreadText(printable(text, 120), reason, line)


def literal_words(argv: Sequence[str | Word]) -> tuple[Word, ...]:
    """Each as a `Word`.

    >>> literal_words(["torchrun", Word("$X", "$X")])[0]
    Word(text='torchrun', unresolved='', may_be_several=False, pieces=())
    """
    return tuple(word if isinstance(word, Word) else Word(word) for word in argv)


def beside_script(path: str) -> str:
    """``./NAME`` of a name behind the folder of the script, or that in which it runs."""
    match = re.search(r"[)}D]/([\w.-][\w./-]{0,200})\Z", path[-300:])
    folder = path[path.find("$") :] if "$" in path else ""
    return f"./{match[1]}" if match and len(folder) < 600 and _OF_OWN_FOLDER.search(folder) else path


def is_open(word: Word) -> bool:
    """A word that may stand for several, as a pattern of file names, or for one at another place, as ``[3]=x``."""
    return bool(word.unresolved) or any(letter in word.text for letter in "*?[{")


def with_input(argv: list[Word], text: Sequence[Word]) -> list[Word]:
    """The words of a command with the text of its shell, where it ends in one that reads its input: ``srun bash``.

    >>> [word.text for word in with_input([Word("srun"), Word("bash"), Word("-s")], [Word("exit 1")])]
    ['srun', 'bash', '-c', 'exit 1']
    """
    names = [word.text.rpartition("/")[2] for word in argv[:16]]
    at = next((at for at, name in enumerate(names[1:], 1) if name == "-s" and names[at - 1] in ("bash", "sh")), 0)
    if at and len(text) == 1 and len(argv) > at + 1:  # behind it stand the arguments of the text
        return [*argv[:at], Word("-c"), *text, Word("bash"), *argv[at + 1 + (names[at + 1 : at + 2] == ["--"]) :]]
    end = len(argv) - bool(argv and argv[-1].text in ("-s", "-"))
    is_shell = end > 0 and argv[end - 1].text.rpartition("/")[2] in ("bash", "sh")
    if len(text) == 1 and len(argv) < 16 and _LOGIN.fullmatch(" ".join(word.text.replace(" ", "_") for word in argv)):
        return [*argv, *text]
    return [*argv[:end], Word("-c"), *text] if is_shell and len(text) == 1 else argv
