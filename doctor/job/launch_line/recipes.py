"""Commands of frameworks that start torchrun or accelerate, or start ranks as torchrun does: ``tune run``.

Sources: torchtune, torchtune/_cli/run.py (all options of torchrun, before the recipe); LLaMA-Factory, cli.py and
launcher.py (NNODES, NODE_RANK, NPROC_PER_NODE, MASTER_ADDR, MASTER_PORT, RDZV_ID, MIN_NNODES, MAX_NNODES); ms-swift,
swift/cli/main.py, swift/cli/_megatron/main.py (torchrun where NPROC_PER_NODE or NNODES is set); axolotl,
src/axolotl/cli/main.py (``--launcher``, its arguments after ``--``); XTuner, entry_point.py; vLLM, config/parallel.py
and SGLang, server_args.py (``check_server_args``): each host starts its share of the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from doctor.engine.record import OptionProblem
from doctor.engine.texts import filled
from doctor.job.launch_line.call_parts import Started, known_or_open
from doctor.job.launch_line.commands import launcher_rows, option_table
from doctor.job.launch_line.launcher_calls import read_call
from doctor.job.launch_line.model import LaunchCall
from doctor.job.launch_line.options import split_options
from doctor.job.shell.word import Word, literal_words

SUBCOMMANDS = {
    "tune": ("run",),
    "llamafactory-cli": ("train",),
    "lmf": ("train",),
    "swift": ("pt", "sft", "rlhf", "dpo", "orpo", "simpo"),
    "megatron": ("pt", "sft", "rlhf"),
    "axolotl": ("train",),
    "xtuner": ("train",),
    "vllm": ("serve",),
    "sglang": ("serve",),
}
"""The words that must follow the command's name for it to train."""
VARIABLES = ("NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT")
"""The variables that LLaMA-Factory and ms-swift turn into options of torchrun."""
SERVERS = {"vllm.entrypoints.openai.api_server": "vllm", "sglang.launch_server": "sglang"}
"""Modules that are the same as ``vllm serve`` and ``sglang serve``."""
_ALIASES = dict.fromkeys(("tp", "tp-size"), "tensor-parallel-size")
_ALIASES |= dict.fromkeys(("pp", "pp-size"), "pipeline-parallel-size")
_ALIASES |= {"n": "nnodes", "r": "node-rank", "dist-init-addr": "rdzv-endpoint"}
MINDFORMERS = "msrun_launcher.sh"
_TORCHRUN, _PYTHON = Word("torchrun"), Word("python3")
_ELASTIC = ("RDZV_ID", "MIN_NNODES", "MAX_NNODES")
_OF_HOSTS = ("master_addr", "master_port", "node_rank")


