"""The values that variables of HCCL and torch_npu may have, where a bad one ends the program. Pure.

Sources: HCCL, ``ParseRetryParams``, ``ParserHcclAlgoLevel`` and the EI0001 messages of src/platform/common and
src/algorithm/impl (branch 8.5.0 of https://gitcode.com/cann/hcomm), docs/zh/user_guide/hccl_env of 9.1.0
(https://gitcode.com/cann/hccl); torch_npu, OptionsManager.cpp and NPUCachingAllocator.cpp (tag v7.2.0-pytorch2.6.0),
docs/zh/api/environment_variable (https://github.com/Ascend/pytorch). A value that only leaves the default in force has
no rule.
"""

from __future__ import annotations

import re

_ALGORITHMS = "null|ring|pipeline|fullmesh|H-D_R|pairwise|NHR|NHR_V1|AHC|AHC_BROKE|NB|NA"
_OPERATORS = "broadcast|allreduce|reduce|send|receive|allgather|reducescatter|alltoall|gather|scatter|sendrecv|others"
_LEVELS = rf"level[0-3]:({_ALGORITHMS})(;level[0-3]:({_ALGORITHMS}))*"
_ALGO = rf"({_LEVELS}|({_OPERATORS})={_LEVELS}(/({_OPERATORS})={_LEVELS})*)"
_RETRY = r"MaxCnt:([0-9]{1,6}),\s*HoldTime:([0-9]{1,6}),\s*IntervalTime:([0-9]{1,6})"
_TRUTHS = (
    "expandable_segments",
    "multi_stream_lazy_reclaim",
    "pin_memory_expandable_segments",
    "pinned_mem_register",
    "pinned_use_background_threads",
    "release_lock_on_npumalloc",
    "throw_on_npumalloc_oom",
)
_NUMBERS = (
    "base_addr_aligned_kb",
    "garbage_collection_threshold",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "max_split_size_mb",
    "per_process_memory_fraction",
    "pinned_max_cached_size_mb",
    "pinned_max_round_threshold_mb",
    "segment_size_mb",
)
_WORDS = ("page_size", "roundup_power2_divisions")


def algorithm(value: str, family: str) -> str:
    """What is expected of HCCL_ALGO instead of this value, or the empty string."""
    if len(value) < 4096 and re.fullmatch(_ALGO, value, re.ASCII):
        levels = [re.findall(r"level([0-3]):", part) for part in value.split("/")]
        if all(len(numbers) == len(set(numbers)) for numbers in levels):
            return ""
    return "such as level0:NA;level1:NHR, each level once, with " + ", ".join(_ALGORITHMS.split("|")[1:])


def retry(value: str, family: str) -> str:
    """What is expected of HCCL_OP_RETRY_PARAMS, or the empty string."""
    match = re.match(_RETRY, value, re.ASCII)
    count, hold, interval = map(int, match.groups()) if match else (0, 0, 0)
    right = 1 <= count <= 10 and hold <= 60_000 and interval <= 60_000
    return "" if right else "MaxCnt:1 to 10,HoldTime:0 to 60000,IntervalTime:0 to 60000, in this order"


def super_pod(value: str, family: str) -> str:
    """What is expected of HCCL_LOGIC_SUPERPOD_ID, or the empty string."""
    return "" if len(value) < 128 else "fewer than 128 characters"


def fraction(value: str, family: str) -> str:
    """A number, also one that HCCL leaves alone because it is not from 0 to 1."""
    return "" if re.fullmatch(r"-?[0-9]{0,9}(\.[0-9]{0,9})?", value, re.ASCII) and value else "a number from 0 to 1"


def allocator(value: str, family: str) -> str:
    """What is expected of PYTORCH_NPU_ALLOC_CONF, or the empty string.

    >>> allocator("expandable_segments:True", ""), allocator("expandable_segments:true", "")
    ('', 'expandable_segments:True or False')
    """
    options: dict[str, str] = {}
    for entry in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+", re.sub(r"\s", "", value[:4096])):
        name, colon, text = entry.partition(":")
        expected = _allocator_option(name, text) if colon else "options with a colon, such as expandable_segments:True"
        if expected:
            return expected
        options[name] = text
    if options.get("expandable_segments") == "True":
        other = next((name for name in ("max_split_size_mb", "garbage_collection_threshold") if name in options), "")
        if other:
            return f"expandable_segments:False beside {other}"
    return "" if options else "options such as expandable_segments:True"


def _allocator_option(name: str, text: str) -> str:
    if name not in (*_TRUTHS, *_NUMBERS, *_WORDS):
        return "only options that torch_npu has: " + ", ".join(sorted((*_TRUTHS, *_NUMBERS, *_WORDS)))
    if name in _TRUTHS:
        return "" if text in ("True", "False") else f"{name}:True or False"
    if name == "page_size":
        return "" if text == "1g" else "page_size:1g"
    if name in _NUMBERS:
        if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,9})?", text, re.ASCII):
            return f"{name} with a number"
        if name == "max_split_size_mb" and float(text) <= 20:
            return "max_split_size_mb above 20"
        if name == "garbage_collection_threshold" and not 0 < float(text) < 1:
            return "garbage_collection_threshold between 0 and 1"
        if name == "base_addr_aligned_kb" and float(text) > 16:
            return "base_addr_aligned_kb from 0 to 16"
    return ""


def debug_modules(value: str, family: str) -> str:
    """What is expected of HCCL_DEBUG_CONFIG, or the empty string."""
    word = "(alg|task|resource|aiv_ops_exc)"
    right = re.fullmatch(rf"\^?{word}(,{word})*", value.lower(), re.ASCII)
    return "" if right else "alg, task, resource, with commas and no spaces, or ^ before the first"
