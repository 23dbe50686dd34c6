from collections.abc import Iterator

from doctor import WARNING, Finding, Skip, check
from doctor.facts.container import JobContainer


@check(severity=WARNING, area="devices")
def container_user_unnamed(container: JobContainer) -> Iterator[Finding]:
    """The user of the job's container has a name.

    ## Why it matters
    torch.compile asks for the user's name and ends with "KeyError: 'getpwuid(): uid not found: 1000'". HCCL between two
    NPUs of a host fails as well, while a job with a single NPU runs.

    ## What to do
    Give the number a name in the image of {host}: `useradd -u {uid} -m worker`; or mount a /etc/passwd that has it; or,
    without changing the image, set `USER=worker` and `TORCHINDUCTOR_CACHE_DIR` for torch.

    ## Source
    vllm-ascend issue 9490 (HCCL with two NPUs, user 1000 of a Kubernetes security context); Python, `getpass.getuser`:
    the variables LOGNAME, USER, LNAME and USERNAME, then the password database.
    """
    if not container.engine:
        raise Skip("the job does not run in a container")
    if not container.named_user:
        yield Finding(
            "the user {uid} has no entry in /etc/passwd",
            uid=container.uid,
            observed="no entry",
            expected="a name",
        )
