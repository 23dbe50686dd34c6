"""What to do about exceptions that no signature knows: by their type, and by whose code returned an error."""

from __future__ import annotations

import pytest

from doctor.diagnose.exception_actions import _table, kind_of
from doctor.diagnose.excerpter.excerpt import LogReader
from doctor.diagnose.excerpter.line_choice import ShapeIndex
from doctor.diagnose.excerpter.tracebacks import TRACEBACK_HEAD
from tests.diagnose.test_actions import kind
from tests.diagnose.test_rules import SIGNATURES, logs

TRACEBACK = 'Traceback (most recent call last):\n  File "/srv/train.py", line 10, in <module>\n    main()\n'


@pytest.mark.parametrize(
    ("exception", "action"),
    [
        ("KeyError: 'labels'", "fix-program"),
        ("AssertionError", "fix-program"),
        ("RuntimeError: The size of tensor a (4) must match the size of tensor b (8)", "fix-program"),
        ("torch._dynamo.exc.Unsupported: call_function BuiltinVariable(print)", "fix-program"),
        ("einops.EinopsError: Error while processing rearrange-reduction pattern", "fix-program"),
        ("omegaconf.errors.ConfigKeyError: Key 'lr' is not in struct", "fix-settings"),
        ("PermissionError: [Errno 13] Permission denied: '/data/cache'", "fix-settings"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'train.bin'", "fix-settings"),
        ("pkg_resources.DistributionNotFound: The 'apex' distribution was not found", "fix-settings"),
        ("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB", "give-memory"),
        ("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer", "examine"),
        ("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", "examine"),
        ("botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL", "examine"),
        ("requests.exceptions.ChunkedEncodingError: Response ended prematurely", "examine"),
        ("OSError: [Errno 71] Protocol error: '/dev/davinci0'", "examine"),
        ("cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorInvalidValue: invalid argument", "examine"),
        ("RuntimeError: synNodeCreateWithId failed for node: gemm with synStatus 26 [Generic failure]", "examine"),
        ("RuntimeError: oneCCL: exec.cpp:134 start_workers: EXCEPTION: failed to start worker # 0", "examine"),
        ("RuntimeError: level_zero backend failed with error: 45 (UR_RESULT_ERROR_INVALID_ARGUMENT)", "examine"),
        ("RuntimeError: MIOPEN failure 7: miopenStatusUnknownError, error: MIOPEN_STATUS_UNKNOWN_ERROR_X", "examine"),
        ("h5py._hl.base.H5Error: read failed (file read failed: errno = 5)", "examine"),
    ],
)
def test_only_faults_of_the_program_send_its_author_to_it(exception: str, action: str) -> None:
    assert kind(logs(train=f"step 1\n{TRACEBACK}{exception}\n")) == action


def test_calls_without_end_are_a_kind_of_their_own_wherever_they_stand() -> None:
    """Also below frames of the data or of the optimizer."""
    frame = '  File "/srv/model.py", line 7, in __getattr__\n    return getattr(self.module, name)\n'
    loading = '  File "/opt/lib/python3.10/site-packages/torch/utils/data/dataloader.py", line 7, in __next__\n'
    repeated = "  [Previous line repeated 993 more times]\n"
    text = f"{TRACEBACK}{loading}{frame * 3}{repeated}RecursionError: maximum recursion depth exceeded\n"
    (cause,) = logs(train=text).causes
    assert cause.signature == "exception-of-recursion" and "model.py:7" in cause.summary


def test_a_type_stands_in_one_row() -> None:
    types = [name for row in _table().row for name in row.types]
    assert len(types) == len(set(types))


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: loss scale error: 3 samples of the batch are not finite",
        "RuntimeError: Expected all samples to be of the same kind, but found at least two kinds",
        "ValueError: HTTP_ERROR is no member of Status",
    ],
)
def test_words_of_a_program_are_no_code_of_a_library(message: str) -> None:
    (cause,) = logs(train=TRACEBACK + message + "\n").causes
    assert cause.signature in ("program-failed", "python-exception", "exception-of-mismatch"), cause.signature


@pytest.mark.parametrize("line", ["test error: 0.02", "eval finished with code 7 of 9 tasks", "Exceptions handled: 3"])
def test_a_log_that_ends_with_such_words_is_no_failure(line: str) -> None:
    assert not logs(train=f"step 1 loss 2.0\n{line}\n").failed


