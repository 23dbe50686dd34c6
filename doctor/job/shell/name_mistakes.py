"""Variables of a script that are read under another name than they are set, or called as commands. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from doctor.job.shell.variables import ShellVariables
from doctor.job.shell.word import ShellCommand
from doctor.job.variable_names import documented_variables, intended_name, is_one_slip, is_same_word

_MOST, _LEAST_NAME = 64, 6
_CALLED = re.compile(r"\$\(([A-Z][A-Z0-9_]{2,60})\)|\$\$([A-Z][A-Z0-9_]{2,60})", re.ASCII)
_NAME = re.compile(r"(?<![\w-])[A-Za-z_]\w*", re.ASCII)


def name_mistakes(
    text: str, variables: ShellVariables, commands: Sequence[ShellCommand], functions: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Of a script's text that was evaluated: what stands there, how bash takes it, and what is meant.

    A name that is read where nothing sets it, and another one that is set and stands nowhere else, are one name; so are
    a name that a library reads, or another of the script, and one a letter away from it.
    """
    yield from _called(variables, commands, functions)
    words = Counter(_NAME.findall(text))
    idle = [name for name in sorted(variables.assigned - variables.exported) if words[name] == 1]
    for name in sorted(variables.absent - variables.assigned)[:_MOST]:
        if len(same := [other for other in idle if is_same_word(name, other)]) == 1:
            yield f"${name}", "", f"${same[0]}"
            continue
        close = [other for other in variables.assigned if len(other) != len(name) and is_one_slip(name, other)]
        meant = intended_name(name) or (close[0] if len(close) == 1 and len(name) > _LEAST_NAME else "")
        if meant in variables.assigned and meant.rstrip("S0123456789") != name.rstrip("S0123456789"):
            yield f"${name}", "", f"${meant}"


def _called(
    variables: ShellVariables, commands: Sequence[ShellCommand], functions: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """``$(NAME)``, as of make and Kubernetes, runs a command of this name; ``$$NAME`` begins with the PID."""
    texts = {word.unresolved + word.text for command in commands for word in command.argv if word.unresolved}
    texts |= {text for command in commands for text in command.unresolved.values()}
    found = {match for text in texts for match in _CALLED.findall(text)}
    for called, doubled in sorted(found)[:_MOST]:
        if called and called not in functions:
            yield called, "as a command", f"${{{called}}}"
        if doubled in variables.assigned | documented_variables():
            yield doubled, f"$${doubled}", f"${doubled}"
