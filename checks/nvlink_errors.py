from collections.abc import Iterator

from doctor import WARNING, Finding, check
from doctor.facts.nvlink import NVLINK_COUNTERS, NvLinkErrors

LIMITS = {name.removesuffix(" Errors"): limit for name, limit in NVLINK_COUNTERS.items()}


@check(severity=WARNING, area="links")
def nvlink_errors(counters: NvLinkErrors) -> Iterator[Finding]:
    """No NVLink has many errors since the driver was loaded.

    ## Why it matters
    Each error is sent again and makes the link slower; a link with many fails in time (Xid 74), and the job with it.

    ## What to do
    On {host}: `nvidia-smi nvlink -e -i {gpu}`, once before and once after a job. Where the counts rise, drain the
    host and have the GPU or its baseboard reseated or replaced. `nvidia-smi nvlink -re -i {gpu}` sets them to zero.
    For the vendor: `nvidia-smi -q -i {gpu} | grep -i serial` and `nvidia-bug-report.sh`.

    ## Source
    `nvidia-smi nvlink -e`. A recovery is one too many (facebookresearch/gcm and DCGM allow none). Of replays and CRC
    errors 100 are allowed, DCGM's limit for CRC errors of a day (DCGM_LIMIT_MAX_NVLINK_CRC_ERROR): single ones are
    normal on a sound link. Of the counters of Blackwell GPUs (NVLink 5) none is allowed: they count what error
    correction could not repair, and on sound links they are zero (AWS p6-b300, driver 595); corrected errors (FEC, raw
    rates) are no finding. The counts stay until the driver is loaded again: what they count may be long ago.
    """
    for gpu, links in counters.by_gpu.items():
        bad = {
            link: {kind: count for kind, count in counts.items() if count >= LIMITS[kind]}
            for link, counts in links.items()
        }
        bad = {link: kinds for link, kinds in bad.items() if kinds}
        if bad:
            yield Finding(
                "GPU {gpu} has NVLink errors on links {links}: {observed}",
                gpu=gpu,
                links=sorted(bad),
                observed={str(link): kinds for link, kinds in sorted(bad.items())},
            )
