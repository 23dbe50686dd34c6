from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, check
from doctor.facts.smoke.training import SmokeTraining
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.analyze import findings


@check(severity=ERROR, area="smoke")
def smoke_shards_wrong(run: SmokeRun, training: PerHost[SmokeTraining]) -> Iterator[Finding]:
    """Every rank reads its own share of the data: each block once, none left out.

    ## Why it matters
    A share that is read twice counts double, one that no rank reads is never learned from, and shares that overlap make
    the batch smaller than intended. Ranks of one model that read different rows compute nonsense together. The loss may
    fall all the same.

    ## What to do
    In the folder of the program, `grep -rnE 'Sampler|set_epoch|DataLoader' --include='*.py' .` finds its loaders; look
    at {who} first.

    - Seed: where the states of `random`, `numpy` or `torch` differ, too, seed all of them alike on the ranks of one
      model, before the loader is made: `random.seed(seed); numpy.random.seed(seed); torch.manual_seed(seed)`.
    - Epoch: at the start of each epoch every rank calls `sampler.set_epoch(epoch)`, with the same number.
    - Divisor: give each rank's loader `sampler=DistributedSampler(dataset, num_replicas={usual}, rank=dp_rank)`. A
      loader without a sampler reads all of the data.
    - Share: ranks of one model read the same rows. The sampler's `rank=` is to be their data-parallel index, and what
      stands behind the loader changes the rows on all of these ranks alike.
    - Shards: `DistributedSampler(num_replicas=dp_size, rank=dp_rank)` takes the data-parallel size and index, not the
      world's size and the rank. If rows are left out at the end of an epoch, use `drop_last=True` everywhere or
      nowhere.

    ## Source
    In the smoke run the rows of a step come in numbered blocks; every rank reports the numbers that it read and the
    digests of their tokens, which are compared with the shares of its data-parallel index and with the reference run's
    data.
    """
    yield from findings("smoke-shards-wrong", run, training)
