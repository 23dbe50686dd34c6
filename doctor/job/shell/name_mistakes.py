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
from doctor.job.variable_names import documented_variables, intended_name, is_one_slip, is_same_word, meant_key

_OF_SLURM = """
SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN
SLURM_ARRAY_TASK_STEP SLURM_CLUSTER_NAME SLURM_CPUS_ON_NODE SLURM_CPUS_PER_GPU SLURM_CPUS_PER_TASK SLURM_GPUS
SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_GTIDS SLURM_HET_SIZE SLURM_JOB_ACCOUNT
SLURM_JOB_CPUS_PER_NODE SLURM_JOB_END_TIME SLURM_JOB_GPUS SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NAME SLURM_JOB_NODELIST
SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_START_TIME SLURM_JOB_UID SLURM_JOB_USER
SLURM_LAUNCH_NODE_IPADDR SLURM_LOCALID SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE SLURM_NNODES SLURM_NODEID
SLURM_NODELIST SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE
SLURM_NTASKS_PER_SOCKET SLURM_PROCID SLURM_RESTART_COUNT SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NODELIST
SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_TASKS_PER_NODE SLURM_TASK_PID
SLURM_TMPDIR SLURM_TOPOLOGY_ADDR SLURMD_NODENAME
"""
"""Source: sbatch(1) and srun(1), "OUTPUT ENVIRONMENT VARIABLES"; SLURM_TMPDIR of some sites."""
_READ_OF_SLURM = re.compile(r"\$\{?(SLURM_\w{2,40})\b(?!:?[-=+?])", re.ASCII)
_MOST, _LEAST_NAME = 64, 6
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
        if meant := meant_key(name, _OF_SLURM.split()):
            yield f"${name}", "", f"${meant}"
    counts = Counter(_NAME.findall(text))
    idle = [name for name in sorted(variables.assigned - variables.exported) if counts[name] == 1]
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
    pairs = {match for text in texts for match in _CALLED.findall(text)}
    for called, doubled in sorted(pairs)[:_MOST]:
        if called and called not in functions:
            yield called, "as a command", f"${{{called}}}"
        if doubled in variables.assigned | documented_variables():
            yield doubled, f"$${doubled}", f"${doubled}"


def value_behind(command: str, two: Sequence[Token], variables: ShellVariables) -> Iterator[tuple[str, str, str]]:
    """``export NCCL_DEBUG INFO``: two names, and the first has no value."""
    name, word = [token.keyword for token in two] if len(two) > 1 else ("", "")
    if _VALUE_WORD.fullmatch(word) and name in documented_variables() and not variables.is_set(name):
        yield command, f"{name} {word}", f"{command} {name}={word}"


def emptied(command: str, before: Token, token: Token) -> Iterator[tuple[str, str, str]]:
    """``export NODE_RANK= 0``: a value apart from its name."""
    if apart := value_apart(before, token):
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
