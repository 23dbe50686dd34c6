"""JSON, YAML and TOML as flat settings with lines. Bounded: size, depth, aliases. No tag of YAML makes an object."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from doctor.engine import toml_compat
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.training.model import Scalar

MAX_CHARS = 512 << 10
"""Characters of a configuration: those in use have less than 50,000."""
MAX_LEAVES = 20_000
"""Values, with each alias of YAML counted where it is used."""
_MAX_DEPTH = 64
_LONGEST = 200
_LONGEST_NUMBER = 40
_SCALARS = ("str", "int", "float", "bool", "null")


class UnreadableFile(ValueError):
    """A file that is not what it has to be: the line, the reason."""


class Leaf(NamedTuple):
    """One value of a tree."""

    path: str
    """Keys with dots between: ``zero_optimization.stage``; of a list, its positions."""
    value: Scalar | None
    """None for null, and for what is undecided."""
    line: int
    undecided: str = ""


class Tree(NamedTuple):
    """The values of a file, by path; of a repeated key the last."""

    leaves: dict[str, Leaf]
    repeated: tuple[Leaf, ...] = ()
    """Keys that an object of JSON has twice."""
    sections: frozenset[str] = frozenset()
    """Paths of all objects and lists."""


def read_json(text: str) -> Tree:
    """The values of a JSON object. Raises: UnreadableFile."""
    _require_size(text)
    text = text.removeprefix("\ufeff")
    repeated: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, object]:
        members = dict(items)
        if len(members) < len(items):
            times = Counter(name for name, _ in items)
            repeated.extend(name for name, number in times.items() if number > 1)
        return members

    try:
        tree = json.loads(text, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise UnreadableFile(filled("line {0}: {1}", error.lineno, error.msg)) from None
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(filled("no usable JSON: {0}", printable(str(error), 80))) from None
    if not isinstance(tree, dict):
        raise UnreadableFile("expected a JSON object at the top")
    lines = _KeyLines(text)
    twice = tuple(Leaf(printable(name, 80), None, lines.last(name)) for name in repeated[:8])
    return _tree(tree, lines, twice)


def _tree(document: Any, lines: _KeyLines, twice: tuple[Leaf, ...] = ()) -> Tree:
    """Raises: UnreadableFile for more values than a configuration has."""
    leaves: dict[str, Leaf] = {}
    sections: set[str] = set()
    for leaf in _json_leaves(document, "", 0, lines, sections):
        leaves[leaf.path] = leaf
        if len(leaves) > MAX_LEAVES:
            raise UnreadableFile(filled("has more than {0} values", MAX_LEAVES))
    return Tree(leaves, twice, frozenset(sections))


class _KeyLines:
    """The line of a key: of the first one after the key before it, in the order of the text."""

    def __init__(self, text: str) -> None:
        self._places: dict[str, list[int]] = {}
        line, end = 1, 0
        for match in re.finditer(r'"((?:[^"\\\n]|\\.)*)"\s*:', text):
            line += text.count("\n", end, match.start())
            end = match.start()
            self._places.setdefault(match[1], []).append(line)
        self._next: dict[str, int] = {}

    def take(self, key: str) -> int:
        places = self._places.get(key, [])
        position = self._next.get(key, 0)
        self._next[key] = position + 1
        return places[min(position, len(places) - 1)] if places else 0

    def last(self, key: str) -> int:
        return self._places.get(key, [0])[-1]


def _json_leaves(
    node: Any, path: str, depth: int, lines: _KeyLines, sections: set[str], line: int = 0
) -> Iterator[Leaf]:
    if depth > _MAX_DEPTH:
        raise UnreadableFile(filled("is nested more than {0} levels deep", _MAX_DEPTH))
    if isinstance(node, dict):
        sections.add(path)
        for key, value in node.items():
            yield from _json_leaves(value, _join(path, key), depth + 1, lines, sections, lines.take(key))
    elif isinstance(node, list):
        sections.add(path)
        for number, value in enumerate(node):
            yield from _json_leaves(value, _join(path, str(number)), depth + 1, lines, sections, line)
    else:
        yield Leaf(path, _scalar(node), line)


def _join(path: str, key: str) -> str:
    key = printable(str(key), 80)
    return f"{path}.{key}" if path else key


def _scalar(value: Any) -> Scalar | None:
    if isinstance(value, str):
        return printable(value, _LONGEST)
    return value if isinstance(value, (bool, int, float)) else None


class Node(NamedTuple):
    """A mapping, a list or a value of YAML."""

    key: str
    """In what holds it; in a list its position."""
    line: int
    value: str = ""
    """Of a scalar, as written."""
    kind: str = ""
    """``map``, ``list``, or the tag of a scalar without its prefix."""
    scalar: Scalar | None = None
    first_line: int = 0
    """Where a text begins: behind the line of the ``|``."""
    entries: dict[str, Node] = {}

    @property
    def is_text(self) -> bool:
        """Also a mapping or a list is none."""
        return self.kind == "str"

    @property
    def is_template(self) -> bool:
        """Something else puts a value in before it is used."""
        return "$" in self.value or "{{" in self.value

    def walk(self, path: str) -> Iterator[tuple[Node, tuple[Node, ...]]]:
        """The nodes at a path, ``*`` for each entry, with those that they stand in."""
        if not path:
            yield self, (self,)
            return
        names = [path] if path in self.entries else [path.partition(".")[0]]
        rest = "" if path in self.entries else path.partition(".")[2]
        for entry in self.entries.values() if names == ["*"] else filter(None, map(self.entries.get, names)):
            for node, around in entry.walk(rest):
                yield node, (self, *around)

    def find(self, path: str) -> Iterator[Node]:
        return (node for node, _ in self.walk(path))

    def text(self, path: str) -> str:
        """Of the first scalar at a path; empty without one."""
        return next((node.value for node in self.find(path)), "")

    def number(self, path: str = "") -> int | None:
        """The whole number at a path; None where there is none."""
        value = next((node.scalar for node in self.find(path)), None)
        number = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
        return number if isinstance(number, int) and not isinstance(number, bool) else None

    def mentions(self, name: str) -> bool:
        return name in self.value or any(entry.mentions(name) for entry in self.entries.values())


def read_documents(text: str) -> list[Node]:
    """The documents of a YAML text. Raises: UnreadableFile."""
    _require_size(text)
    import yaml

    documents: list[Node] = []
    try:
        loader = yaml.SafeLoader(text)
        try:
            walk = _YamlWalk(loader)
            while loader.check_node():
                documents.append(walk.node(loader.get_node(), "", 0))
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = filled("line {0}: ", mark.line + 1) if mark else ""
        reason = getattr(error, "problem", None) or str(error)
        raise UnreadableFile(filled("{0}{1}", line, printable(str(reason), 160))) from None
    except (ValueError, RecursionError, OverflowError) as error:
        if isinstance(error, UnreadableFile):
            raise
        raise UnreadableFile(filled("no usable YAML: {0}", printable(str(error), 80))) from None
    return documents


def read_yaml(text: str) -> Tree:
    """The values of the first document, with references ``${a.b}`` of OmegaConf replaced. Raises: UnreadableFile."""
    leaves: dict[str, Leaf] = {}
    sections: set[str] = set()
    for document in read_documents(text)[:1]:
        _flatten(document, "", leaves, sections)
    if "" not in sections:
        raise UnreadableFile("expected keys and values at the top")
    return Tree({path: _referenced(leaf, leaves) for path, leaf in leaves.items()}, (), frozenset(sections))


def _flatten(node: Node, path: str, leaves: dict[str, Leaf], sections: set[str]) -> None:
    if node.kind in ("map", "list"):
        sections.add(path)
        for key, entry in node.entries.items():
            _flatten(entry, _join(path, key), leaves, sections)
        return
    text = printable(node.value, _LONGEST)
    if node.kind not in _SCALARS:
        leaves[path] = Leaf(path, None, node.line, f"{printable(node.kind, 60)} {text}")
    else:
        leaves[path] = Leaf(path, text if isinstance(node.scalar, str) else node.scalar, node.line)


def read_toml(text: str) -> Tree:
    """The values of a TOML document. Raises: UnreadableFile."""
    _require_size(text)
    try:
        document = toml_compat.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(filled("no usable TOML: {0}", printable(str(error), 120))) from None
    return _tree(document, _TomlLines(text))


class _TomlLines(_KeyLines):
    """The line of a key: the first one that assigns it, or the header of its table."""

    def __init__(self, text: str) -> None:
        super().__init__("")
        for number, line in enumerate(text.split("\n"), 1):
            header = re.match(r"\s{0,80}\[{1,2}([^\]\n]{1,200})\]", line)
            key = re.match(r"\s{0,80}\"?([A-Za-z0-9_-]{1,80})\"?\s{0,80}=", line)
            for name in header[1].split(".") if header else [key[1]] if key else []:
                self._places.setdefault(name.strip(' "'), []).append(number)


class _YamlWalk:
    """Values of nodes. Every use of an alias counts, so that a tree of aliases ends at the limit."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.count = 0

    def node(self, node: Any, key: str, depth: int) -> Node:
        self.count += 1
        if self.count > MAX_LEAVES:
            raise UnreadableFile(filled("has more than {0} values, aliases included", MAX_LEAVES))
        if depth > _MAX_DEPTH:
            raise UnreadableFile(filled("is nested more than {0} levels deep", _MAX_DEPTH))
        line, kind = node.start_mark.line + 1, type(node).__name__
        if kind == "MappingNode":
            return Node(key, line, kind="map", entries=self._mapping(node, depth))
        if kind == "SequenceNode":
            members = {str(number): self.node(value, str(number), depth + 1) for number, value in enumerate(node.value)}
            return Node(key, line, kind="list", entries=members)
        tag = node.tag.removeprefix("tag:yaml.org,2002:")
        tag = tag if tag != node.tag and tag in _SCALARS else node.tag
        return Node(key, line, node.value, tag, self._scalar(node, tag), line + (node.style in ("|", ">")))

    def _mapping(self, node: Any, depth: int) -> dict[str, Node]:
        """What ``<<`` brings in comes first, so that the mapping's own keys win."""
        entries: dict[str, Node] = {}
        for key, value in sorted(node.value, key=lambda pair: pair[0].value != "<<"):
            if key.value == "<<":
                for part in value.value if type(value).__name__ == "SequenceNode" else [value]:
                    entries |= self.node(part, "", depth + 1).entries
            elif isinstance(key.value, str):
                entries[key.value] = self.node(value, key.value, depth + 1)
        return entries

    def _scalar(self, node: Any, tag: str) -> Scalar | None:
        if tag == "str" or len(node.value) > _LONGEST_NUMBER:
            return str(node.value)
        try:
            return _scalar(self.loader.construct_object(node)) if tag in _SCALARS else None
        except (ValueError, OverflowError, KeyError):
            return str(node.value)


_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_.]{1,200})\}")


def _referenced(leaf: Leaf, leaves: dict[str, Leaf]) -> Leaf:
    """With the value that ``${a.b}`` refers to; any other text with ``${`` is undecided."""
    visited, value = set[str](), leaf.value
    while isinstance(value, str) and "${" in value:
        match = _REFERENCE.fullmatch(value)
        target = leaves.get(match[1]) if match else None
        if target is None or target.path in visited:
            return leaf._replace(value=None, undecided=str(leaf.value))
        visited.add(target.path)
        value = target.value
    return leaf._replace(value=value)


def _require_size(text: str) -> None:
    if len(text) > MAX_CHARS:
        raise UnreadableFile(filled("has {0} characters; expected at most {1}", len(text), MAX_CHARS))
    if "\0" in text:
        raise UnreadableFile("holds a NUL character")
