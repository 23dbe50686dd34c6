"""One playbook's file, read: what breaks a rule is refused with the file, the line, and what was expected.

No check is run or even imported for it: what a check supplies is read off its source.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

from doctor.config.file import nearest
from doctor.engine.areas import AREAS
from doctor.hosts.nodeset import quote, shown
from doctor.remedy.finding_values import Supplies, supplies
from doctor.remedy.playbook import ALWAYS, COMMANDS, RISKS, WHO, Playbook, Step
from doctor.remedy.template import is_whole
from doctor.remedy.validate import bare, broken, needs_supply

MOST = 1 << 20
"""Bytes. More than this is no playbook."""

_TOP = {"title": str, "note": str, "who": str, "risk": str, "root": bool, "persistent": bool, "explicit": bool}
_STEP = {name: bool if name == "changes" else str for name in Step.__struct_fields__ if name != "number"}
_WORDS = {str: "text in quotes", bool: "true or false"}
_CHOICES = {"who": WHO, "risk": RISKS}


class BadPlaybook(Exception):
    """One line: the file, the line in it, what is wrong, and what was expected."""


def read(path: Path, known: Mapping[str, Path]) -> Playbook:
    """The playbook in one file; ``known`` are the checks' files by name. Raises: BadPlaybook."""
    reader = _Reader(path, known)
    try:
        return reader.playbook()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise BadPlaybook(f"{file_name(path)}: {shown(why)}; expected a playbook that can be read") from None


def file_name(path: Path) -> str:
    return shown(str(path), 200)


