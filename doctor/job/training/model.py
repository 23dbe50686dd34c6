"""What files and launch lines say about a training, as values."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from doctor.engine.fact import Absent
from doctor.engine.texts import filled

Scalar = int | float | bool | str

OF_CONTAINER = "devices of the container"
CUDA_QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
"""A variable that Megatron-LM demands to be 1 with tensor parallelism, and not to be 1 with FSDP."""

HCCL_TIMEOUTS = ("HCCL_CONNECT_TIMEOUT", "HCCL_EXEC_TIMEOUT")
"""Variables in seconds that a timeout of the framework is compared with."""


class Setting(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One value, and the place that gives it."""

    option: str
    """As it is written there: ``--tensor-model-parallel-size``, ``parallel_config.model_parallel``."""
    value: Scalar | None = None
    """None: it is given, and what it is cannot be decided."""
    where: str = ""
    """File and line: ``train.sh:12``; ``command line``."""
    undecided: str = ""
    """Why there is no value: the source text or the reason."""

    def __str__(self) -> str:
        value = str(self.value).lower() if isinstance(self.value, bool) else self.value
        text = f"{self.option} {value}" if value is not None else self.undecided
        named = text if self.value is not None or text.startswith("--") else f"{self.option} {text}"
        return filled("{0} ({1})", named, self.where)


class Configuration(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The settings that one file, or the arguments of one program, give to a framework."""

    framework: str
    """``megatron``, ``transformers``, ``deepspeed``, ``mindformers``, ``accelerate``, ``lightning``, ``nemo``,
    ``fsdp``, ``axolotl``, ``torchtune``, ``torchtitan``, ``internevo``, ``llamafactory`` (its v1)."""
    where: str
    settings: dict[str, Setting] = {}
    """By the names of `doctor.job.training.configurations`."""
    incomplete: str = ""
    """A part that may hold further settings and cannot be read, such as ``$EXTRA_ARGS``; empty: there is none."""


class CodeMark(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One place in a program that a rule is about."""

    kind: str
    """One of the kinds of `doctor.job.training.python_code`."""
    where: str
    text: str = ""
    """The value or source text that matters."""
    undecided: str = ""


class TrainingScript(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a Python program does, as far as its text shows."""

    path: str
    marks: tuple[CodeMark, ...] = ()
    opaque: str = ""
    """A module of the user's own that the program imports: what it does elsewhere is not known."""

    def all(self, kind: str) -> tuple[CodeMark, ...]:
        return tuple(mark for mark in self.marks if mark.kind == kind)

    def has(self, *kinds: str) -> bool:
        return any(mark.kind in kinds for mark in self.marks)


class TrainingJob(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One launch, with the configurations and programs that it uses."""

    launch: dict[str, Setting] = {}
    """``launcher``, ``world_size``, ``nodes``, ``ranks_per_node``, ``visible``, ``joined``, the counts of msrun,
    ``restarts``, ``rdzv_backend`` and ``own_store`` of torchrun, and ``time_limit`` and the timeouts of HCCL in
    seconds, by their variables."""
    configurations: tuple[Configuration, ...] = ()
    scripts: tuple[TrainingScript, ...] = ()
    unread: str = ""
    """Why the program of the launch line is not known; empty: it is, or there is no launch line."""

    @property
    def where(self) -> str:
        """File and line of the launch line; empty without one."""
        return next((setting.where for setting in self.launch.values()), "")


class TrainingLaunch(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """All launches of the files and lines that were given."""

    absent: ClassVar = Absent("no launch line or configuration was given; doctor lint checks them")

    jobs: tuple[TrainingJob, ...] = ()
