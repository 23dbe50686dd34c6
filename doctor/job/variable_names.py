"""The variables that communication libraries and launchers read, and a misspelt name among others. Pure.

Two names mean the same where their parts are the same in any order, each in one of its usual forms: NCCL_IB_GID_IDX,
HCCL_CONN_TIMEOUT. A name that lacks one word of another counts as well, such as GLOO_IFNAME, where the rest is a word
that libraries use and scripts do not: a script's own NCCL_TIMEOUT, ASCEND_HOME or NCCL_PORT is not a misspelt name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache

import msgspec

from doctor.engine.grouping import lists_by_key
from doctor.engine.toml_compat import table_beside

FAMILIES = frozenset(
    ("NCCL", "HCCL", "GLOO", "TP", "TORCH", "ASCEND", "MS", "MASTER", "PYTORCH", "OMP", "UCX", "RCCL", "HIP", "ROCR")
)
_SHORTEST = 8
"""Letters of a name; shorter ones are too like others."""
LEAST_LENGTH = 6
"""Of a name that may be another one, misspelt."""
_LEAST_OWN, _DIGITS = 3, "0123456789"
_END = 3
"""Letters: of a name of `_SHORTEST`, two exchanged letters leave as many at one end."""

Parts = tuple[str, ...]


class _Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    library: str
    names: str
    prefix: str = ""
    """Of each of the names."""
    describes_job: bool = False
    """Although no prefix shows that they are of a library."""


class _WordForms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    common: str
    """Words that scripts use in names of their own."""
    forms: dict[str, str]
    """The usual form of a word, which may be several words."""
    meant: dict[str, str]
    """The variable that was meant, for names without a word that shows it."""


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    of_slurm: str
    names: tuple[_Names, ...]
    word_forms: _WordForms


_table = table_beside(__file__, _Table)


def of_slurm() -> list[str]:
    """The variables that Slurm sets."""
    return _table().of_slurm.split()


@cache
def documented_variables(describing_job: bool = False) -> frozenset[str]:
    """All names; ``describing_job``: those that describe a job although no prefix shows it."""
    rows = [row for row in _table().names if row.describes_job or not describing_job]
    return frozenset(row.prefix + name for row in rows for name in row.names.split())


@cache
def intended_name(name: str) -> str:
    """The variable of the list that a name is misspelt from: one letter too many, too few, other, or two exchanged.

    Else the one with the same words in other forms. Empty for a name of the list, and
    for one that is like none of them, or like several.

    >>> intended_name("GLOO_SOCKET_IFNAM"), intended_name("MASTER_ADRD"), intended_name("NCCL_DEBUG")
    ('GLOO_SOCKET_IFNAME', 'MASTER_ADDR', '')
    """
    if name in documented_variables() or len(name) < _SHORTEST or len(name) > 64:
        return ""
    candidates = (_by_end().get(end, ()) for end in _ends(name))
    likely = {other for others in candidates for other in others if is_one_slip(name, other)}
    family = name.partition("_")[0]
    likely = {other for other in likely if family == other.partition("_")[0] or family not in FAMILIES}
    if not likely:
        return _word_index().intended(name)
    return likely.pop() if len(likely) == 1 else ""


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """The names that are misspelt, and what was meant; not where that is set as well."""
    listed = set(names)
    pairs = ((name, intended_name(name)) for name in sorted(listed))
    return {name: intended for name, intended in pairs if intended and intended not in listed}


@cache
def _word_index() -> WordIndex:
    return WordIndex(documented_variables(), _table().word_forms)


@cache
def _by_end() -> dict[tuple[bool, str], list[str]]:
    return lists_by_key((end, name) for name in documented_variables() if len(name) >= _SHORTEST for end in _ends(name))


def _ends(name: str) -> tuple[tuple[bool, str], tuple[bool, str]]:
    """Where a name begins and ends: one slip leaves one of the two as it was."""
    return (True, name[:_END]), (False, name[-_END:])


def is_one_slip(name: str, other: str) -> bool:
    """Whether one letter more, less or otherwise, or two that changed places, make one name of the other."""
    start = 0
    while start < min(len(name), len(other)) and name[start] == other[start]:
        start += 1
    rest, tail = name[start:], other[start:]
    if len(rest) == len(tail):
        return rest[1:] == tail[1:] or (rest[:2] == tail[:2][::-1] and rest[2:] == tail[2:])
    return rest[1:] == tail if len(rest) > len(tail) else rest == tail[1:]


def is_misspelt(name: str, meant: str) -> bool:
    """Whether a name differs from another in its dashes, in one letter too many or too few, or in their order.

    In a long word one letter may be another, or two may lack. Another letter in a short one makes another name, as in
    ``mem-per-cpu`` and ``mem-per-gpu``.

    >>> is_misspelt("partion", "partition"), is_misspelt("partitian", "partition"), is_misspelt("mem-gpu", "mem-cpu")
    (True, True, False)
    """
    parts, others = re.split("[_-]", name), re.split("[_-]", meant)
    apart = [pair for pair in zip(parts, others, strict=False) if pair[0] != pair[1]]
    if len(parts) == len(others) and len(apart) == 1 and len(apart[0][0]) >= LEAST_LENGTH and _is_worn(*apart[0]):
        return True
    short, long = sorted((re.sub("[_-]", "", name), re.sub("[_-]", "", meant)), key=len)
    return sorted(short) == sorted(long) if len(short) == len(long) else is_one_slip(short, long)


def meant_key(key: str, names: Iterable[str]) -> str:
    """The one name that a key of a file or a command line, which is none of them, is misspelt from; else empty.

    >>> meant_key("nprocPerNod", ["nprocPerNode", "nnodes"]), meant_key("lr1", ["lr2", "lr3"]), meant_key("a", ["a"])
    ('nprocPerNode', '', '')
    """
    names = list(names)
    near = [name for name in names if abs(len(name) - len(key)) < 3 and is_misspelt(key.lower(), name.lower())]
    return near[0] if len(near) == 1 and key not in names else ""


def is_near(word: str, allowed: Iterable[str]) -> bool:
    """Whether a word that is none of these is nearly one: its case, a slip, or another ending of one or two letters.

    >>> is_near("cosinus", ["cosine"]), is_near("bf-16", ["bf16"]), is_near("fp8", ["fp16"])
    (True, True, False)
    """
    text, others = word.lower(), [other.lower() for other in allowed]
    begun = any(text[:most] == other[:most] for other in others for most in [max(5, len(text) - 2, len(other) - 2)])
    return begun or any(is_misspelt(text, other) for other in others)


def _is_worn(word: str, meant: str) -> bool:
    """Whether one letter is another, or two lack; the first is right."""
    letters = iter(meant)
    lacks_two = len(meant) - len(word) == 2 and all(letter in letters for letter in word)
    return word[0] == meant[0] and (lacks_two or (len(word) == len(meant) and is_one_slip(word, meant)))


def is_same_word(name: str, other: str) -> bool:
    """Whether two names of a script's own are one name written twice: a slip, dashes, a plural, NUM for N.

    >>> [is_same_word("NGPUS", other) for other in ("NUM_GPUS", "ngpus", "N_GPU", "NPUS", "GPUS1")]
    [True, False, True, True, False]
    >>> is_same_word("GPU1", "GPU2"), is_same_word("A", "AB"), is_same_word("MASTER_ADDR", "MASTER_ADDRESS")
    (False, False, True)
    """
    if max(len(name), len(other)) < _LEAST_OWN or name.rstrip(_DIGITS) == other.rstrip(_DIGITS):
        return False
    return is_one_slip(name, other) or _spelling(name) == _spelling(other)


def _spelling(name: str) -> str:
    parts = ({"ADDRESS": "ADDR", "NUM": "N"}.get(word, word) for word in name.split("_"))
    return "".join(parts).rstrip("S")


class WordIndex:
    """The documented names by their parts."""

    def __init__(self, names: Iterable[str], word_forms: _WordForms) -> None:
        self._names = frozenset(names)
        self._common = frozenset(word_forms.common.split())
        self._word_forms = word_forms
        self._by_words: dict[Parts, list[str]] = defaultdict(list)
        self._by_rest: dict[Parts, list[str]] = defaultdict(list)
        for name in sorted(self._names):
            parts = self._parts(name)
            self._by_words[parts].append(name)
            if parts and name.partition("_")[0] in FAMILIES:
                for word in set(parts) - FAMILIES - self._common:
                    rest = list(parts)
                    rest.remove(word)
                    self._by_rest[tuple(rest)].append(name)

    def intended(self, name: str) -> str:
        """The documented variable that was meant; empty for none, or where several would do.

        >>> index = WordIndex(["GLOO_SOCKET_IFNAME", "HCCL_CONNECT_TIMEOUT"], _table().word_forms)
        >>> index.intended("GLOO_INTERFACE"), index.intended("HCCL_CONN_TIMEOUT"), index.intended("HCCL_TIMEOUT")
        ('GLOO_SOCKET_IFNAME', 'HCCL_CONNECT_TIMEOUT', '')
        """
        if name in self._word_forms.meant:
            return self._word_forms.meant[name]
        if name in self._names or name.partition("_")[0] not in FAMILIES or name.count("_") > 16:
            return ""
        parts = self._parts(name)
        candidates = set(self._by_words.get(parts, ()))
        candidates |= {other for other in (f"TORCH_{name}", name.removeprefix("TORCH_")) if other in self._names}
        if not candidates and set(parts) - FAMILIES - self._common:
            candidates = set(self._by_rest.get(parts, ()))
        return candidates.pop() if len(candidates) == 1 else ""

    def _parts(self, name: str) -> Parts:
        """Each in its usual form, in the order of the alphabet: the order in the name is of no account."""
        forms = (self._word_forms.forms.get(word, word) for word in name.split("_"))
        return tuple(sorted(" ".join(forms).split()))
