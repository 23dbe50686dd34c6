"""What a Python training program does, read from its syntax tree. It is never imported or run.

The kinds of `CodeMark`:

- ``init``: a call of ``init_process_group``; its text is the backend
- ``group_timeout``: the timeout of the process group, in seconds
- ``local_rank_as_rank``: its ``rank`` is the local rank
- ``rank_by_environment``: it gets no rank, so that RANK decides; ``own_ranks``: anything that may set RANK
- ``ddp``: the model is wrapped for data parallel training
- ``fixed_device``, ``fixed_world_size``: the number that ``set_device`` and ``init_process_group`` get from the program
- ``device``: the process chooses its device: ``set_device``, or anything that uses LOCAL_RANK
- ``sampler``: a ``DistributedSampler`` that shuffles; ``sharding``: any other division of the data among ranks
- ``loader``: a ``DataLoader``
- ``set_epoch``, ``seed``: such a call; ``epochs``: a loop that may read the data more than once
- ``pipeline``: pipeline or model parallel classes of DeepSpeed
- ``reduce``: a reduction of a tensor whose type the text shows; its text is the type
- ``mode``, ``parallel_mode``, ``gradients_mean``, ``broadcast``, ``device_num``, ``stages``: MindSpore's settings
- ``dataset``: a dataset of MindSpore without ``num_shards``; ``strategy``: of ``shard``; its text are the numbers
- ``trainer``: a Trainer of Transformers or TRL, by import; ``devices``, ``machines``: the numbers that the only one of
  Lightning gets from the program
- ``scale``: a number of devices that is written as a constant and scales a batch size or a learning rate
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator

from doctor.engine.sanitize import printable
from doctor.engine.texts import filled
from doctor.job.training.data_passes import reads_repeatedly
from doctor.job.training.durations import timedelta_seconds
from doctor.job.training.model import CodeMark, TrainingScript
from doctor.job.training.tree import UnreadableFile
from doctor.job.variables import VISIBLE_DEVICES

MAX_CHARS = 1 << 20
"""Characters of a program."""
_MAX_NODES = 200_000
_MAX_NESTING = 200

_FRAMEWORK_NAMES = """
torch torch_npu torchvision torchaudio torchdata torchtext numpy transformers accelerate datasets deepspeed apex
lightning pytorch_lightning mindspore mindformers megatron mindspeed timm tqdm tokenizers peft safetensors yaml PIL
cv2 scipy sklearn pandas matplotlib tensorboard tensorboardX wandb hydra omegaconf einops sentencepiece webdataset
msgspec psutil packaging __future__
"""
_FRAMEWORKS = frozenset(_FRAMEWORK_NAMES.split())
_WITH_TRAINER, _OF_LIGHTNING = ("transformers", "trl"), {"lightning", "pytorch_lightning", "lightning_fabric"}
_REDUCTIONS = frozenset(("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor"))
_MAKERS = frozenset(("tensor", "zeros", "ones", "empty", "full", "rand", "randn", "arange", "zeros_like", "ones_like"))
_CASTS = {"double": "float64", "bool": "bool", "byte": "uint8", "short": "int16"}
_SHARDING_NAMES = """
num_replicas split_dataset_by_node split_by_node shard DistributedBatchSampler IterableDataset Subset
StatefulDistributedSampler DistributedLengthGroupedSampler batch_sampler
"""
_SHARDING = frozenset(_SHARDING_NAMES.split())
_DEVICE_NAMES = """
set_device set_compile_mode local_rank LOCAL_RANK device_ids device_id get_node_local_rank OMPI_COMM_WORLD_LOCAL_RANK
SLURM_LOCALID device_count
"""
_DEVICES = frozenset((*_DEVICE_NAMES.split(), *VISIBLE_DEVICES))
_MARKS = {
    **dict.fromkeys(("DistributedDataParallel", "DDP"), "ddp"),
    **dict.fromkeys(("set_seed", "manual_seed", "seed"), "seed"),
    "set_epoch": "set_epoch",
}
"""Calls that are a mark by their name alone, and its kind."""
_TIMED = dict.fromkeys(
    ("init_process_group", "init_distributed", "InitProcessGroupKwargs", "DDPStrategy", "FSDPStrategy"), "timeout"
) | dict.fromkeys(("TrainingArguments", "Seq2SeqTrainingArguments"), "ddp_timeout")
"""Calls of PyTorch, DeepSpeed, Accelerate, Lightning and Transformers, and the argument with the timeout."""
_COUNT_NAMES = """
world_size num_gpus n_gpus ngpus num_npus n_npus num_devices n_devices device_num rank_size num_cards n_cards gpus
npus
"""
_COUNTS = frozenset(_COUNT_NAMES.split())
_SCALED = ("lr", "learning_rate", "batch_size", "train_batch_size", "global_batch_size", "batch")


def read_python(text: str, path: str) -> TrainingScript:
    """The marks of a program. Raises: UnreadableFile."""
    if len(text) > MAX_CHARS:
        raise UnreadableFile(filled("has {0} characters; expected at most {1}", len(text), MAX_CHARS))
    require_flat(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        return _Reader(path).read(tree)
    except SyntaxError as error:
        raise UnreadableFile(filled("line {0}: {1}", error.lineno, printable(error.msg, 100))) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFile(
            filled("no usable Python: {0}", printable(str(error), 80) or "it is nested too deep")
        ) from None


def require_flat(text: str) -> None:
    """A parser of C goes as deep as its input: what no program has is refused before. Raises: UnreadableFile."""
    depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > 20_000:
            raise UnreadableFile(filled("line {0} has {1} characters; expected at most 20000", number, len(line)))
        if not line or line[0] == "#":
            continue
        depth = max(0, depth + line.count("(") + line.count("[") + line.count("{"))
        depth = max(0, depth - line.count(")") - line.count("]") - line.count("}"))
        if depth > _MAX_NESTING * 10:
            raise UnreadableFile(filled("line {0}: nested more than {1} levels deep", number, _MAX_NESTING * 10))


_OWN_RANKS = re.compile(r"(?:SLURM|OMPI|PMI|PMIX|MPI|MV2|PALS|FLUX)_\w*|RANK", re.ASCII)
"""Names of variables by which a program may give RANK itself."""
_STARTS = frozenset(("spawn", "start_processes", "elastic_launch", "launch_agent", "Process", "Popen", "run", "system"))


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.marks: list[CodeMark] = []
        self.opaque = ""
        self.has_lightning = False
        self.values: dict[str, ast.expr] = {}
        """The expression of each name that is assigned once."""
        self.assigned: dict[str, int] = {}
        self.looked_up: set[int] = set()

    def read(self, tree: ast.Module) -> TrainingScript:
        nodes: list[ast.AST] = []
        for node in ast.walk(tree):
            nodes.append(node)
            if len(nodes) > _MAX_NODES:
                raise UnreadableFile(filled("has more than {0} parts", _MAX_NODES))
        for node in nodes:
            self._learn(node)
        for node in nodes:
            if isinstance(node, ast.Call):
                self._call(node)
            elif isinstance(node, (ast.Name, ast.Attribute, ast.Constant, ast.keyword)):
                self._word(node)
            elif isinstance(node, ast.BinOp):
                self._scale(node)
        if reads_repeatedly(tree):
            self._mark("epochs", tree)
        self.marks.sort(key=lambda mark: int(mark.where.rpartition(":")[2]))
        return TrainingScript(self.path, tuple(dict.fromkeys(self.marks)), self.opaque)

    def _mark(self, kind: str, node: ast.AST, text: str = "", undecided: str = "") -> None:
        line = getattr(node, "lineno", 0)
        self.marks.append(CodeMark(kind, f"{self.path}:{line}", printable(text, 120), printable(undecided, 120)))

    def _learn(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            self._target(node.target, node.value)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.NamedExpr)):
            self._target(node.target, None)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            self.looked_up.add(id(node.slice))
        elif isinstance(node, ast.arg):
            self._assign(node.arg, None)
            if node.arg == "local_rank":
                self._mark("device", node, node.arg)
        elif isinstance(node, ast.JoinedStr) and node.values:
            first = node.values[0]
            text = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
            if text.startswith(("cuda:", "npu:")):
                self._mark("device", node, "a device by number")

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.Import):
            modules, relative = [alias.name for alias in node.names], False
        else:
            modules, relative = [node.module or "."], node.level > 0
            named = [alias.name for alias in node.names if alias.name.endswith("Trainer")]
            if modules[0].partition(".")[0] in _WITH_TRAINER and not relative and named:
                self._mark("trainer", node, named[0])
        for module in modules:
            top = module.partition(".")[0]
            self.has_lightning |= top in _OF_LIGHTNING
            if relative or (top not in _FRAMEWORKS and top not in sys.stdlib_module_names):
                self.opaque = self.opaque or printable(("." if relative else "") + module, 80)

    def _target(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._assign(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    self._assign(part.id, None)

    def _assign(self, name: str, value: ast.expr | None) -> None:
        self.assigned[name] = self.assigned.get(name, 0) + 1
        if value is None or self.assigned[name] > 1:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def _resolve(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for, where it is assigned once."""
        for _ in range(8):
            if not isinstance(node, ast.Name) or node.id not in self.values:
                break
            node = self.values[node.id]
        return node

    def _word(self, node: ast.AST) -> None:
        word = ""
        if isinstance(node, ast.Name):
            word = node.id
        elif isinstance(node, ast.Attribute):
            word = node.attr
            if word.endswith("Trainer") and _name(node.value) in _WITH_TRAINER:
                self._mark("trainer", node, word)
        elif isinstance(node, ast.keyword):
            word = node.arg or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            word = node.value.lstrip("-").replace("-", "_")
        if _OWN_RANKS.fullmatch(word) and not (word == "RANK" and id(node) in self.looked_up):
            self._mark("own_ranks", node, word)
        if word in _DEVICES or word.lower() == "local_rank":
            self._mark("device", node, word)
        elif word in _SHARDING:
            self._mark("sharding", node, word)
        elif word in ("PipelineModule", "PipeModelDataParallelTopology", "mpu", "initialize_model_parallel"):
            self._mark("pipeline", node, word)

    def _call(self, node: ast.Call) -> None:
        name = _name(node.func)
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if name in _TIMED and _TIMED[name] in keywords:
            self._timeout(node, keywords[_TIMED[name]])
        if name in _STARTS:
            self._mark("own_ranks", node, name)
        if name == "init_process_group":
            self._init(node, keywords)
        elif name == "set_device" and node.args:
            self._fixed("fixed_device", node, node.args[0])
        elif name in _MARKS:
            self._mark(_MARKS[name], node)
        elif name == "DistributedSampler":
            shuffle = keywords.get("shuffle")
            shuffles = not (isinstance(shuffle, ast.Constant) and shuffle.value is False)
            self._mark("sampler" if shuffles else "sharding", node)
        elif name == "DataLoader":
            self._mark("loader", node)
            if "sampler" in keywords:
                self._mark("sharding", node, "sampler")
        elif (name in ("cuda", "npu") and node.args) or (name == "device" and len(node.args) == 2):
            self._mark("device", node, name)
        elif name == "to" and node.args and _name(node.args[0]) in ("rank", "gpu", "dev_id"):
            self._mark("device", node, _name(node.args[0]))
        elif name in _REDUCTIONS:
            self._reduction(node, keywords)
        else:
            self._of_framework(node, name, keywords)

    def _init(self, node: ast.Call, keywords: dict[str, ast.expr]) -> None:
        backend = keywords.get("backend", node.args[0] if node.args else None)
        value = self._resolve(backend)
        text = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
        self._mark("init", node, text, "" if text or backend is None else _source(backend))
        if "world_size" in keywords:
            self._fixed("fixed_world_size", node, keywords["world_size"])
        is_whole = text not in ("", "mpi") and len(node.args) < 2 and len(keywords) == len(node.keywords)
        if is_whole and not {"rank", "world_size", "init_method", "store"} & keywords.keys():
            self._mark("rank_by_environment", node, text)
        rank = keywords.get("rank")
        if rank is not None and _is_local_rank(self._resolve(rank), rank):
            self._mark("local_rank_as_rank", node, _source(rank))

    def _lightning(self, node: ast.Call, keywords: dict[str, ast.expr]) -> None:
        """Its hosts are 1 by default. One process is none of a job, and a plugin may know another environment."""
        self._fixed("devices", node, keywords.get("devices", node))
        self._fixed("machines", node, keywords.get("num_nodes", ast.Constant(1)))
        if "plugins" in keywords:
            self._mark("devices", node)

    def _fixed(self, kind: str, node: ast.Call, written: ast.expr) -> None:
        """A number that stands in the program itself, the same for every rank and every launch."""
        value = self._resolve(written)
        if isinstance(value, ast.Constant) and type(value.value) is int:
            self._mark(kind, node, str(value.value))

    def _timeout(self, node: ast.Call, written: ast.expr) -> None:
        value = self._resolve(written)
        if isinstance(value, ast.Constant) and value.value is None:
            return
        seconds = timedelta_seconds(value, self._resolve) if value is not None else None
        self._mark("group_timeout", node, "" if seconds is None else f"{seconds:g}", _source(written))

    def _reduction(self, node: ast.Call, keywords: dict[str, ast.expr]) -> None:
        tensor = keywords.get("tensor") or keywords.get("output") or (node.args[0] if node.args else None)
        kind = _tensor_type(self._resolve(tensor))
        if kind:
            self._mark("reduce", node, kind)

    def _of_framework(self, node: ast.Call, name: str, keywords: dict[str, ast.expr]) -> None:
        if name == "set_context" and "mode" in keywords:
            self._mark("mode", node, *self._constant(keywords["mode"]))
        elif name == "set_auto_parallel_context":
            kinds = {"parameter_broadcast": "broadcast", "pipeline_stages": "stages"}
            for key in ("parallel_mode", "gradients_mean", "parameter_broadcast", "device_num", "pipeline_stages"):
                if key in keywords:
                    self._mark(kinds.get(key, key), node, *self._constant(keywords[key]))
            if any(keyword.arg is None for keyword in node.keywords):
                self._mark("settings", node, "", "keywords from a variable")
        elif name == "shard" and node.args:
            self._strategy(node)
        elif name == "Trainer" and self.has_lightning and len(keywords) == len(node.keywords):
            self._lightning(node, keywords)
        elif name.endswith("Dataset") and self._is_mindspore_dataset(node.func):
            if "num_shards" in keywords or any(keyword.arg is None for keyword in node.keywords):
                self._mark("sharding", node, "num_shards")
            else:
                self._mark("dataset", node, name)

    def _is_mindspore_dataset(self, function: ast.expr) -> bool:
        """``ds.MnistDataset``, with ``ds`` as ``mindspore.dataset`` is usually called."""
        return isinstance(function, ast.Attribute) and _name(function.value) in ("ds", "dataset", "de", "msds")

    def _constant(self, node: ast.expr) -> tuple[str, str]:
        """Value and, where it has none, source text."""
        value = self._resolve(node)
        if isinstance(value, ast.Constant) and isinstance(value.value, (str, int, float)):
            return str(value.value), ""
        if isinstance(value, ast.Attribute) and value.attr.isupper():
            return value.attr, ""
        return "", _source(node)

    def _strategy(self, node: ast.Call) -> None:
        try:
            value = ast.literal_eval(node.args[0])
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return
        numbers = list(_numbers(value))
        if isinstance(value, tuple) and numbers:
            self._mark("strategy", node, " ".join(map(str, numbers)))

    def _scale(self, node: ast.BinOp) -> None:
        """``lr * num_gpus`` and ``batch_size // world_size`` with a constant count."""
        if not isinstance(node.op, (ast.Mult, ast.FloorDiv, ast.Div)):
            return
        for count, scaled in ((node.right, node.left), (node.left, node.right)):
            if not (isinstance(count, ast.Name) and count.id.lower() in _COUNTS):
                continue
            value = self._resolve(count)
            other = _name(scaled).lower()
            if (
                any(other == word or other.endswith("_" + word) for word in _SCALED)
                and (number := _count(value))
                and value
            ):
                self._mark("scale", value, f"{count.id} {number}")


