"""What libraries say of a program that does not fit them: judged where it ends a run, and not where it was handled."""

from __future__ import annotations

import pytest

from doctor.diagnose.signature import FOLDER, load_signatures
from tests.diagnose.test_rules import logs

ROWS = [
    (signature.id, sample.text)
    for signature in load_signatures().values()
    for sample in signature.samples
    if f'id = "{signature.id}"' in FOLDER.joinpath("libraries.toml").read_text("utf-8")
]
STEPS = "".join(f"[rank3]: step {step} loss 2.{step}\n" for step in range(10, 60))
HEADS = ("", "WARNING:train:skipped a sample: ", "2026-11-20 12:00:00,123 INFO retry: ", "  warnings.warn('")
TRACEBACK = """[rank3]: Traceback (most recent call last):
[rank3]:   File "/srv/train.py", line 10, in main
[rank3]:     step()
"""


@pytest.mark.parametrize(("name", "text"), ROWS, ids=[name for name, _ in ROWS])
def test_a_library_row_is_named_with_its_rank_where_it_ends_the_run(name: str, text: str) -> None:
    end = "" if text.startswith("[rank") else "[rank3]: "
    rank = int(text[5]) if not end else 3
    traceback = TRACEBACK.replace("[rank3]", f"[rank{rank}]")
    causes = logs(train=STEPS + traceback + end + text + "\n").causes
    assert [(cause.signature, [end.rank for end in cause.culprits]) for cause in causes] == [(name, [rank])]


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("name", "text"), ROWS, ids=[name for name, _ in ROWS])
def test_a_library_row_behind_which_the_run_goes_on_is_no_certain_cause(name: str, text: str, head: str) -> None:
    for cause in logs(train=STEPS + head + text + "\n" + STEPS + "Training completed\n").causes:
        assert cause.confidence == "possible", cause.summary


@pytest.mark.parametrize(
    ("condition", "name"),
    [
        ("args.batch_size % len(devices) == 0", "batch-not-divisible"),
        ("config.num_attention_heads % tp_size == 0", "parallel-size-not-divisible"),
        ("len(set(t.dtype for t in tensors)) == 1", "tensor-types-differ"),
        ("loss > 0", "exception-of-size"),
    ],
)
def test_a_bare_assertion_is_judged_by_its_condition(condition: str, name: str) -> None:
    lines = TRACEBACK.replace("[rank3]: ", "").replace("step()", f"assert {condition}")
    (cause,) = logs(train=f"{lines}AssertionError\n").causes
    assert cause.signature == name and f"assert {condition}" in cause.summary
