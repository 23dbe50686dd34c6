"""Which option or key of a framework is which setting: the tables of option_names.toml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table
from doctor.job.launch_line.model import LaunchLine, OptionProblem
from doctor.job.launch_line.options import is_misspelt

MEGATRON_MARKS = frozenset(
    ("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size", "num-attention-heads")
)
"""An argument of a program that only Megatron-LM and what is built on it have."""


@cache
def option_names() -> Mapping[str, Mapping[str, str]]:
    """Setting by option or key, by framework."""
    tables = read_table(Path(__file__).with_suffix(".toml"), dict[str, dict[str, str]])
    return {**tables, "nemo": {**tables["lightning"], **tables["nemo"]}}


def is_megatron_switch(name: str) -> bool:
    """Whether it has no value in any framework. Transformers also takes ``--bf16 True``."""
    return name in option_names()["megatron_flags"] and name not in ("bf16", "fp16")


def refused_overrides(line: LaunchLine) -> Iterator[OptionProblem]:
    """Overrides of verl by a key that is another one, misspelt: Hydra ends at a key that the configuration has not.

    Numbers of hosts and devices that start no rank, too.
    """
    if not (line.is_module and line.program.startswith("verl.")):
        return
    verl = option_names()["verl"]
    for word in line.arguments:
        key, equals, value = word.removeprefix("++").partition("=")
        is_override = equals and not key.startswith("-")  # --config-name=... is an option of Hydra's own
        meant = [name for name in verl if is_misspelt(key, name)] if is_override and key not in verl else []
        if verl.get(key) in ("devices", "machines") and re.fullmatch(r"0+|[A-Za-z]\w{0,80}", value, re.ASCII):
            yield OptionProblem(line.program, key, value, filled("a whole number from {0}", 1))
        if len(meant) == 1:
            yield OptionProblem(line.program, printable(key, 80), printable(value, 80), meant[0])