@pytest.mark.parametrize(
    ("exception", "confidence"),
    [
        ("KeyError: 'labels'", "certain"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'train.bin'", "certain"),
        ("wandb.errors.CommError: Run initialization has timed out after 90.0 sec.", "likely"),
        ("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://h", "likely"),
        ("OSError: [Errno 71] Protocol error: '/dev/davinci0'", "likely"),
        ("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer", "likely"),
    ],
)
def test_an_exception_over_what_is_not_of_the_process_is_no_certain_fault_of_it(
    exception: str, confidence: str
) -> None:
    (cause,) = logs(rank0=TRACEBACK + exception + "\n").causes
    assert cause.confidence == confidence


def test_an_exception_of_a_launcher_over_its_processes_is_not_its_own() -> None:
    text = "RuntimeError: Launcher detected that one or more processes exited with non-zero status\n"
    assert not logs(run=TRACEBACK + text).causes


HEAD = 'Traceback (most recent call last):\n  File "train.py", line 9, in main\n    run()\n'
LIBRARY = '  File "/opt/lib/python3.11/site-packages/{0}", line 7, in {1}\n    call()\n'


@pytest.mark.parametrize(
    ("path", "function", "message", "signature"),
    [
        ("torch/utils/data/dataloader.py", "__next__", "oops", "exception-in-data"),
        ("torch/nn/modules/module.py", "_call_impl", "oops", "exception-in-forward"),
        ("transformers/modeling_utils.py", "from_pretrained", "oops", "exception-in-weights"),
        ("torch/distributed/distributed_c10d.py", "all_reduce", "oops", "exception-in-collective"),
        ("torch/nn/modules/module.py", "_call_impl", "dtype float8 is not supported", "exception-of-support"),
        ("transformers/modeling_utils.py", "from_pretrained", "no 'lm_head' found", "exception-in-weights"),
        ("x/y.py", "z", "Caught KeyError in DataLoader worker process 3.", "exception-in-data"),
        ("x/y.py", "next", "DataLoader timed out after 3 seconds", "exception-in-data"),
        ("safetensors/torch.py", "_flatten", "Some tensors share memory", "exception-in-saving"),
        ("x/y.py", "save_stable_diffusion_checkpoint", "oops", "exception-in-saving"),
        ("x/y.py", "z", "loss log variables are different across GPUs!", "exception-of-mismatch"),
        ("os.py", "__getitem__", "'DATA_DIR' is missing", "exception-in-settings"),
        ("x/y.py", "z", "no 'lm_head' found", "exception-of-absence"),
        ("torch/nn/modules/module.py", "_call_impl", "the wait for the server timed out", "program-failed"),
        ("x/y.py", "z", "oops", "program-failed"),
    ],
)
def test_an_exception_that_no_signature_knows_is_described_by_its_message_or_its_stage(
    path: str, function: str, message: str, signature: str
) -> None:
    text = f"{HEAD}{LIBRARY.format(path, function)}RuntimeError: {message}\n"
    (cause,) = logs(train=text).causes
    assert cause.signature == signature and message in cause.summary
    assert SIGNATURES[signature].title in cause.summary


def test_ranks_whose_tracebacks_show_several_stages_have_one_exception_of_unknown_kind() -> None:
    ranks = {
        f"rank_{rank}": HEAD + LIBRARY.format(path, "_call_impl") + "RuntimeError: oops\n"
        for rank, path in enumerate(("torch/nn/modules/module.py", "torch/utils/data/dataloader.py"))
    }
    (cause,) = logs(**ranks).causes
    assert cause.signature == "program-failed" and sorted(end.rank or 0 for end in cause.culprits) == [0, 1]


def test_a_wait_that_failed_is_no_number_out_of_its_range() -> None:
    assert kind_of("RuntimeError", "Deadline exceeded: Failed to connect to remote server") == ""


def test_an_excerpt_keeps_the_message_that_stands_below_its_exception() -> None:
    text = (
        f"{HEAD}x.ValidationError: 1 validation error for M\n  Value error, no such model [type=value_error]\n"
        "step 4\nstep 5\nstep 6\n"
    )
    literal = TRACEBACK_HEAD.encode()
    reader = LogReader(ShapeIndex([([literal], literal)]), 1 << 16)  # type: ignore[no-untyped-call]
    reader.start("a.log", 0, 0, 0)  # type: ignore[no-untyped-call]
    reader.edge_lines = 0
    reader.read_blocks(iter([text.encode()]))  # type: ignore[no-untyped-call]
    kept = [line for _, line in reader.report()["kept"]]  # type: ignore[no-untyped-call]
    assert "  Value error, no such model [type=value_error]" in kept and "step 6" not in kept
