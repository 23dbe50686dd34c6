"""The controller's half of `remote.py`: how the collector is started, what it is asked, how its answer is read."""

from __future__ import annotations

import ast
import inspect
import json
import re
import secrets
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from doctor.engine.fact import Fact, Output, Probe, Visit
from doctor.engine.record import HostRecord
from doctor.engine.sanitize import strip_control_chars
from doctor.transport import CommandResult, TransportError

SOURCE = Path(__file__).with_name("remote_collector.py").read_bytes()

# Words and single-quoted text alone, so that sh, csh and fish read the same; no exclamation mark, no backslash.
_PYTHONS = "python3 /usr/bin/python3 /usr/local/bin/python3 /usr/libexec/platform-python"
_PROGRAM = (
    "import sys;sys.version_info<(3,6)and sys.exit(repr(sys.version_info));"
    "b=sys.stdin.buffer;s=b.read(SOURCE);exec(s);main(s,b.read(REQUEST))"
)
_BOOT = (
    f"for p in {_PYTHONS}; do command -v $p >/dev/null 2>&1 && "
    f'exec $p -I -S -c "{_PROGRAM}"; done; echo doctor-no-python >&2; exit 127'
)


class CollectOptions(msgspec.Struct, frozen=True):
    """What one visit asks, the same for every host."""

    facts: tuple[type[Fact], ...]
    arguments: Mapping[str, Any]
    sudo: bool = False
    """Probes that need root go through ``sudo -n``."""
    within: tuple[str, ...] = ()
    """Words put before what must look where the job runs: ``docker exec -i NAME``."""


class CollectRequest(msgspec.Struct, frozen=True):
    """One command and its stdin; ``marker`` frames the answer."""

    command: str
    stdin: bytes
    marker: str


class RequestTemplate:
    """An `CollectOptions` made ready once, to be sent to many hosts."""

    def __init__(self, options: CollectOptions) -> None:
        self._boot = _BOOT.replace("SOURCE", str(len(SOURCE)))
        fixed = {
            "given": dict(options.arguments),
            "modules": shared_modules(options.facts),
            "boot": self._boot,
            "parts": [{"prefix": prefix, "probes": probes} for prefix, probes in _probes_by_prefix(options)],
        }
        self._fixed = json.dumps(fixed)[1:]

    def request(self, seconds: float) -> CollectRequest:
        """What to send so that the collector answers within ``seconds``."""
        marker = "doctor-" + secrets.token_hex(8)
        text = f'{{"marker": "{marker}", "seconds": {seconds}, {self._fixed}'.encode("ascii")
        command = "exec sh -c '" + self._boot.replace("REQUEST", str(len(text))) + "'"
        return CollectRequest(command, SOURCE + text, marker)


def _probes_by_prefix(options: CollectOptions) -> list[tuple[list[str], dict[str, Any]]]:
    """The probes by the words to put before them, the host's own first."""
    parts: dict[tuple[str, ...], dict[str, Any]] = {(): {}}
    for fact in sorted(set(options.facts), key=lambda fact_type: fact_type.__name__):
        probe = fact.probe
        if probe.kind in ("visit", "smoke"):
            continue
        prefix = (
            options.within if probe.job and options.within else ("sudo", "-n") if probe.root and options.sudo else ()
        )
        parts.setdefault(prefix, {})[fact.__name__] = _probe_fields(probe)
    return [(list(prefix), probes) for prefix, probes in parts.items()]


def _probe_fields(probe: Probe) -> dict[str, Any]:
    """A probe as JSON, without what is left at its default."""
    fields = {name: getattr(probe, name) for name in probe.__struct_fields__ if name != "function"}
    kept = {name: value for name, value in fields.items() if value not in ("", (), False)}
    if probe.function is not None:
        kept.update(text=function_source(probe.function), name=probe.function.__name__)
    return kept


@cache
def function_tree(function: Callable[..., Any]) -> ast.Module:
    """A function's syntax, without its annotations: their names mean nothing on a host."""
    parsed = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(parsed):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    return parsed


@cache
def function_source(function: Callable[..., Any]) -> str:
    """A function's source, as it is sent."""
    return ast.unparse(function_tree(function))


def shared_modules(facts: Iterable[type[Fact]]) -> list[str]:
    """What several questions import: the collector loads it once, before it forks for each of them."""
    import_counts: Counter[str] = Counter()
    for function in {fact.probe.function for fact in facts if fact.probe.function}:
        nodes = [node for node in ast.walk(function_tree(function)) if isinstance(node, ast.Import)]
        import_counts.update({alias.name for node in nodes for alias in node.names})
    return sorted(name for name, count in import_counts.items() if count > 1)


def parse_response(result: CommandResult, marker: str, local: bool = False) -> HostRecord:
    """The record in what a host said, whatever its login shell printed before and after.

    Raises: Unreached when there is none, with the host's own words for why.
    """
    text = result.out.decode("utf-8", "replace")
    _, opened, rest = text.partition(f"\n{marker}\n")
    body, closed, _ = rest.partition(f"\n{marker} end\n")
    if not (opened and closed):
        raise no_answer_error(result, bool(opened))
    try:
        record = msgspec.json.decode(body, type=_CollectorResponse)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise TransportError(
            "error", f"the collector's answer cannot be read: {error}", partial_result=result
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
    )
    return HostRecord(visit, record.outputs)


class _CollectorResponse(msgspec.Struct, frozen=True):
    outputs: dict[str, dict[str, Output]]
    python: str
    uid: int
    name: str
    began: float
    ended: float


def no_answer_error(result: CommandResult, begun: bool) -> TransportError:
    """Why a host's Python said nothing that was meant for us, in the host's own words."""
    errors = result.err.decode("utf-8", "replace")
    old = re.search(r"sys\.version_info\(major=(\d+), minor=(\d+)", errors)
    if old:
        return TransportError(
            "no-python", f"python3 is version {old[1]}.{old[2]}; 3.6 or later is needed", partial_result=result
        )
    if "doctor-no-python" in errors:
        return TransportError("no-python", "there is no python3 on the host", partial_result=result)
    if begun:
        return TransportError("lost", "the answer broke off midway", partial_result=result)
    message = strip_control_chars(_last_line(errors) or _last_line(result.out.decode("utf-8", "replace")))
    ended = f"signal {-result.code}" if result.code < 0 else f"exit status {result.code}"
    detail = f": {message}" if message else " and said nothing"
    return TransportError(
        "shell", f"the login shell did not start the collector ({ended}){detail}", partial_result=result
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def unique_facts(facts: Iterable[type[Fact]]) -> tuple[type[Fact], ...]:
    """The facts in a settled order. Raises: ValueError when two have one name."""
    by_name: dict[str, type[Fact]] = {}
    for fact in facts:
        if by_name.setdefault(fact.__name__, fact) is not fact:
            raise ValueError(f"two facts are named {fact.__name__}")
    return tuple(by_name[name] for name in sorted(by_name))


def split_command(prefix: str) -> Sequence[str]:
    """The words of a ``--within`` prefix. Raises: ValueError on an open quote."""
    import shlex

    return shlex.split(prefix)
