"""Configurations out of the values of a file, or the arguments of a program."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import msgspec

from doctor.engine.record import OptionProblem
from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.engine.toml_compat import read_table
from doctor.job.job_size import is_number, python_number
from doctor.job.launch_line.model import LaunchLine
from doctor.job.training.model import Configuration, Setting
from doctor.job.training.tree import Leaf, Tree
from doctor.job.variable_names import is_near, meant_key

_NUMBER = re.compile(r"[+-]?[0-9]{1,15}")
_MOST_KEYS = 1000
_DERIVING = ("deepspeed", "lightning", "nemo", "axolotl")
"""Frameworks in which ``auto`` stands for a value that is found at the start."""
_OWN_ARGUMENTS = ("$@", "$*", "${@}", "${*}")
"""What a script hands on of its own arguments."""
_OVERRIDDEN = frozenset(
    ("mindformers", "lightning", "nemo", "fsdp", "axolotl", "torchtune", "torchtitan", "transformers", "llamafactory")
)
"""Frameworks whose command lines change values of their files."""
_READ = re.compile(
    r"\b(?:data(?:sets?)?|corpus|train|valid(?:ation)?|val|test|eval|inputs?|tokenizer|vocab|merges?|load|resume|restore|"
    r"from|pretrained|weights|(?:base-)?model(?:-(?:name-or-)?path)?$)\b(?!.*cache)"
)
_WRITTEN = re.compile(r"\b(?:out|outputs?|saved?|logs?|logging|tensorboard|results?|dump|export|write)\b")
"""Names of options whose path a program reads, and of those to which it writes: others tell nothing."""
_IS_PATH = re.compile(r"\.{0,2}/[^$`*?{}]+\Z")
_IS_FOLDER = re.compile(r"(?:out|output|save|dir|folder)\Z")
_MOST_PATHS = 32
MEGATRON_MARKS = frozenset(
    ("tensor-model-parallel-size", "pipeline-model-parallel-size", "micro-batch-size", "num-attention-heads")
)
"""An argument of a program that only Megatron-LM and what is built on it have."""


def scalar(text: str) -> int | float | bool | str:
    """A value of a command line or a variable.

    >>> scalar("16"), scalar("1e-4"), scalar("True"), scalar("ring")
    (16, 0.0001, True, 'ring')
    """
    if _NUMBER.fullmatch(text):
        return int(text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"[+-]?[0-9]{0,15}\.?[0-9]{0,15}([eE][+-]?[0-9]{1,3})?", text) and any(
        c.isdigit() for c in text[:17]
    ):
        try:
            return float(text)
        except ValueError:
            return printable(text, 200)
    return printable(text, 200)


def of_tree(tree: Tree, path: str) -> tuple[Configuration, ...]:
    """The configurations that a JSON or YAML file holds, by the keys that only one framework has; none: ()."""
    configurations = [_select(tree, path, framework) for framework in _frameworks(tree)]
    return tuple(configuration for configuration in configurations if configuration is not None)


def _frameworks(tree: Tree) -> Iterator[str]:
    sections = tree.sections
    if (
        "train_batch_size" in tree.leaves
        or "train_micro_batch_size_per_gpu" in tree.leaves
        or "zero_optimization" in sections
    ):
        yield "deepspeed"
    if {"parallel", "model", "data"} <= sections and tree.leaves.keys() & {"parallel.tensor", "parallel.tensor.size"}:
        yield "internevo"
    elif "parallel_config" in sections or "runner_config" in sections:
        yield "mindformers"
    elif "distributed_type" in tree.leaves or "compute_environment" in tree.leaves:
        yield "accelerate"
    elif "per_device_train_batch_size" in tree.leaves:
        yield "transformers"
    elif "model" in tree.leaves and "train_dataset" in tree.leaves:
        yield "llamafactory"
    elif "base_model" in tree.leaves and tree.leaves.keys() & {
        "micro_batch_size",
        "sequence_len",
        "gradient_accumulation_steps",
    }:
        yield "axolotl"
    elif any(
        path.endswith("_component_") and str(leaf.value).startswith("torchtune.") for path, leaf in tree.leaves.items()
    ):
        yield "torchtune"
    elif "parallelism" in sections and tree.leaves.keys() & option_names()["torchtitan"].keys():
        yield "torchtitan"
    elif "trainer" in sections:
        model = any(path.startswith("model.") and path in option_names()["nemo"] for path in tree.leaves)
        yield "nemo" if model else "lightning"
    else:
        keys = {path.rpartition(".")[2] for path in tree.leaves}
        if keys & option_names()["fsdp"].keys():
            yield "fsdp"


def _select(tree: Tree, path: str, framework: str) -> Configuration | None:
    table = option_names()[framework]
    settings: dict[str, Setting] = {}
    for leaf in tree.leaves.values():
        name = table.get(leaf.path.rpartition(".")[2] if framework == "fsdp" else leaf.path)
        if name and (setting := _setting(leaf, path, framework, value_kinds(framework).get(name, ""))):
            settings[name] = setting
    if framework not in ("fsdp", "lightning"):  # whose keys any program's own file may have
        keys_given = {leaf.path: Setting(leaf.path, "", f"{path}:{leaf.line}") for leaf in tree.leaves.values()}
        settings |= _misspelt(keys_given, table, abbreviates=False)
        if framework == "accelerate" and "misspelt" not in settings:
            settings |= _of_no_version(keys_given, table)
    for leaf in tree.repeated:
        settings.setdefault("repeated", Setting(leaf.path, leaf.path, f"{path}:{leaf.line}"))
    return Configuration(framework, path, settings) if settings else None


def _setting(leaf: Leaf, path: str, framework: str, kind: str) -> Setting | None:
    """None where the value is null, or ``auto``, which the framework derives itself."""
    value = leaf.value
    if isinstance(value, str) and not (kind == "size" and framework in ("deepspeed", "accelerate")):  # none in quotes
        value = scalar(value)
    if leaf.undecided:
        return Setting(leaf.path, None, f"{path}:{leaf.line}", printable(leaf.undecided, 120))
    if value is None or value == "" or (value == "auto" and framework in _DERIVING):
        return None
    return Setting(leaf.path, value, f"{path}:{leaf.line}")


class Arguments:
    """The arguments of a program, as argparse of Megatron-LM and Transformers takes them."""

    def __init__(self, arguments: Sequence[str], unresolved: frozenset[int], where: str) -> None:
        self.where = where
        self.options: dict[str, Setting] = {}
        self.overrides: dict[str, Setting] = {}
        self.positional: list[str] = []
        self.incomplete = ""
        self._read(arguments, unresolved)

    def _read(self, arguments: Sequence[str], unresolved: frozenset[int]) -> None:
        position = 0
        while position < len(arguments):
            word, inexact = arguments[position], position in unresolved
            position += 1
            if inexact and not word.startswith("--") and "=" not in word:
                self.incomplete = self.incomplete or printable(word, 80)
            elif (word.startswith("--") and len(word) > 2) or word in ("-tp", "-pp"):
                option, equals, value = word.partition("=")
                inexact = inexact and bool(equals)
                is_flag = position in unresolved and is_megatron_switch(option[2:].replace("_", "-"))
                if not equals and position < len(arguments) and not is_flag and not _is_option(arguments[position]):
                    value, inexact, equals = arguments[position], position in unresolved, "="
                    position += 1
                self._add(option, value, bool(equals), inexact)
            elif re.match(r"\+{0,2}[A-Za-z_][\w.@/]*=", word):
                name, _, value = word.partition("=")
                name = name.lstrip("+")
                self.overrides[name] = self._setting(name, value, True, inexact)
            elif not inexact:
                self.positional.append(word)

    def _add(self, option: str, value: str, has_value: bool, inexact: bool) -> None:
        name = option.lstrip("-").replace("_", "-")
        self.options[name] = self._setting(printable(option, 80), value, has_value, inexact)

    def _setting(self, option: str, value: str, has_value: bool, inexact: bool) -> Setting:
        if inexact:
            return Setting(option, None, self.where, printable(value, 120))
        return Setting(option, scalar(value) if has_value else True, self.where)

    def text(self, *options: str) -> str:
        """The decided value of the first of the options that has one."""
        for option in options:
            setting = self.options.get(option)
            if setting is not None and isinstance(setting.value, str):
                return setting.value
        return ""


def _is_option(word: str) -> bool:
    return word.startswith("--") or bool(re.fullmatch(r"-[A-Za-z]", word))


def of_arguments(arguments: Arguments, launchers: Container[str] = (), program: str = "") -> tuple[Configuration, ...]:
    """Megatron-LM's settings, or those of Paddle, Transformers' Trainer, OpenRLHF or verl; none of them: ().

    ``launchers``: names; that of Paddle starts programs of Paddle alone, whose sizes have Megatron-LM's names, too.
    ``program``: that the arguments are given to; ms-swift has a default of its own for the experts' tensor parallel
    size (swift/megatron/arguments/megatron_args.py), and verl's fully_async_policy does not use the batch (its page).
    """
    tables, trainer = option_names(), tuple[Configuration, ...]()
    if "per-device-train-batch-size" in arguments.options:
        trainer = (_from_options(arguments, "transformers", tables["transformers_arguments"]),)
    if arguments.options.keys() & tables["paddle"].keys() - (() if "paddle" in launchers else MEGATRON_MARKS):
        return (_from_options(arguments, "paddle", tables["paddle"]), *trainer)
    if arguments.options.keys() & MEGATRON_MARKS:
        of_megatron = _from_options(arguments, "megatron", {**tables["megatron"], **tables["megatron_flags"]})
        if program.startswith("swift."):
            of_megatron.settings.setdefault("expert_tensor", Setting("expert_tensor_parallel_size", 1, arguments.where))
        return (of_megatron,)
    if trainer:
        return trainer
    if "micro-train-batch-size" in arguments.options:
        return (_from_options(arguments, "openrlhf", tables["openrlhf"]),)
    if any(name.startswith(("actor_rollout_ref.", "trainer.n_gpus_per_node")) for name in arguments.overrides):
        if arguments.incomplete in _OWN_ARGUMENTS:  # as all scripts of verl end
            arguments.incomplete = ""
        of_verl = _from_options(arguments, "verl", tables["verl"])
        if ".fully_async" in program:
            of_verl.settings.pop("batch", None)
        return (of_verl,)
    if {"trainer.devices", "trainer.num_nodes"} <= arguments.overrides.keys():  # Hydra's, of Lightning's Trainer
        return (_from_options(arguments, "lightning", tables["lightning"]),)
    return ()


def of_nemo(arguments: Arguments) -> tuple[Configuration, ...]:
    """What Hydra's overrides of a program of NeMo give; its own configuration has no parallel groups and few layers."""
    named = next((name for name in ("config-name", "config-path") if name in arguments.options), "")
    configuration = _from_options(arguments, "nemo", option_names()["nemo"])
    is_open = filled("the configuration of --{0} is not read", named) if named else ""
    completed = msgspec.structs.replace(configuration, incomplete=configuration.incomplete or is_open)
    return (completed,) if completed.settings else ()


