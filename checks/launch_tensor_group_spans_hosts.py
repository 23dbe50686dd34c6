from collections.abc import Iterator

from doctor import WARNING, Finding, check, filled
from doctor.job.training import NotGiven, TrainingLaunch, View, apply_rules


@check(severity=WARNING, area="training")
def launch_tensor_group_spans_hosts(training: TrainingLaunch) -> Iterator[Finding]:
    """A group of tensor parallel ranks lies within one host.

    ## Why it matters
    Tensor parallelism exchanges activations in every layer, forward and backward. Between hosts that goes over the
    network, which is many times slower than the links of a host. Groups that do not divide a host's ranks are also
    laid across two hosts. Super pods of the A3 family connect hosts by the same links: there a larger group may be
    meant; waive this check then.

    ## What to do
    Change {where}: a tensor parallel size that divides the ranks of one host; use the pipeline or context parallelism
    for the rest.

    ## Source
    Megatron-LM, "Efficient Large-Scale Language Model Training on GPU Clusters" (https://arxiv.org/abs/2104.04473),
    section 3; MindFormers, "Distributed Parallelism Training", model_parallel
    (https://www.mindspore.cn/mindformers/docs/en/master/feature/parallel_training.html).
    """
    yield from apply_rules(training, _within_host, frameworks=("megatron", "nemo", "mindformers", "accelerate"))


def _within_host(view: View) -> Iterator[Finding]:
    tensor = view.number("tensor")
    if tensor == 1:
        return
    if view.framework == "mindformers" and view.has("use_parallel") and not view.flag("use_parallel"):
        raise NotGiven("tensor")
    if view.has("nodes") and view.need("nodes").value == 1:
        return
    if view.number("world_size") % tensor:
        raise NotGiven("tensor")  # another check's finding
    ranks = view.number("ranks_per_node")
    if ranks % tensor:
        yield Finding(
            "a group of {tensor} tensor parallel ranks at {where} spans hosts",
            tensor=tensor,
            where=view.place("tensor"),
            observed=view.listed("tensor"),
            expected=filled("a divisor of {0}, from {1}", ranks, view.listed("ranks_per_node")),
        )
