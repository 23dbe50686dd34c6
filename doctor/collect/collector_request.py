"""The controller's side of the collector: its start, its request, its response."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import linecache
import marshal
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec

from doctor.engine.decoding import prepare_decoding
from doctor.engine.fact import OWN_ROUND, Fact, Output, Probe, Visit
from doctor.engine.grouping import lists_by_key
from doctor.engine.record import HostRecord, SharedOutputs
from doctor.engine.sanitize import last_line
from doctor.engine.texts import filled
from doctor.remote.bootstrap import dense, python_problem, stdin_script
from doctor.remote.request import Request, frame_end, framed_record, new_marker
from doctor.transport import CommandResult, TransportError
from doctor.transport.program import HostProgram, take_texts

COLLECTOR = HostProgram("doctor.collect.collector.collector", packed=True)

SENT_TYPES = (str, int, float, tuple, dict)
"""Of constants that a function may name."""
MARSHAL_VERSION = 2


class CollectOptions(msgspec.Struct, frozen=True):
    """What one visit asks: the same of every host, but for ``own``."""

    facts: tuple[type[Fact], ...]
    arguments: Mapping[str, Any]
    sudo: bool = False
    """Probes that need root go through ``sudo -n``."""
    within: tuple[str, ...] = ()
    """Command prefix that enters the job's container: ``docker exec -i NAME``."""
    more: bool = False
    """Another round may follow: where the transport allows it, the collector waits for what that asks."""
    own: Mapping[str, Any] = {}
    """Arguments of one host, beside those of all."""


class RequestTemplate:
    """A `CollectOptions` made ready once, to be sent to all hosts that are asked the same."""

    def __init__(self, ask: CollectOptions) -> None:
        self._python = str(ask.arguments.get("python", ""))
        fixed = {
            "given": dict(ask.arguments),
            # For the collectors that it starts itself; REQUEST is the length of what they are asked.
            "more": ask.more,
            "boot": stdin_script(COLLECTOR.sent_source, "REQUEST", packed=True, candidate=self._python),
            "parts": [_part(prefix, probes, {**ask.arguments, **ask.own}) for prefix, probes in _probes_by_prefix(ask)],
        }
        # Of all that a host's Python can read, the quickest. Version 2 is that of every Python 3; only we write it.
        self._more = ask.more
        self._common = zlib.compress(marshal.dumps(fixed, MARSHAL_VERSION))

    def request(self, seconds: float, own: Mapping[str, Any] = {}) -> Request:
        """What to send so that the collector answers within ``seconds``; ``own``: this host's arguments."""
        marker = new_marker()
        fields = {"marker": marker, "seconds": seconds, "own": dict(own), "common": len(self._common)}
        first = marshal.dumps(fields, MARSHAL_VERSION)
        end = frame_end(marker) if self._more else b""
        return COLLECTOR.request(marker, first, common=self._common, end=end, candidate=self._python)


def templates_of(options: Mapping[str, CollectOptions]) -> dict[str, RequestTemplate]:
    """By host; one for all hosts that are asked the same."""
    keys = ((id(ask.arguments), ask.facts, frozenset(filter(ask.own.get, ask.own))) for ask in options.values())
    groups = lists_by_key(zip(keys, options, strict=True)).values()
    return {host: made for hosts in groups for made in [RequestTemplate(options[hosts[0]])] for host in hosts}


