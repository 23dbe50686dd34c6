from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.smoke.further_stages import SmokeLoader
from doctor.smoke.model import SmokeRun
from doctor.smoke.numerics.loader_seeds import loader_findings


@check(severity=ERROR, area="smoke")
def smoke_loader_seed_differs(run: SmokeRun, loaders: PerHost[SmokeLoader]) -> Iterator[Finding]:
    """Loader workers draw the same numbers inside one model, and different ones for other data.

    ## Why it matters
    Masks and augmentations are drawn in the workers of the data loader, each with generators of its own. Ranks that
    hold one model and whose workers draw differently train on different rows unnoticed; data-parallel ranks whose
    workers draw alike repeat each other.

    ## What to do
    Give the loader a generator that is seeded by the data-parallel index: `DataLoader(...,
    generator=torch.Generator().manual_seed(seed + dp_rank), worker_init_fn=...)`, and seed `random` and `numpy.random`
    in `worker_init_fn` from `torch.initial_seed()`. torch seeds only its own generator (and since 2.x random's),
    NumPy's is the parent's copy in every worker.
    Check first: {generators}.

    ## Source
    In the smoke run a loader with two workers is seeded by the data-parallel index on every rank, and what the workers
    draw from each generator is reported as a digest. PyTorch, notes on randomness in multi-process data loading.
    """
    loaded = {event.rank: event for fact in loaders.values() for event in fact.loaded}
    if len(loaded) < 2:
        raise Skip("only one data loader: nothing to compare")
    yield from loader_findings(run.plan, loaded)
