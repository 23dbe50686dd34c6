"""What to do about exceptions that no signature knows: by their type, and by whose code returned an error."""

from __future__ import annotations

import pytest

from doctor.diagnose.exception_actions import _rows
from tests.diagnose.test_actions import kind
from tests.diagnose.test_rules import logs

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


def test_a_type_stands_in_one_row() -> None:
    types = [name for row in _rows() for name in row.types]
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
    assert cause.signature in ("program-failed", "python-exception"), cause.signature


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
