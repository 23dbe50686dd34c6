"""Files that want to exhaust the reader, and the command's exit codes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.engine.errors import InputError
from doctor.job.training.configurations import Arguments, of_arguments
from doctor.job.training.python_code import read_python
from doctor.job.training.python_config import read_python_config
from doctor.job.training.tree import UnreadableFile, read_json, read_toml, read_yaml
from doctor.session.training_files import read_training
from tests import preloaded
from tests.lint.configurations import megatron

ALIASES = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{','.join([f'*a{n}'] * 9)}]\n" for n in range(12))
MERGES = "a0: &a0 {k: v}\n" + "".join(f"a{n + 1}: &a{n + 1}\n  <<: [{','.join([f'*a{n}'] * 9)}]\n" for n in range(12))


@pytest.mark.parametrize(
    "text",
    [ALIASES, MERGES, "a: &a [*a]\n", "a: &a\n  <<: *a\n", "a: " + "{b: " * 5000, "a: \0", "a: [1\nb: 2"],
    ids=["aliases", "merges", "cycle", "cycle of merges", "deep", "NUL", "syntax"],
)
def test_yaml_that_is_refused(text: str) -> None:
    with pytest.raises(UnreadableFile):
        read_yaml(text)


def test_yaml_makes_no_objects() -> None:
    leaf = read_yaml("a: !!python/object/apply:os.system ['id']\nb: !env HOME\n").leaves["b"]
    assert leaf.value is None and leaf.undecided == "!env HOME"


@pytest.mark.parametrize("text", ["[" * 100000, '{"a":' * 50000, "[1]", '{"a": 1', ""])
def test_json_that_is_refused(text: str) -> None:
    with pytest.raises(UnreadableFile):
        read_json(text)


def test_json_with_many_repeated_keys_takes_linear_time() -> None:
    text = "{" + ",".join(f'"a{n}":1,"a{n}":2' for n in range(15000)) + "}"
    assert len(read_json(text).leaves) == 15000


@pytest.mark.parametrize(
    "text",
    [
        "x=" + "-" * 9000 + "1",
        "x=a" + ".b" * 9000,
        "x=" + "(" * 1500,
        "def f(:",
        "x=1\0",
        "x=(1\n" + "+1\n" * 20000 + ")",
    ],
    ids=["unary", "attributes", "parentheses", "syntax", "NUL", "sum"],
)
def test_python_that_is_refused(text: str) -> None:
    with pytest.raises(UnreadableFile):
        read_python(text, "a.py")


def test_files_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "large.sh").write_bytes(b"#" * (10 << 20))
    (tmp_path / "binary.sh").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.sh").write_text("")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    for name, reason in {
        "pipe.sh": "is not a regular file",
        "large.sh": "is larger than 1 MiB",
        "binary.sh": "is not UTF-8 text",
        "empty.sh": "starts no training",
        "other.yaml": "no setting of a known framework",
        "absent.sh": "No such file",
    }.items():
        with pytest.raises(InputError, match=reason) as caught:
            read_training([str(tmp_path / name)], [], {})
        assert name in str(caught.value) and str(caught.value).isprintable()


def lint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-m", "doctor", "lint", *arguments]
    return preloaded.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=110)


def test_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "sound.sh").write_text(megatron())
    (tmp_path / "broken.sh").write_text(megatron({"num-layers": 31}))
    assert lint(tmp_path, "sound.sh").returncode == 0
    done = lint(tmp_path, "broken.sh", "--json", "--save", "run.json")
    report = json.loads(done.stdout)
    failed = [outcome for outcome in report["outcomes"] if outcome["status"] == "failed"]
    assert done.returncode == 10 and [outcome["check"] for outcome in failed] == ["launch-model-not-divisible"]
    assert failed[0]["findings"][0]["values"]["where"] == "broken.sh:6"
    assert lint(tmp_path, "--from", "run.json").returncode == 10
    assert lint(tmp_path, "absent.sh").returncode == 78
    done = lint(tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_the_words_after_two_dashes_are_a_launch_line(tmp_path: Path) -> None:
    program = ["train.py", "--micro-batch-size", "1", "--tensor-model-parallel-size", "3"]
    launch = ["torchrun", "--nnodes", "$N", "--nproc-per-node", "8", *program]
    done = lint(tmp_path, "--nodes", "2", "--", *launch)
    assert done.returncode == 10 and "do not fit 16 ranks" in done.stdout


def test_a_switch_takes_no_unresolved_word_as_its_value() -> None:
    arguments = Arguments(("--sequence-parallel", "$MORE", "--bf16", "$BF"), frozenset((1, 3)), "run.sh:1")
    assert arguments.options["sequence-parallel"].value is True
    assert arguments.options["bf16"].value is None
    assert arguments.incomplete == "$MORE"


def test_a_pattern_of_layers_replaces_their_division_by_stages() -> None:
    options = ("--num-layers", "10", "--pipeline-model-parallel-size", "4", "--hybrid-layer-pattern", "M*M-M*M-M*")
    [configuration] = of_arguments(Arguments(options, frozenset(), "run.sh:1"))
    assert "uneven_layers" in configuration.settings


def test_files_that_hold_no_training_are_left_out_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "hello.sh").write_text("#!/bin/sh\necho hello\n")
    (tmp_path / "other.yaml").write_text("a: 1\n")
    (tmp_path / "cut.json").write_text('{"a": ')
    (tmp_path / "broken.sh").write_text(megatron({"num-layers": 31}))
    assert lint(tmp_path, "hello.sh").returncode == 78
    done = lint(tmp_path, "--on-unknown", "ok", "hello.sh", "other.yaml")
    assert done.returncode == 0 and "NOTHING" in done.stdout and "HEALTHY" not in done.stdout
    assert [line.rpartition(": ")[2] for line in done.stderr.splitlines()] == ["left out"] * 2
    assert lint(tmp_path, "--on-unknown", "ok", "hello.sh", "broken.sh").returncode == 10
    assert lint(tmp_path, "--on-unknown", "ok", "hello.sh", "cut.json").returncode == 78


PYTHON_BOMBS = {
    "empty dictionaries": "a0 = dict()\n"
    + "".join(f"a{n + 1} = dict({', '.join(f'k{m}=a{n}' for m in range(9))})\n" for n in range(12)),
    "powers": "a = 2\n" + "a = a * a\n" * 4000,
    "deep": "a = " + "dict(x=" * 300 + "1" + ")" * 300,
}


@pytest.mark.parametrize("text", PYTHON_BOMBS.values(), ids=PYTHON_BOMBS)
def test_a_python_configuration_is_bounded(text: str) -> None:
    text += "\nmodel = dict(x=1)\ndata = dict(x=1)\nparallel = dict(tensor=a12 if 0 else 1)\n"
    with contextlib.suppress(UnreadableFile):
        read_python_config(text)


def test_a_python_configuration_is_not_run_and_not_guessed() -> None:
    text = """import os
TP = 2
SIZES = dict(tensor=dict(size=TP * 4, mode="isp"), pipeline=dict(size=int(os.environ["PP"])))
model = dict(num_layers=32)
data = dict(micro_num=4)
parallel = SIZES
if TP > 1:
    model = dict(num_layers=30)
data["micro_num"] = 8
"""
    assert read_python_config(text) is None  # model and data are not known any more
    tree = read_python_config(text.replace("if TP", "other = 1\nif TP").split("if TP")[0])
    assert tree
    assert tree.leaves["parallel.tensor.size"].value == 8
    assert tree.leaves["parallel.pipeline.size"].value is None
    assert "environ" in tree.leaves["parallel.pipeline.size"].undecided


def test_toml() -> None:
    leaf = read_toml("[a]\nx = 1\n[parallelism]\n  tensor_parallel_degree = 8 # all\n").leaves
    assert (leaf["parallelism.tensor_parallel_degree"].value, leaf["parallelism.tensor_parallel_degree"].line) == (8, 4)
    for text in ("a = ", "[a", "a = 1\na = 2\n", "a = \0"):
        with pytest.raises(UnreadableFile):
            read_toml(text)
