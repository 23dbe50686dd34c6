"""The stacks of all ranks in one tree: what ranks have in common is shown once, then where they part. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from doctor.report.layout.formatting import clean

MAX_LINES = 24
MAX_DEPTH = 12
MAX_FRAMES = 4
"""Calls of one branch that are shown: the innermost ones."""
_FRAME = re.compile(r'File "([^"\n]{1,400})", line (\d{1,7}) in ([^\n]{1,200})')

Stacks = Mapping[int, tuple[str, ...]]
"""By rank: its calls, the outermost first."""


def stack_tree(stacks: Mapping[int, str]) -> list[tuple[int, str, tuple[int, ...]]]:
    r"""(depth, calls, ranks) of each branch, from stacks as faulthandler writes them.

    >>> main = 'File "/x/t.py", line 9 in main'
    >>> stack_tree({0: 'File "/x/t.py", line 3 in wait\n' + main, 1: 'File "/x/t.py", line 5 in save\n' + main})
    [(0, 'main at t.py:9', (0, 1)), (1, 'wait at t.py:3', (0,)), (1, 'save at t.py:5', (1,))]
    """
    calls = {rank: found for rank, text in sorted(stacks.items()) if (found := _calls(text))}
    rows: list[tuple[int, str, tuple[int, ...]]] = []
    todo: list[tuple[int, Stacks]] = [(0, calls)] if len(calls) > 1 else []
    while todo and len(rows) < MAX_LINES:
        depth, branch = todo.pop()
        common = _common(branch)
        if common:
            visible = common[-MAX_FRAMES:]
            rows.append((depth, ("... > " if len(visible) < len(common) else "") + " > ".join(visible), tuple(branch)))
        parts: dict[str, dict[int, tuple[str, ...]]] = {}
        for rank, stack in branch.items():
            if rest := stack[len(common) :]:
                parts.setdefault(rest[0], {})[rank] = rest
        if depth < MAX_DEPTH:
            larger_first = sorted(parts.values(), key=lambda part: -len(part))
            todo += [(depth + bool(common), part) for part in reversed(larger_first)]
    return rows


def _common(stacks: Stacks) -> tuple[str, ...]:
    """The outermost calls that all of them have."""
    first, last = min(stacks.values()), max(stacks.values())
    shorter = min(len(first), len(last))
    same = next((place for place in range(shorter) if first[place] != last[place]), shorter)
    return first[:same]


def _calls(text: str) -> tuple[str, ...]:
    """The main thread's calls; those of loader workers stand behind them."""
    main_thread = text.partition("\nloader worker ")[0]
    calls = [f"{name.strip()} at {path.rpartition('/')[2]}:{line}" for path, line, name in _FRAME.findall(main_thread)]
    return tuple(clean(call, 120) for call in reversed(calls))