def _part(prefix: list[str], probes: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """With digests, by which the helper for sudo may answer: not where a probe is given more than that one takes."""
    by_helper = prefix == ["sudo", "-n"] and not any(arguments.get(name) for name in probes)
    digests = {name: probe_digest(fields) for name, fields in probes.items()} if by_helper else {}
    return {"prefix": prefix, "probes": probes, **({"digests": digests} if digests else {})}


def _probes_by_prefix(options: CollectOptions) -> list[tuple[list[str], dict[str, object]]]:
    """The probes by command prefix, those without a prefix first."""
    parts: dict[tuple[str, ...], dict[str, object]] = {(): {}}
    for fact in sorted({fact.shares or fact for fact in options.facts}, key=lambda fact: fact.__name__):
        probe = fact.probe
        if probe.kind in ("visit", *OWN_ROUND):
            continue
        prefix = (
            options.within if probe.job and options.within else ("sudo", "-n") if probe.root and options.sudo else ()
        )
        parts.setdefault(prefix, {})[fact.__name__] = probe_fields(probe, options.arguments)
    # Probes that are much alike stand beside each other: zlib looks 32 KB back.
    like = lambda item: (item[1]["kind"], str(item[1].get("text")), item[0])  # noqa: E731
    return [(list(prefix), dict(sorted(probes.items(), key=like))) for prefix, probes in parts.items()]


def probe_digest(fields: Mapping[str, Any]) -> str:
    """By which the helper for sudo on a host knows that its probe is the one that is meant."""
    return hashlib.sha256(repr(sorted(fields.items())).encode()).hexdigest()[:16]


def probe_fields(probe: Probe, arguments: Mapping[str, Any] | None = None) -> dict[str, object]:
    """A probe as JSON, without what is left at its default; for these ``arguments``, or for any."""
    left_out = ("function", "inventory", "only_with")
    fields = {name: getattr(probe, name) for name in probe.__struct_fields__ if name not in left_out}
    kept = {name: value for name, value in fields.items() if value not in ("", (), False)}
    if probe.function is None:
        return kept
    is_unused = probe.only_with and arguments is not None and not any(map(arguments.get, probe.only_with))
    name = probe.function.__name__
    text = f"{name}=lambda*_:{{}}" if is_unused else function_source(probe.function)
    return {**kept, "text": text, "name": name}


@cache
def function_source(function: Callable[..., Any]) -> str:
    """A function's source, as it is sent: behind the imports, constants and functions of its package that it names.

    Without annotations and docstrings, whose names mean nothing on a host. A constant is named in capitals and is a
    plain value (`SENT_TYPES`); what a function imports of `doctor`, the collector has
    (`doctor.collect.collector.questions.HELPERS`).
    """
    lines: dict[str, str] = {}
    functions: dict[str, Callable[..., Any]] = {}
    _collect_named(function, lines, functions)
    return "".join([*(line for _, line in sorted(lines.items())), *map(_stripped_source, functions.values())])


def _collect_named(
    function: Callable[..., Any], lines: dict[str, str], functions: dict[str, Callable[..., Any]]
) -> None:
    """Fills in what a function names of its module, as lines by name and as functions, and itself."""
    functions[function.__name__] = function
    module, codes, names = function.__globals__, [function.__code__], set[str]()
    for code in codes:
        names.update(set(code.co_names) - {*code.co_varnames, *code.co_cellvars})
        codes += [part for part in code.co_consts if isinstance(part, CodeType)]
    for name in sorted(names - {*lines, *functions}):
        value = module.get(name)
        if isinstance(value, ModuleType):
            lines[name] = " ".join(("import", value.__name__, "as", name)) + "\n"
        elif name.isupper() and isinstance(value, SENT_TYPES):
            lines[name] = f"{name} = {value!r}\n"
        elif isinstance(value, FunctionType) and _package(value) == _package(function):
            _collect_named(value, lines, functions)


def _package(function: Callable[..., Any]) -> str:
    return function.__module__.rpartition(".")[0]


def _stripped_source(function: Callable[..., Any]) -> str:
    """They are cut out of the text: `ast.unparse` takes ten times as long."""
    text, tree = _parsed(function)
    lines = text.encode().splitlines(keepends=True)
    for first, start, last, end in sorted(_unsent(tree, lines), reverse=True):
        lines[first : last + 1] = [lines[first][:start] + lines[last][end:]]
    return dense(b"".join(lines).decode())


def _unsent(tree: ast.Module, lines: Sequence[bytes]) -> Iterator[tuple[int, int, int, int]]:
    """What is cut out of a function's lines: first line and byte, last line and the byte behind it, from 0."""
    for statement in _statements(tree):
        if not isinstance(statement, ast.FunctionDef):
            continue
        for argument in ast.walk(statement.args):
            if isinstance(argument, ast.arg) and argument.annotation is not None:
                yield argument.lineno - 1, argument.col_offset + len(argument.arg.encode()), *_end(argument.annotation)
        if statement.returns is not None:
            line = statement.returns.lineno - 1
            arrow = lines[line].rindex(b"->", 0, statement.returns.col_offset)
            yield line, len(lines[line][:arrow].rstrip()), *_end(statement.returns)
        if ast.get_docstring(statement, clean=False) is not None and len(statement.body) > 1:
            yield statement.body[0].lineno - 1, statement.body[0].col_offset, *_end(statement.body[0])
        for inner in statement.body:
            if isinstance(inner, ast.ImportFrom) and str(inner.module).startswith("doctor."):
                yield inner.lineno - 1, inner.col_offset, *_end(inner)


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    """The last line, from 0, and the byte behind the node."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno - 1, node.end_col_offset


def _parsed(function: Callable[..., Any]) -> tuple[str, ast.Module]:
    """A function's text and syntax. For one at a module's top: lines up to one that is not indented, and can end it.

    `inspect.getsource` finds the same end, and takes every token of the lines apart for it.
    """
    lines = linecache.getlines(inspect.getsourcefile(function) or "")
    start = function.__code__.co_firstlineno - 1
    if lines[start : start + 1] and lines[start].startswith("def "):
        for end in range(start + 1, len(lines) + 1):
            if end == len(lines) or not lines[end][:1].isspace():
                with contextlib.suppress(SyntaxError):  # within a text or brackets: the next such line
                    text = "".join(lines[start:end])
                    return text, ast.parse(text)
    text = textwrap.dedent(inspect.getsource(function))
    return text, ast.parse(text)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements within a node, outer ones first; not their expressions, which are most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers"):
        for inner in getattr(node, field, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from _statements(inner)


def parse_response(
    result: CommandResult, marker: str, local: bool = False, address: str = "", shared: SharedOutputs | None = None
) -> HostRecord:
    """The record in a host's output; other output of the login shell is ignored. ``address``: by which we reached it.

    Raises: TransportError when there is none, with the host's error output.
    """
    shared = shared or SharedOutputs()
    body, begun = framed_record(result.out.decode("utf-8", "replace"), marker)
    if body is None:
        raise no_answer_error(result, begun)
    try:
        record = msgspec.json.decode(body, type=_CollectResponse)
        outputs = {name: _outputs(raw, shared) for name, raw in record.outputs.items()}
        take_texts(b'{"texts":%b}' % bytes(record.texts))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise TransportError(
            "error", filled("the collector's answer cannot be read: {0}", error), partial_result=result
        ) from None
    visit = Visit(
        sent=result.sent,
        received=result.received,
        began=record.began,
        ended=record.ended,
        python=record.python,
        uid=record.uid,
        name=record.name,
        local=local,
        address=address,
    )
    return HostRecord(visit, outputs)


def _outputs(raw: msgspec.Raw, shared: SharedOutputs) -> dict[str, Output]:
    """The outputs of one probe; what cannot be read is an error of this probe alone."""
    try:
        return shared.decode_timed(raw)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        return {"": Output("error", err=filled("the answer cannot be read: {0}", error))}


class _CollectResponse(msgspec.Struct, frozen=True):
    outputs: dict[str, msgspec.Raw]
    python: str
    uid: int
    name: str
    began: float
    ended: float
    texts: msgspec.Raw = msgspec.Raw(b"{}")


OTHER_SHELL = (
    "as root on that host, `getent passwd <user>` shows the login shell, and `usermod -s /bin/bash <user>` sets another"
)
"""Where it is nologin(8), which says that the account is not available, or false(1), which says nothing."""


def no_answer_error(result: CommandResult, begun: bool) -> TransportError:
    """Why the collector sent no answer, with the host's error output."""
    errors = result.err.decode("utf-8", "replace")
    problem = python_problem(errors)
    if problem:
        return TransportError("no-python", problem, partial_result=result)
    if begun:
        return TransportError("lost", "the answer is incomplete", partial_result=result)
    text = last_line(errors) or last_line(result.out.decode("utf-8", "replace"))
    ended = filled("signal {0}", -result.code) if result.code < 0 else filled("exit status {0}", result.code)
    ending = filled(": {0}", text) if text else " without output"
    refuses = result.code == 1 and (not text or "not available" in text)
    return TransportError(
        "shell",
        filled("the login shell did not start the collector ({0}){1}", ended, ending),
        OTHER_SHELL if refuses else "",
        result,
    )


def unique_facts(facts: Iterable[type[Fact]]) -> tuple[type[Fact], ...]:
    """The facts in a settled order. Raises: ValueError when two have one name."""
    by_name: dict[str, type[Fact]] = {}
    for fact in facts:
        if by_name.setdefault(fact.__name__, fact) is not fact:
            raise ValueError(filled("two facts are named {0}", fact.__name__))
    return tuple(by_name[name] for name in sorted(by_name))


prepare_decoding(_CollectResponse, dict[str, Output])