def of_server(arguments: Arguments, name: str) -> Configuration:
    """The sizes that vLLM or SGLang is given."""
    return _from_options(arguments, name, option_names()["vllm"])


def _from_options(arguments: Arguments, framework: str, table: Mapping[str, str]) -> Configuration:
    options, kinds = {**arguments.options, **arguments.overrides}, value_kinds(framework)
    named = [(name, setting) for option, setting in options.items() if (name := table.get(option))]
    settings = {name: setting for name, setting in named if (kinds.get(name), setting.value) != ("model", -1)}
    settings |= _misspelt(options, table, abbreviates=framework == "transformers")
    return Configuration(framework, arguments.where, settings, arguments.incomplete)


def _misspelt(options: Mapping[str, Setting], table: Mapping[str, str], abbreviates: bool) -> dict[str, Setting]:
    """As ``misspelt`` the first key that is one of the table's in another spelling, which is its value.

    ``abbreviates``: a beginning stands for the whole name.
    """
    absent = [name for name in table if name not in options]
    for key, setting in islice(options.items(), _MOST_KEYS):
        near = meant_key(key, absent) if key not in table else ""
        if near and not (abbreviates and near.startswith(key)):
            begin = "--" if setting.option.startswith("--") else ""
            meant = near.replace("-", "_") if "_" in setting.option else near
            return {"misspelt": Setting(printable(setting.option, 80), begin + meant, setting.where)}
    return {}


