from collections.abc import Callable, Iterator

from doctor import ERROR, Finding, PerHost, check, filled
from doctor.engine.fact import Unreadable
from doctor.facts.npu import NpuProduct
from doctor.job import LaunchConfig, product_family
from doctor.job.training import (
    NotDecided,
    NotGiven,
    TrainingJob,
    TrainingLaunch,
    TrainingScript,
    apply_rules,
)

A1_TYPES = ("int8", "int32", "int64", "float16", "float32")
A2_TYPES = ("int8", "int16", "int32", "int64", "float16", "float32", "bfloat16")
SYNONYMS = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "long": "int64",
    "short": "int16",
}


@check(severity=ERROR, area="training")
def launch_type_not_reduced(
    training: TrainingLaunch, launch: LaunchConfig, products: PerHost[NpuProduct] | None
) -> Iterator[Finding]:
    """HCCL can reduce every type of tensor that the program or its configuration reduces.

    ## Why it matters
    HCCL reduces int8, int16, int32, int64, float16, float32 and bfloat16; on the A1 family it reduces no int16 and no
    bfloat16. torch_npu refuses float64, bool and uint8 when the collective is called; bfloat16 on A1 fails inside HCCL.

    ## What to do
    At {where}: convert the tensor, for example to float32 or int32, before it is reduced; on A1 train with fp16.

    ## Source
    HCCL, HcclAllReduce, dataType
    (https://www.hiascend.com/document/detail/en/canncommercial/850/API/hcclapiref/hcclcpp_07_0020.html).
    """

    def family(where: str) -> str:
        try:
            return product_family(launch, products)
        except Unreadable:
            raise NotDecided(filled("bfloat16 ({0}): depends on the product; name it with --product", where)) from None

    def reductions(job: TrainingJob, script: TrainingScript) -> Iterator[Finding]:
        if not any(mark.text.endswith("hccl") for mark in script.all("init")):
            raise NotGiven("hccl")
        for mark in script.all("reduce"):
            name = SYNONYMS.get(mark.text, mark.text)
            if name in A1_TYPES:
                continue
            types: tuple[str, ...] = A2_TYPES
            if name in A2_TYPES:
                types = A1_TYPES if family(mark.where) == "A1" else A2_TYPES
            if name not in types:
                yield Finding(
                    "{where} all-reduces {type}, which HCCL does not support",
                    type=name,
                    where=mark.where,
                    observed=name,
                    expected=", ".join(types),
                )

    if launch.product == "A1" or products:
        yield from _configured(training, family)
    yield from apply_rules(training, script_rules=(reductions,))


def _configured(training: TrainingLaunch, family: Callable[[str], str]) -> Iterator[Finding]:
    """bfloat16 as the type of the whole training, on A1."""
    for job in training.jobs:
        for configuration in job.configurations:
            setting = configuration.settings.get("bf16")
            if setting is not None and setting.value is True and family(setting.where) == "A1":
                yield Finding(
                    "{where} all-reduces {type}, which HCCL does not support",
                    type="bfloat16",
                    where=setting.where,
                    observed=str(setting),
                    expected=", ".join(A1_TYPES),
                )