def _count(node: ast.expr | None) -> int:
    """A constant number of devices above 1; else 0."""
    number = node.value if isinstance(node, ast.Constant) else 0
    return number if isinstance(number, int) and not isinstance(number, bool) and number > 1 else 0


def _numbers(value: object, depth: int = 0) -> Iterator[int]:
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, tuple) and depth < 4:
        for part in value:
            yield from _numbers(part, depth + 1)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_local_rank(value: ast.expr | None, written: ast.expr) -> bool:
    """``local_rank``, ``args.local_rank``, ``int(os.environ["LOCAL_RANK"])``; not ``rank * n + local_rank``."""
    for node in (written, value):
        if node is not None and _name(node).lower() == "local_rank":
            return True
    if isinstance(value, ast.Call) and _name(value.func) == "int" and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Constant) and value.slice.value == "LOCAL_RANK"
    if isinstance(value, ast.Call) and _name(value.func) in ("getenv", "get") and value.args:
        return isinstance(value.args[0], ast.Constant) and value.args[0].value == "LOCAL_RANK"
    return False


def _tensor_type(node: ast.expr | None) -> str:
    """The type of a tensor that is made in the expression; empty where the text does not show it."""
    for _ in range(8):
        if not isinstance(node, ast.Call):
            return ""
        function = node.func
        name = _name(function)
        for keyword in node.keywords:
            if keyword.arg == "dtype":
                return _name(keyword.value)
        if name in _CASTS:
            return _CASTS[name]
        if name == "to" and node.args and isinstance(node.args[0], ast.Attribute):
            return _name(node.args[0]) if _name(node.args[0].value) == "torch" else ""
        if name in _MAKERS or not isinstance(function, ast.Attribute):
            return ""
        node = function.value
    return ""


def _source(node: ast.expr) -> str:
    try:
        return printable(ast.unparse(node), 120)
    except (RecursionError, ValueError):
        return "an expression"