def _of_no_version(keys: Mapping[str, Setting], table: Mapping[str, str]) -> dict[str, Setting]:
    """As ``refused_key`` the first key of a file for a cluster that no version of Accelerate has.

    A new version brings sections, whose names end in ``_config``; a file for SageMaker has others.
    """
    names = ((re.split(r"[.\[]", key)[0], setting) for key, setting in islice(keys.items(), _MOST_KEYS))
    absent = ((name, setting) for name, setting in names if name not in table and not name.endswith("_config"))
    name, setting = next(absent, ("", None)) if "ec2_instance_type" not in keys else ("", None)
    return {"refused_key": Setting(printable(name, 80), "", setting.where)} if setting else {}


def overridden(configuration: Configuration, overrides: Mapping[str, Setting]) -> Configuration:
    """With Hydra's ``key=value`` and MindFormers' options of the command line instead of the file's values."""
    table = option_names()[configuration.framework] if configuration.framework in _OVERRIDDEN else {}
    changed = dict(configuration.settings)
    for key, setting in overrides.items():
        name = table.get(key.rpartition(".")[2] if configuration.framework == "fsdp" else key)
        if name:
            changed[name] = setting
    return Configuration(configuration.framework, configuration.where, changed, configuration.incomplete)


@cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    tables = read_table(Path(__file__).with_suffix(".toml"), dict[str, dict[str, str]])
    return {**tables, "nemo": {**tables["lightning"], **tables["nemo"]}}


