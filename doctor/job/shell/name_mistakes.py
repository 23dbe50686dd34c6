"""What a script writes and bash takes otherwise: names, values apart from them, blocks without their end. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.shell.blocks import OPENING, Block
from doctor.job.shell.tokens import Token
from doctor.job.shell.variables import ShellVariables, value_apart
from doctor.job.shell.word import ShellCommand, Word
from doctor.job.variable_names import (
    documented_variables,
    intended_name,
    is_one_slip,
    is_same_word,
    meant_key,
    of_slurm,
)

_READ_OF_SLURM = re.compile(r"\$\{?(SLURM_\w{2,40})\b(?!:?[-=+?])", re.ASCII)
_MOST, _LEAST_NAME = 64, 6
OF_SCRIPT, INPUT, BLANKS = "the script's variable", "an input of its own", "blanks"
"""What a command lacks, in place of an option."""
_SOURCES = re.compile(
    r"(?:^|[;&|]|\b(?:then|do|else))[ \t]*(?:source|\.)[ \t]|\ballexport\b|\bset -[a-z]*a", re.MULTILINE
)
_CALLED = re.compile(r"\$\(([A-Z][A-Z0-9_]{2,60})\)|\$\$([A-Z][A-Z0-9_]{2,60})", re.ASCII)
_NUMBERED = re.compile(r"[a-z][a-z0-9_]{1,14}[0-9]", re.ASCII)
_VALUE_WORD = re.compile(r"[0-9]{1,9}|INFO|WARN|TRACE|VERSION|DETAIL|OFF|(?i:true|false|on)")
_NAME = re.compile(r"(?<![\w-])[A-Za-z_]\w*", re.ASCII)


def name_mistakes(
    text: str, variables: ShellVariables, commands: Sequence[ShellCommand], functions: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """Of a script's text that was evaluated: what stands there, how bash takes it, and what is meant.

    A name that is read where nothing sets it, and another one that is set and stands nowhere else, are one name; so are
    a name that a library reads, or another of the script, and one a letter away from it.
    """
    yield from _called(variables, commands, functions)
    for name in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH"):  # `PATH=/opt/bin:PATH` loses what was there
        if isinstance(value := variables.values.get(name), Word) and name in value.text.split(":"):
            right = ":".join(f"${name}" if folder == name else folder for folder in value.text.split(":"))
            yield f"{name}=", printable(value.text, 80), printable(f"{name}={right}", 120)
    for name in sorted({*_READ_OF_SLURM.findall(re.sub(r"(?m)^[ \t]*#.*", "", text))} - variables.assigned)[:_MOST]:
        if meant := meant_key(name, of_slurm()):
            yield f"${name}", "", f"${meant}"
    counts = Counter(_NAME.findall(text))
    idle = [name for name in sorted(variables.assigned - variables.exported) if counts[name] == 1]
    kept = documented_variables() | {"MASTER_ADDR", "MASTER_PORT"} if not _SOURCES.search(text) else ()
    for name in [name for name in idle if name in kept and isinstance(variables.values.get(name), Word)]:
        yield OF_SCRIPT, name, "as the script sets it, and neither reads nor exports it"
    for line, command in _emptying(text, commands):
        yield INPUT, filled("behind {0} of line {1}", command, line), "as it reads the list of the loop: the loop ends"
    for name in sorted(variables.absent - variables.assigned)[:_MOST]:
        if len(same := [other for other in idle if is_same_word(name, other)]) == 1:
            yield f"${name}", "", f"${same[0]}"
            continue
        close = [other for other in variables.assigned if len(other) != len(name) and is_one_slip(name, other)]
        meant = intended_name(name) or (close[0] if len(close) == 1 and len(name) > _LEAST_NAME else "")
        if meant in variables.assigned and meant.rstrip("S0123456789") != name.rstrip("S0123456789"):
            yield f"${name}", "", f"${meant}"


def _emptying(text: str, commands: Sequence[ShellCommand]) -> Iterator[tuple[int, str]]:
    """``ssh`` that reads the list of ``while read HOST; do ssh $HOST ...; done < LIST``: ssh(1), "-n"."""
    lines, starts = text.splitlines(), list[tuple[int, bool]]()
    reading: set[int] = set()
    for number, line in enumerate(lines, 1):
        if re.match(r"[ \t]*(?:while|for|until|select)\b", line) and not re.search(r"\bdone\b", line):
            starts.append((number, re.match(r"[ \t]*while\b.{0,200}\bread\b(?!.{0,80}(?:<|-u))", line) is not None))
        elif starts and (end := re.match(r"[ \t]*done\b[ \t]*(<(?!&))?", line)):
            start, is_reading = starts.pop()
            reading |= set(range(start, number)) if is_reading and end[1] else set()
    for command in commands:
        argv = [word.text for word in command.argv[:12]]
        is_deaf = any(re.fullmatch("-[46AaCfgKkMNnqTtVvXxYy]*[nf][a-zA-Z]*", argument) for argument in argv)
        reads = argv[:1] == ["ssh"] and command.line in reading and command.operator == ";" and not is_deaf
        if reads and "<" not in lines[command.line - 1]:
            yield command.line, argv[0]


def test_mistakes(argv: Sequence[Word]) -> Iterator[tuple[str, str, str]]:
    """``[ $A==0 ]``: one word, which is true."""
    texts = [word.text for word in argv if word.text not in ("]", "]]")]
    if texts[:1] in (["["], ["[["], ["test"]) and len(texts) == 2 and (sign := re.search("==|!=", texts[1])):
        yield BLANKS, sign[0], filled("as `{0}` is one word, which is always true", printable(texts[1], 80))


def _called(
    variables: ShellVariables, commands: Sequence[ShellCommand], functions: Collection[str]
) -> Iterator[tuple[str, str, str]]:
    """``$(NAME)``, as of make and Kubernetes, runs a command of this name; ``$$NAME`` begins with the PID."""
    texts = {word.unresolved + word.text for command in commands for word in command.argv if word.unresolved}
    texts |= {text for command in commands for text in command.unresolved.values()}
    pairs = {match for text in texts for match in _CALLED.findall(text)}
    for called, doubled in sorted(pairs)[:_MOST]:
        if called and called not in functions:
            yield called, "as a command", f"${{{called}}}"
        if doubled in variables.assigned | documented_variables():
            yield doubled, f"$${doubled}", f"${doubled}"


def value_mistakes(
    command: str, arguments: Sequence[Token], number: int, exports: bool, variables: ShellVariables
) -> Iterator[tuple[str, str, str]]:
    """Of an argument of ``export``: ``export NCCL_DEBUG INFO``, two names, and the first has no value; and ``export
    NODE_RANK= 0``, a value apart from its name.
    """
    token, keywords = arguments[number], [argument.keyword for argument in arguments[number : number + 2]]
    name, value = keywords if exports and len(keywords) > 1 else ("", "")
    if _VALUE_WORD.fullmatch(value) and name in documented_variables() and not variables.is_set(name):
        yield command, f"{name} {value}", f"{command} {name}={value}"
    before = arguments[number - 1] if number else None
    if before and (apart := value_apart(before, token)):
        yield command, f"{before.keyword} {apart}", f"{command} {before.keyword}{apart}"


def command_mistakes(
    argv: Sequence[Word], assignments: Sequence[Token], variables: ShellVariables, line: int
) -> Iterator[tuple[str, str, str]]:
    """Of a command that was a part of another. ``line``: its own, below that of the one before it; else 0."""
    name, after, third = ([word.text for word in argv[:3]] + [""] * 3)[:3]
    if after.startswith("=") and re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
        yield name, after, f"{name}={after[1:] or third}"
    if assignments and len(argv) == 1 and (apart := value_apart(assignments[-1], argv[0])):
        yield assignments[-1].keyword, apart, f"{assignments[-1].keyword}{apart}"
    yield from _part_of_value(argv, variables)
    if match := re.match(r"\[\[?(?=[^\[\s])", name):
        yield name, "as a command", filled("a blank behind `{0}`", match[0])
    if line and re.match("--[a-z]", name):
        yield name, "as a command", filled("`\\` at the end of line {0}", line - 1)


def _part_of_value(argv: Sequence[Word], variables: ShellVariables) -> Iterator[tuple[str, str, str]]:
    """``NCCL_IB_HCA=mlx5_0;mlx5_1``: the second is a command, and differs in its number alone from the value."""
    command = argv[0].text if len(argv) == 1 else ""
    if _NUMBERED.fullmatch(command):
        stem = command.rstrip("0123456789")
        texts = [value.text for value in variables.values.values() if isinstance(value, Word)]
        before = next((text for text in texts if text.rstrip("0123456789") == stem and text != command), "")
        if before:
            yield command, "as a command", f'"{before},{command}"'


def unclosed(blocks: Sequence[Block]) -> Iterator[tuple[str, str, str]]:
    """The first block without its end: bash accepts no such text."""
    for block in [block for block in blocks if block.keyword in OPENING][:1]:
        yield block.keyword, filled("of line {0}", block.line), filled("`{0}` behind it", OPENING[block.keyword])
