"""``@check``: the signature lists the facts that a check needs, the docstring is its page."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar

import msgspec

from doctor.engine.fact import Fact, PerHost
from doctor.engine.result import Finding, Severity
from doctor.engine.texts import filled

Function = TypeVar("Function", bound=Callable[..., Iterable[Finding]])

Relations = Mapping[str, Sequence[str]]
"""Checks that may hold the cause, most likely first. In ``follows_from`` each with the values that must agree:
``("npu",)``; or ``("address=ip",)``, where the cause has another name for it. A value in the plural (``npus``) is read
first. In ``explained_by`` each with the values that the finding must have: ``("fault=shared",)``."""

SingleHost = str | Callable[[Mapping[type, object]], str]
"""Why a check does not apply to one host; or a function of the job's settings, which is empty where it does."""
P = ParamSpec("P")
R = TypeVar("R")


class Skip(Exception):
    """Raised by a check that does not apply, with the reason."""


class BadCheck(Exception):
    """A check file that breaks the rules: what, where, what was expected."""


def check(
    *,
    severity: Severity,
    area: str = "site",
    single_host: SingleHost = "",
    follows_from: Relations | None = None,
    explained_by: Relations | None = None,
    advisory: Sequence[str] = (),
    about: Sequence[str] = (),
    apart: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Makes a function a check. Its first docstring line is the healthy claim.

    ``single_host``: why it does not apply to a run of one host, where it is skipped whether or not facts can be read;
    a function of the job's settings by type may return the empty string, and the one host is evaluated.
    ``follows_from``: checks that may hold the cause of its findings, with the values that must agree; such a finding is
    shown under its cause: ``{"device-link-down": ("npu",)}`` (`doctor.analysis.causes`).
    ``explained_by``: checks whose errors, on the same hosts, make its findings unknown, for one that tries something.
    ``advisory``: parameters that serve the fix alone; one that cannot be read is None, and nothing is unknown for it.
    ``about``: advisory parameters without which there is nothing to find: on a host that has none of them, a check that
    cannot read the rest does not apply.
    ``apart``: parameters that tell a fault by themselves: where one cannot be read it is None, the rest is judged, and
    the host is unknown.
    """

    def mark(function: Function) -> Function:
        relations = dict(follows_from or {}), dict(explained_by or {})
        function.__dict__["doctor"] = (
            severity,
            area,
            single_host,
            *relations,
            tuple(advisory),
            tuple(about),
            tuple(apart),
        )
        return function

    return mark


class Need(msgspec.Struct, frozen=True):
    """One parameter of a check."""

    parameter: str
    type: type
    fleet: bool = False
    """A `PerHost`: the check is called once for the fleet."""
    optional: bool = False
    """``| None``: the parameter is None where the fact is absent."""
    advisory: bool = False
    """It serves the fix alone: the parameter is also None where the fact cannot be read."""
    about: bool = False
    """It is what the check is about: where it is absent, and the rest cannot be read, the check does not apply."""
    apart: bool = False
    """The rest is judged without it where it cannot be read."""

    @property
    def is_fact(self) -> bool:
        return issubclass(self.type, Fact)


class Check:
    """One check, as it was found in its file."""

    implied = False
    """It was added and not chosen: it stands for hosts that cannot be read."""

    def __init__(self, function: Callable[..., Iterable[Finding]], path: str = "") -> None:
        self.function = function
        self.path = path
        self.name = function.__name__.replace("_", "-")
        declared = function.__dict__["doctor"]
        self.severity, self.area, self.single_host, self.follows_from, self.explained_by, advisory, *rest = declared
        self.about, self.apart = map(frozenset, rest)
        self.advisory = self.about.union(advisory)

    def __repr__(self) -> str:
        return f"<check {self.name}>"

    @cached_property
    def doc(self) -> str:
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def claim(self) -> str:
        """The first docstring line: the healthy condition."""
        return self.doc.partition("\n")[0].rstrip(".")

    def section(self, title: str) -> str:
        """The text under ``## title`` of the page, or the empty string."""
        if title not in (self.function.__doc__ or ""):  # of every check at each start: its page is not laid out for it
            return ""
        text = f"\n{self.doc}".partition(f"\n## {title}\n")[2]
        return f"\n{text}".partition("\n## ")[0].strip()

    @cached_property
    def needs(self) -> tuple[Need, ...]:
        """The parameters. Raises: BadCheck when one is not a fact, a `PerHost` of one, or a part of intent."""
        hints = typing.get_type_hints(self.function)
        return tuple(self._need(name, hints.get(name)) for name in inspect.signature(self.function).parameters)

    @cached_property
    def host_needs(self) -> tuple[Need, ...]:
        return tuple(need for need in self.needs if need.is_fact and not need.fleet)

    @property
    def per_host(self) -> bool:
        """The check is called once a host, not once for the fleet."""
        return bool(self.host_needs)

    @property
    def facts(self) -> set[type[Fact]]:
        return {need.type for need in self.needs if need.is_fact}

    def _need(self, name: str, hint: Any) -> Need:
        optional = typing.get_origin(hint) in (typing.Union, types.UnionType)
        if optional:
            rest = [part for part in typing.get_args(hint) if part is not type(None)]
            hint = rest[0] if len(rest) == 1 and len(typing.get_args(hint)) == 2 else None
        fleet = typing.get_origin(hint) is PerHost
        if fleet:
            (hint,) = typing.get_args(hint)
        if not isinstance(hint, type) or typing.get_origin(hint):  # Python 3.10 takes list[X] for a type
            raise BadCheck(
                filled(
                    "{0}: {1}({2}): expected a fact, PerHost[fact] or intent", self.path, self.function.__name__, name
                )
            )
        return Need(name, hint, fleet, optional, name in self.advisory, name in self.about, name in self.apart)


def once_per_fleet(function: Callable[P, R]) -> Callable[P, R]:
    """The function's last result, for as long as it is called with the very same objects.

    A check that is called for each host would compute what is of the whole fleet for each again.
    """
    last: list[tuple[tuple[object, ...], R]] = []

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = (*args, *kwargs, *kwargs.values())
        for previous, result in last:
            if len(previous) == len(arguments) and all(map(_is_same, previous, arguments)):
                return result
        result = function(*args, **kwargs)
        last[:] = [(arguments, result)]
        return result

    return wrapper


def _is_same(first: object, second: object) -> bool:
    return first is second