@cache
def option_names() -> Mapping[str, Mapping[str, str]]:
    """Setting by option or key, by framework."""
    return {table: {key: text.split()[0] for key, text in rows.items()} for table, rows in _tables().items()}


@cache
def value_kinds(framework: str) -> Mapping[str, str]:
    """What values there are, by setting: a word of the table's first lines."""
    rows = {**_tables().get(framework, {}), **_tables().get(f"{framework}_arguments", {})}
    return dict(text.split() for text in rows.values() if " " in text)


_LITERAL = re.compile(
    r"(?!(?i:auto|none|null)$)(?![A-Z][A-Z_0-9]+$)[A-Za-z0-9][A-Za-z0-9_.,%+\u2010-\u2015\u2212-]{0,39}"
)
"""A word that stands for itself, and is no place that a template leaves open."""
_TRUTH = "true|false|yes|no|on|off"


def expected_value(kind: str, setting: Setting) -> str:
    """What its program takes in place of a value; empty where it takes the value, or that is not known.

    >>> [expected_value("int", Setting("--seed", text)) for text in ("4x", "4_0", "$SEED", "SEED")]
    ['a whole number', '', '', '']
    >>> expected_value("linear|cosine", Setting("type", "cosinus")), expected_value("linear", Setting("type", "my"))
    ('linear, cosine', '')
    """
    value, is_argument = setting.value, setting.option.startswith("--")
    if isinstance(value, bool) or value is None:
        return ""
    is_open = isinstance(value, str) and not _LITERAL.fullmatch(value)
    if kind in ("size", "model", "int"):
        number = python_number(str(value)) if is_argument or isinstance(value, int) else None
        is_refused = number is None and (is_argument or isinstance(value, str))
        is_low = number is not None and kind != "int" and number < 1 and (kind, number) != ("model", -1)
        expected = "a whole number" if kind == "int" else filled("a whole number from {0}", 1)
        return expected if (is_refused and not is_open) or is_low else ""
    if kind == "port":
        is_port = is_open or (re.fullmatch(r"[0-9]{1,5}", str(value), re.ASCII) and int(value) < 65536)
        return "" if is_port else filled("a whole number from {0} to {1}", 0, 65535)
    if kind == "float":
        return "a number" if isinstance(value, str) and not (is_open or is_number(value)) else ""
    choices, text = kind.replace("bool", _TRUTH).lstrip("=").split("|"), str(value)
    if kind[0] == "=":
        is_refused = bool(_LITERAL.fullmatch(text.lower())) and text.lower() not in map(str.lower, choices)
    else:
        is_refused = text not in choices and is_near(text, choices) and (kind != "bool" or text.lower() not in choices)
    return ", ".join(choices) if is_refused else ""


def is_megatron_switch(name: str) -> bool:
    """Whether it has no value in any framework. Transformers also takes ``--bf16 True``."""
    return name in option_names()["megatron_flags"] and name not in ("bf16", "fp16")


def refused_overrides(line: LaunchLine) -> Iterator[OptionProblem]:
    """Overrides of verl with numbers of hosts and devices that start no rank."""
    if not (line.is_module and line.program.startswith("verl.")):
        return
    verl = option_names()["verl"]
    for word in line.arguments:
        key, _, value = word.removeprefix("++").partition("=")
        if verl.get(key) in ("devices", "machines") and re.fullmatch(r"0+|[A-Za-z]\w{0,80}", value, re.ASCII):
            yield OptionProblem(line.program, key, value, filled("a whole number from {0}", 1))


def named_data(line: LaunchLine) -> tuple[list[str], list[str]]:
    """Paths that the program reads, and paths to which it writes, by the names of their options; at most 32 each.

    >>> named_data(LaunchLine(text="", arguments=("--data", "/d/x.bin", "--save-dir=./out", "--lr", "1/2")))
    (['/d/x.bin'], ['./out'])
    """
    arguments = Arguments(line.arguments, line.unresolved_arguments, "")
    options = {**arguments.options, **arguments.overrides}
    named = [(name.replace("_", "-"), option.value) for name, option in options.items()]
    named += [("data", word) for word in arguments.positional]
    paths = [(name, path) for name, path in named if isinstance(path, str) and "://" not in path]
    written = [(name, path) for name, path in paths if _WRITTEN.search(name)]
    results = [path for name, path in written if _IS_PATH.match(path) or _IS_FOLDER.search(name)]
    inputs = [
        path for name, path in paths if _READ.search(name) and _IS_PATH.match(path) and (name, path) not in written
    ]
    return inputs[:_MOST_PATHS], results[:_MOST_PATHS]
