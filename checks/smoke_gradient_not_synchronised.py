from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_gradient_not_synchronised(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    r"""After its reduction the gradient is the same on every data-parallel rank, bit for bit.

    ## Why it matters
    Without the reduction every rank trains a model of its own on its own share of the data, and the loss falls on each.
    If only one rank has another sum, its copy of the model diverges from this step on. If one adds a wrong gradient,
    all hold the same wrong sum, and no comparison among them shows it.

    ## What to do
    - Not reduced: on {who} the reduction did not run, or its result was overwritten. `grep -rnE
      'no_sync|all_reduce|\.grad\b' --include='*.py' .` in the folder of the program finds the places: `no_sync()` left
      on, `backward` on the module under the wrapper, a gradient that is set again after the reduction.
    - Scale, or Type: `grep -rnE 'backward|autocast|bfloat16' --include='*.py' .` shows how losses are scaled and which
      precision is chosen: give {who} those of the other ranks, or its gradients count for more or less.
    - Not set to zero: `grep -rn 'zero_grad' --include='*.py' .`: each rank calls it once for each update, also where a
      batch is left out.
    - Another sum, or wrong before its reduction: the transfer or the device of {who} corrupts numbers: compare with
      smoke-collective-wrong and smoke-device-wrong, and look for memory and link errors on {host}.

    ## Source
    Every rank reports the norm of its gradient before the reduction, norm and digest after it, and how far it is from
    the reference run's gradient, which every rank has computed alone: so the wrong ranks are known even where they are
    the majority. An all-reduce gives all members the same bits; where the reference run was shorter than the training,
    hosts that differ from most others are named, and both sides of two. Ranks that hold a wrong sum compute their own
    part of it again, alone: so who added what is wrong is known, too. A sum that one rank alone has otherwise may have
    changed on its way there: who sends it (with gloo the next rank of the ring, else any of the group) is named beside
    it, unless it gave what it has otherwise on, and the next one has it right, or was so in so many steps that another
    sender's fault, which the others pass on, would look like that in 5 % (1 of n - 1 steps, of n ranks). Of a sharded
    optimizer (ZeRO-1) each rank keeps what it had in hand in the first 64 steps, so that who made the first wrong
    number is named, and not who holds it; of all steps it makes the updates again, bit for bit. This verdict can be
    wrong for an error below 1e-4 of the gradient's norm on most hosts.
    """
    yield from findings("smoke-gradient-not-synchronised", run, training)