def read(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> Started:
    """See `read_call`. ``command``: with its subcommand, such as ``tune run``.

    A variable of ``VARIABLES`` that only a shell can compute stands in ``environ`` with its source text behind a zero
    byte.
    """
    launcher, *started = _started_argv(command, argv, environ)
    if launcher.text in launcher_rows() and not launcher.unresolved:
        read = read_call(launcher_rows()[launcher.text], command, tuple(started), {})._replace(runs_python=True)
        ranks, nodes = _sizes(_words_by_option(argv)) if command.startswith("sglang") else (0, 0)
        if not nodes or ranks % nodes == 0:
            return read
        refused = OptionProblem(command, "--nnodes", str(nodes), filled("a number that divides the {0} ranks", ranks))
        return read._replace(call=msgspec.structs.replace(read.call, problems=(*read.call.problems, refused)))
    is_module, is_open = started[0].text == "-m", {"launcher": launcher.unresolved} if launcher.unresolved else {}
    call = LaunchCall(launcher=launcher.text if is_open else "", command=command, unresolved=is_open)
    return Started(call, tuple(started[is_module:]), runs_python=True, is_module=is_module)


def is_launcher(word: Word) -> bool:
    """Whether a word names a launcher, or a command of a framework that starts one."""
    name = word.text.rpartition("/")[2]
    return name in launcher_rows() or name in SUBCOMMANDS


def in_full(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The words with those of torchrun, accelerate or Python in the place of a framework's command.

    >>> in_full(["srun", "swift", "sft", "--model", "m"], {"NPROC_PER_NODE": "8"})
    ['srun', 'torchrun', '--nproc_per_node', '8', '-m', 'swift.cli.sft', '--model', 'm']
    """
    for place, (path, subcommand) in enumerate(pairwise(argv)):
        folder, slash, name = path.rpartition("/")
        if subcommand in SUBCOMMANDS.get(name, ()):
            launcher, *started = _started_argv(f"{name} {subcommand}", literal_words(argv[place + 2 :]), environ)
            head = [f"{folder}{slash}{launcher.text}", *["launch"][: launcher.text == "accelerate"]]
            if not any(word.unresolved for word in started):
                return [*argv[:place], *head, *(word.text for word in started)]
    return [*argv]


def _started_argv(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> tuple[Word, ...]:
    """What the command starts: torchrun, accelerate or python3, its options, and the program."""
    name = command.partition(" ")[0]
    if name == "tune":  # a recipe without an option before it is one process
        return (_TORCHRUN if argv[:1] and argv[0].text.startswith("-") else _PYTHON, *argv)
    if name == "axolotl":
        return _axolotl(command, argv)
    if name in SERVERS.values():
        return _server(name, argv)
    if name == "xtuner":
        environ = {**environ, "MASTER_ADDR": environ.get("ADDR", ""), "MASTER_PORT": environ.get("PORT", "")}
    return (_swift if name in ("swift", "megatron", "xtuner") else _llama_factory)(command, argv, environ)


def _options(environ: Mapping[str, str]) -> list[Word]:
    """The options of torchrun that the variables stand for."""
    options = [(Word(f"--{name.lower()}"), known_or_open(environ[name])) for name in VARIABLES if environ.get(name)]
    return [word for option in options for word in option]


def _server(name: str, argv: tuple[Word, ...]) -> tuple[Word, ...]:
    """One process that starts the ranks of its host; on several hosts they meet as those of torchrun do."""
    program = (Word("-m"), Word(next(module for module, of in SERVERS.items() if of == name)), *argv)
    by_option = _words_by_option(argv)
    ranks, nodes = _sizes(by_option)
    if by_option.get("nnodes", Word("1")).text == "1":
        return (_PYTHON, *program)
    if name == "vllm":
        by_option.setdefault("master-port", Word("29501"))
    options = [Word("--nproc-per-node"), Word(str(max(ranks // nodes, 1)) if ranks and nodes else "auto")]
    for option in ("nnodes", "node-rank", "rdzv-endpoint", "master-addr", "master-port"):
        options += [Word(f"--{option}"), by_option[option]] if option in by_option else []
    return (_TORCHRUN, *options, *program)


def _words_by_option(argv: tuple[Word, ...]) -> dict[str, Word]:
    """The words behind options, by the first name of each."""
    by_option: dict[str, Word] = {}
    for word, following in pairwise((*argv, Word(""))):
        option, equals, value = word.text.partition("=")
        if option.startswith("-"):
            option = option.lstrip("-").replace("_", "-")
            by_option[_ALIASES.get(option, option)] = Word(value, word.unresolved) if equals else following
    return by_option


def _sizes(by_option: Mapping[str, Word]) -> tuple[int, int]:
    """Ranks and hosts of a server; 0: not known."""
    options = ("tensor-parallel-size", "pipeline-parallel-size", "nnodes")
    sizes = [by_option.get(option, Word("1")).text for option in options]
    tensor, pipeline, nodes = (int(size) if re.fullmatch("[1-9][0-9]{0,5}", size, re.ASCII) else 0 for size in sizes)
    return tensor * pipeline, nodes


def _llama_factory(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> tuple[Word, ...]:
    """As many ranks as devices, unless NPROC_PER_NODE is set."""
    arguments = [] if environ.get("NPROC_PER_NODE") else [Word("--nproc-per-node"), Word("auto")]
    arguments += _options(environ)
    if environ.get("NNODES", "1") == "1" and not environ.get("MASTER_PORT"):  # it looks for a free port
        arguments += [Word("--standalone")]
    if any(name in environ for name in _ELASTIC):
        arguments += [Word("--nnodes"), Word("", "an elastic launch by RDZV_ID, MIN_NNODES and MAX_NNODES")]
    return (_TORCHRUN, *arguments, Word("-m"), Word("llamafactory.launcher"), *argv)


def _swift(command: str, argv: tuple[Word, ...], environ: Mapping[str, str]) -> tuple[Word, ...]:
    """One process where neither NPROC_PER_NODE nor NNODES is set."""
    name, _, subcommand = command.partition(" ")
    script = {"sft": "sft", "pt": "sft"}.get(subcommand, "rlhf")
    modules = {"megatron": f"swift.cli._megatron.{subcommand}", "xtuner": "xtuner.tools.train"}
    program = Word(modules.get(name, f"swift.cli.{script}"))
    is_single = not environ.get("NPROC_PER_NODE") and not environ.get("NNODES")
    return (*((_PYTHON,) if is_single else (_TORCHRUN, *_options(environ))), Word("-m"), program, *argv)


def mindformers(argv: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """The words of ``msrun`` that ``msrun_launcher.sh`` makes of its own; None for a number of them that it refuses.

    MindFormers, scripts/msrun_launcher.sh: the program, the number of workers, and then either port, log folder,
    ``--join`` and timeout, or also workers of this host, address and rank.
    """
    names = {
        1: (),
        2: ("worker_num",),
        6: ("worker_num", "master_port", "log_dir", "join", "cluster_time_out"),
        9: ("worker_num", "local_worker_num", *_OF_HOSTS, "log_dir", "join", "cluster_time_out"),
    }.get(len(argv))
    if names is None:
        return None
    options = dict(zip(names, argv[1:], strict=True))
    workers = options.setdefault("worker_num", Word("8"))
    options.setdefault("local_worker_num", workers)
    options.setdefault("join", Word("False"))
    return (Word("msrun"), *(_joined_option(name, word) for name, word in options.items()), argv[0])


def _joined_option(name: str, word: Word) -> Word:
    text = f"--{name}="
    pieces = (Word(text), *(word.pieces or (word,))) if word.unresolved else ()
    return Word(text + word.text, word.unresolved, pieces=pieces)


def _axolotl(command: str, argv: tuple[Word, ...]) -> tuple[Word, ...]:
    """By accelerate, unless ``--launcher`` names another one."""
    dashes = next((position for position, word in enumerate(argv) if word.text == "--"), len(argv))
    # Its options may follow the configuration, which is the first word that is none.
    options = split_options(command, argv[:dashes], option_table("axolotl"))
    behind = split_options(command, options.rest[1:], option_table("axolotl"))
    program = (Word("-m"), Word("axolotl.cli.train"), *options.rest[:1])
    launcher = options.text("launcher") or behind.text("launcher")
    if launcher == "python" or "no-accelerate" in options or "no-accelerate" in behind:
        return (_PYTHON, *program)
    if "launcher" in options.unresolved or "launcher" in behind.unresolved:
        return (Word("accelerate", "not known"), *program)
    if launcher == "torchrun":
        return (_TORCHRUN, *argv[dashes + 1 :], *program)
    ranks = options.word("num-processes") or behind.word("num-processes")
    return (Word("accelerate"), *((Word("--num_processes"), ranks) if ranks else ()), *argv[dashes + 1 :], *program)