class _Reader:
    """One file on its way to a `Playbook`."""

    def __init__(self, path: Path, known: Mapping[str, Path]) -> None:
        self.path, self.known = path, known
        self.lines: list[str] = []

    def playbook(self) -> Playbook:
        name = self.stem()
        found = self.toml()
        self.keys(found, (*_TOP, "treats", "step"), 0)
        top = {key: self.typed(found, key, kind, 0) for key, kind in _TOP.items() if key in found}
        for key in ("title", "treats", "who", "risk", "step"):
            if key not in found:
                self.refuse(key, 0, "is missing")
        for key, words in _CHOICES.items():
            if top[key] not in words:
                self.refuse(key, 0, f"{quote(top[key])}; expected one of {', '.join(words)}")
        if not top["title"].strip() or "\n" in top["title"]:
            self.refuse("title", 0, "expected one line")
        made = Playbook(name, str(self.path), treats=self.treats(found["treats"]), steps=self.steps(found), **top)
        self.whole(made, found)
        return made

    def stem(self) -> str:
        name = self.path.stem.replace("_", "-")
        if not re.fullmatch(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*", name):
            raise BadPlaybook(f"{file_name(self.path)}: expected a name of small letters, digits and dashes, .toml")
        if name in self.known or name in AREAS:
            kind = "a check" if name in self.known else "an area"
            raise BadPlaybook(f"{file_name(self.path)}: {name} is the name of {kind}; expected one of its own")
        return name

    def toml(self) -> dict[str, Any]:
        text = self.bytes().decode("utf-8")
        self.lines = text.splitlines()
        from doctor.config.toml_compat import loads

        try:
            return loads(text)
        except (ValueError, RecursionError) as error:
            said = " ".join(str(error).split())
            line = re.search(r"at line (\d+)", said)
            raise BadPlaybook(
                f"{file_name(self.path)}:{line[1] if line else 1}: not TOML: {shown(said, 200)}"
            ) from None

    def bytes(self) -> bytes:
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise BadPlaybook(f"{file_name(self.path)}: is no plain file; expected a playbook")
            data = file.read(MOST + 1)
        if len(data) > MOST:
            raise BadPlaybook(f"{file_name(self.path)}: is longer than {MOST} bytes; expected a playbook")
        return data

    def keys(self, found: Mapping[str, Any], known: Collection[str], step: int) -> None:
        for key in found:
            if key not in known:
                self.refuse(key, step, f"no such key{nearest(key, known)}")

    def typed(self, found: Mapping[str, Any], key: str, kind: type, step: int) -> Any:
        if type(found[key]) is not kind:
            self.refuse(key, step, f"expected {_WORDS[kind]}")
        return found[key]

    def treats(self, found: Any) -> tuple[str, ...]:
        if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
            self.refuse("treats", 0, "expected a list of checks")
        for one in found:
            if one not in self.known:
                hint = nearest(one, self.known) or "; `doctor list` names them all"
                self.refuse("treats", 0, f"no check is named {quote(one)}{hint}", one)
            if found.count(one) > 1:
                self.refuse("treats", 0, f"{one} stands there twice", one)
        return tuple(found)

    def steps(self, found: Mapping[str, Any]) -> tuple[Step, ...]:
        rows = found["step"]
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            self.refuse("step", 0, "expected tables, each headed [[step]]")
        return tuple(self.step(row, number) for number, row in enumerate(rows, 1))

    def step(self, row: Mapping[str, Any], number: int) -> Step:
        self.keys(row, _STEP, number)
        given = {key: self.typed(row, key, _STEP[key], number) for key in row}
        if "say" not in given:
            self.refuse("say", number, "is missing; expected one line that says what is done")
        for key, value in given.items():
            if value == "" and key != "text":
                self.refuse(key, number, "is empty; leave it out")
        made = Step(number, **given)
        for key, why in broken(made):
            self.refuse(key, number, why)
        return made

    def whole(self, made: Playbook, found: Mapping[str, Any]) -> None:
        """What only all of the playbook tells: its steps against its head, and against what its checks supply."""
        if not bare(made):
            for key in ("root", "persistent"):
                if key not in found:
                    self.refuse(key, 0, "is missing; expected true or false where a step changes something")
        offers: dict[str, Supplies] = {}
        for step in made.steps:
            for key, name in needs_supply(step):
                offers = offers or {check: self.supplies(check) for check in made.treats}
                self.supplied(step, key, name, offers)

    def supplies(self, check: str) -> Supplies:
        try:
            return supplies(self.known[check])
        except (OSError, SyntaxError, ValueError, RecursionError) as error:
            self.refuse("treats", 0, f"what {check} supplies cannot be read: {shown(str(error), 200)}", check)

    def supplied(self, step: Step, key: str, name: str, offers: Mapping[str, Supplies]) -> None:
        lacking = [check for check, offer in offers.items() if name not in offer.names | ALWAYS]
        if lacking:
            near = nearest(name, offers[lacking[0]].names | ALWAYS)
            self.refuse(key, step.number, f"{{{name}}} is not supplied by {lacking[0]}{near}", "{" + name + "}")
        if key in COMMANDS and is_whole(getattr(step, key)):
            for check, offer in offers.items():
                if name not in offer.commands:
                    self.refuse(key, step.number, f"{{{name}}} is a whole command on no page of {check}")

    def refuse(self, key: str, step: int, why: str, word: str = "") -> NoReturn:
        """Raises: BadPlaybook at the line of the key, or of the ``word`` in its value."""
        place = f"step {step}: " if step else ""
        raise BadPlaybook(f"{file_name(self.path)}:{self.line(key, step, word)}: {place}{shown(key)}: {why}")

    def line(self, key: str, step: int, word: str) -> int:
        """Where a key stands in the text; else its step; else the beginning."""
        heads = [number for number, line in enumerate(self.lines) if re.match(r"\s*\[\[\s*step\s*\]\]", line)]
        bounds = [0, *heads, len(self.lines)]
        low, high = (bounds[step], bounds[step + 1]) if step + 1 < len(bounds) else (0, len(self.lines))
        pattern = re.compile(rf"\s*(?:[\"']?{re.escape(key)}[\"']?\s*[=.]|\[\[?\s*{re.escape(key)}\s*\]\]?)")
        tables = range(0 if step else len(self.lines))  # at the top a table may stand behind the steps
        at = next((number for number in (*range(low, high), *tables) if pattern.match(self.lines[number])), low)
        near = (number for number in range(at, high) if word in self.lines[number])
        return (next(near, at) if word else at) + 1
