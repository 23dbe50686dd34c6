import posixpath
from collections import Counter
from collections.abc import Iterator

from doctor import ERROR, Finding, PerHost, Skip, check
from doctor.facts.job_paths import JobPaths, JobProgram, PathState

NOTHING_THERE = "not there"
OF_THE_KERNEL = ("/proc/", "/sys/")
"""Folders whose files rsync cannot write: it makes a file beside the old one, and the kernel allows none."""


@check(severity=ERROR, area="versions")
def job_path_differs(paths: PerHost[JobPaths] | None, programs: PerHost[JobProgram] | None) -> Iterator[Finding]:
    """The program of the launch line, and the files and folders named with --path, are the same on every host.

    ## Why it matters
    A rank whose data, code, tokenizer or configuration is another one fails at start, or trains on something else: the
    loss is wrong and no message says so.

    ## What to do
    - Files: on {host}, copy it from a host that has the right one: `rsync -a {holder}:{source} {source}`; on a shared
      file system, check that it is mounted from the same server (`findmnt -T {path}`).
    - Kernel: it is a value of the kernel of {host}, and no file to copy. `findmnt -n -o TARGET {path}` prints something
      where another file is mounted over it: `umount {path}`. Where it prints nothing, write the value that `cat {path}`
      prints on {holder}: `echo <value> > {path}`.

    ## Source
    `doctor check --path PATH`, repeatable; else it is left out. Files are compared by SHA-256 up to 4 GiB, beyond by
    size and by their first and last mebibyte; folders by the names, sizes and contents of up to 20,000 files. What more
    than half of the hosts have is the norm; without such a majority all are named. A program is compared without its
    comments and empty lines; that it differs is a warning, since a line may matter to no rank.
    """
    codes = {host: own.texts for host, own in (programs or {}).items() if any(own.texts.values())}
    for name in sorted({name for texts in codes.values() for name in texts}):
        states = {host: PathState("file", 0, 1, texts[name]) for host, texts in codes.items() if texts.get(name)}
        yield from _different(name, states, is_code=True)
    if paths is None:
        if not codes:
            raise Skip("no path was named with --path")
        return
    names = sorted({name for host_paths in paths.values() for name in host_paths.states})
    if not names:
        raise Skip("no path was named with --path")
    for name in names:
        states = {host: host_paths.states[name] for host, host_paths in paths.items() if name in host_paths.states}
        without = [host for host, state in states.items() if not state.kind]
        if without:
            yield Finding(
                "{path} is {observed}",
                hosts=without,
                path=name,
                observed=NOTHING_THERE,
                expected="a file or folder",
                **_copy(name, next(((h, s) for h, s in states.items() if s.kind in ("file", "folder")), None)),
            )
        refused = [host for host, state in states.items() if state.kind and state.problem]
        for host in refused:
            yield Finding(
                "{path}: {observed}", hosts=[host], path=name, observed=states[host].problem, **_copy(name, None)
            )
        yield from _different(name, {host: state for host, state in states.items() if state.kind and not state.problem})


def _different(path: str, states: dict[str, PathState], is_code: bool = False) -> Iterator[Finding]:
    """The hosts whose state is not that of most."""
    if len(set(states.values())) < 2:
        return
    norm, count = Counter(states.values()).most_common(1)[0]
    others = [host for host, state in states.items() if state != norm or count <= len(states) / 2]
    yield Finding(
        "the program {path} is another one than on {count} of {total} hosts"
        if is_code
        else "{path} differs: {observed}; on {count} of {total} hosts {expected}",
        hosts=others,
        path=path,
        observed=sorted({states[host].describe() for host in others}),
        expected=norm.describe(),
        **_copy(path, next(((h, s) for h, s in states.items() if s == norm and h not in others), None)),
        count=count,
        total=len(states),
    ).as_warning(is_code)


def _copy(path: str, right: tuple[str, PathState] | None) -> dict[str, str | None]:
    """From where to copy the path, if a host has the right one."""
    folder = right is not None and right[1].kind == "folder" and not path.endswith("/")
    return {
        "holder": right[0] if right else None,
        "source": f"{path}/" if folder else path,
        "case": "Kernel" if f"/{posixpath.normpath(path).lstrip('/')}/".startswith(OF_THE_KERNEL) else "Files",
    }
