"""Real-looking secrets in every place that doctor reads, through every command and format: none may come out.

A secret stands in logs (exceptions, argv lines, JSON lines, names of files), in the outputs of hosts in a saved run, in
job scripts and in wrong command lines. What a command prints, the files that it writes and the history are searched.
Tokens, places and names are lines of ``secret_*.txt``; the lines of ``innocent_texts.txt`` hold none.
"""

from __future__ import annotations

import html
import json
import os
import random
import re
import shlex
import string
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import msgspec

from doctor.engine.secrets import hide_secrets
from doctor.report.formats.registry import FORMATS
from tests import preloaded
from tests.attack.hostile import record
from tests.node_files import run_of

ROOT = Path(__file__).parents[2]
PATIENCE = 120
FILES = ("html", "json", "md", "junit")
NOTIFYING = ("check --from", "diagnose")
"""Commands of which messages are sent: to a program, by mail, and to webhooks of these `SHAPES`."""
SHAPES = ("json", "slack", "feishu", "dingtalk")


LAYERS: tuple[Callable[[str], str], ...] = (
    str,
    repr,
    shlex.quote,
    html.escape,
    json.dumps,
    lambda text: json.dumps({"m": json.dumps([text])}),
    lambda text: repr(["t.py", text]),
    lambda text: repr(text.encode()),
    lambda text: "bash -c " + shlex.quote(text),
    lambda text: f"command: [bash, -lc, {json.dumps(text)}]",
    "2026-11-24 10:00:00,123 ERROR [rank 3] {}".format,
    "RuntimeError: {}".format,
    "+ {}".format,
    "[ 12.3456] train[7]: {}".format,
    "<n1>: [stderr] {}".format,
)
"""How programs pass on what another one printed."""


class Secret(NamedTuple):
    """A text as programs print it, and the part of it that must not be seen."""

    text: str
    hidden: str


class Case(NamedTuple):
    """A command, and the files that it reads."""

    name: str
    arguments: Sequence[str]
    files: dict[str, str]


FOLDER = Path(__file__).parent
ALPHABETS = {
    "": string.ascii_letters + string.digits,
    "h": "0123456789abcdef",
    "A": string.ascii_uppercase + string.digits,
    "B": string.ascii_uppercase + "234567",
    "d": string.digits,
}
AROUND = ("cannot log in: {}", "t.py --x {}", "['t.py', '{}']", "x={}", '"{}"', "({})", 'RuntimeError("{}")', "url {},")
ASSIGNMENTS = (
    "{}={}", "export {}={}", "{}='{}'", '"{}": "{}"', "'{}': '{}'", "{}: {}", "env={}={}",
    "  - name: {}\n    value: {}",
    '{{"name": "{}", "value": "{}"}}', "-e {}={}", "ENV {} {}", "setenv {} {}", "os.environ['{}'] = '{}'", "--{}={}",
    '\\"{}\\": \\"{}\\"', "Namespace(lr=3, {}='{}')", "<{0}>{1}</{0}>",
)  # fmt: skip
KEYS = ("RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "ENCRYPTED PRIVATE KEY", "PGP PRIVATE KEY BLOCK")
BREAKS = ("\n", "\\n", "\\\\n", "\r\n", "\n  ", "\n[rank0]: ", "\n2026-11-23T10:00:00Z host train[12]: ", " ")


def lines_of(name: str) -> list[str]:
    """The lines of a file beside this one, without comments."""
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    return [line.replace(r"\n", "\n").replace(r"\r", "\r") for line in lines if not line.startswith("# ")]


def letters(source: random.Random, count: int, of: str = ALPHABETS[""]) -> str:
    return "".join(source.choices(of, k=count))


def password(source: random.Random) -> str:
    return f"{letters(source, 7)}7{letters(source, 5)}qX"


def tokens(source: random.Random) -> Iterator[Secret]:
    """Each shape of a token, with some text around it."""
    for token in bare_tokens(source):
        yield Secret(source.choice(AROUND).format(token.text), token.hidden)


def bare_tokens(source: random.Random) -> Iterator[Secret]:
    """Each shape of a token, and the longest of its drawn parts."""
    for shape in lines_of("secret_tokens.txt"):
        pieces = re.split(r"\{(\d+[hABd]?)\}", shape)
        drawn = [
            letters(source, int(kind.rstrip("hABd")), ALPHABETS[kind.lstrip(string.digits)]) for kind in pieces[1::2]
        ]
        pieces[1::2] = drawn
        yield Secret("".join(pieces), max(drawn, key=len))


def corpus(source: random.Random) -> Iterator[Secret]:
    """Some 500 secrets: every token, place, name and form of a private key."""
    yield from tokens(source)
    for place in lines_of("secret_places.txt"):
        value = password(source)
        yield Secret(place.replace("§", value), value)
    for name in lines_of("secret_names.txt"):
        value, form = password(source), source.choice(ASSIGNMENTS)
        yield Secret(form.format(name.lower() if form.startswith("--") else name, value), value)
    for key in KEYS:
        for between in BREAKS:
            body = [letters(source, 64) for _ in range(4)]
            yield Secret(between.join([f"-----BEGIN {key}-----", *body, f"-----END {key}-----"]), body[2])


def one_line(held: Secret) -> str:
    """A log shows the end of a line as it is, or as a program escapes it; a key over several lines stays one."""
    return held.text if "PRIVATE KEY" in held.text else held.text.replace("\n", "\\n")


def layered_leaks(seed: int) -> Iterator[str]:
    """Each secret in each layer, at the gate itself: those that come out."""
    for held in corpus(random.Random(seed)):
        for layer in LAYERS:
            if held.hidden in hide_secrets(layer(held.text)):
                yield layer(held.text)


def crossed_leaks(seed: int, part: int = 0, parts: int = 1) -> Iterator[str]:
    """Each token in each place, and a password under each name in each form of an assignment: those that come out.

    ``part`` of ``parts`` of the places.
    """
    source = random.Random(seed)
    held = list(bare_tokens(source))
    texts = [
        Secret(place.replace("§", token.text), token.hidden)
        for place in lines_of("secret_places.txt")[part::parts]
        for token in held
    ]
    for name in lines_of("secret_names.txt"):
        for form in ASSIGNMENTS:
            value = password(source)
            texts.append(Secret(form.format(name.lower() if form.startswith("--") else name, value), value))
    yield from (secret.text for secret in texts if secret.hidden in hide_secrets(secret.text))


def log_of(held: Secret, source: random.Random) -> str:
    """A log of a training that ended with an exception about a secret."""
    lines = [
        f"[rank0]: args: Namespace(lr=3, text='{one_line(held)}')",
        json.dumps({"level": "error", "rank": 0, "msg": f"cannot log in: {held.text}"}),
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/job/train.py", line 3, in <module>',
        f"[rank0]:     login({held.text!r})",
        f"[rank0]: RuntimeError: CUDA out of memory while {one_line(held)}" if source.random() < 0.3
        else f"[rank0]: RuntimeError: 401 for {one_line(held)}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def diagnose(held: Secret, source: random.Random) -> Case:
    name = "rank0.log" if source.random() < 0.7 or not re.fullmatch(r"[\w.-]{1,80}", held.text) else f"{held.text}.log"
    return Case("diagnose", ["diagnose", "logs"], {f"logs/{name}": log_of(held, source)})


def saved_run(held: Secret, source: random.Random) -> Case:
    """A run in which one answer of a host is the secret, or has it within."""
    outputs = {fact: dict(by_key) for fact, by_key in record().outputs.items()}
    for fact in source.sample(sorted(outputs), 12):
        for key, output in outputs[fact].items():
            text = held.text if source.random() < 0.5 else f"{output.out}\n{held.text}\n"
            outputs[fact][key] = type(output)("error" if source.random() < 0.5 else "exited", out=text, err=held.text)
    saved = json.loads(msgspec.json.encode(run_of("n1", observed_outputs=outputs)))
    saved["launch"]["environ"] = {"NCCL_IB_HCA": held.text, "HF_TOKEN": held.hidden, "MASTER_ADDR": held.text}
    return Case("check --from", ["check", "--from", "run.json"], {"run.json": json.dumps(saved)})


def script(held: Secret, source: random.Random) -> Case:
    text = (
        f"#!/bin/bash\nexport X={held.text!r}\nexport NCCL_DEBUG={held.text!r}\ntorchrun --nnodes 2 t.py {held.text}\n"
    )
    return Case("lint", ["lint", "job.sh"], {"job.sh": text})


def wrong_words(held: Secret, source: random.Random) -> Case:
    words = source.choice(
        (["check", "--hosts", f"{held.text} ["], ["explain", held.text], ["check", "--select", held.text],
         ["report", f"{held.text}.json"], ["check", "--hostfile", f"/x/{held.text}"])
    )  # fmt: skip
    return Case("wrong words", words, {})


MAKERS: tuple[Callable[[Secret, random.Random], Case], ...] = (diagnose, saved_run, script, wrong_words)


@contextmanager
def webhook() -> Iterator[tuple[str, list[str]]]:
    """The address of a server on this machine, and the bodies that it gets."""
    bodies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])).decode("utf-8", "replace"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def leaks(case: Case, held: Secret, form: str, redacts: bool, hook: str, bodies: Sequence[str]) -> Iterator[str]:
    """Where the secret has come out. ``hook``: a webhook, and the ``bodies`` of what is sent to it."""
    with tempfile.TemporaryDirectory(prefix="secrets-") as name:
        folder = Path(name)
        for path, text in case.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, "utf-8")
        argv = [sys.executable, "-m", "doctor", *case.arguments]
        if case.name != "wrong words":
            argv += ["-f", form, *(word for kind in FILES for word in ("-f", f"{kind}=out.{kind}"))]
        if case.name == "check --from":
            argv += [*(["--redact"] if redacts else []), "--save", "saved.run"]
        environ = {**os.environ, "HOME": name, "XDG_STATE_HOME": f"{name}/state", "CI_TOKEN": held.hidden}
        environ["DOCTOR_LANG"] = "zh" if redacts or len(held.hidden) % 2 else "en"
        if case.name in NOTIFYING:
            mail = folder / "bin" / "sendmail"
            mail.parent.mkdir()
            mail.write_text("#!/bin/sh\nexec cat >mail.out\n")
            mail.chmod(0o755)
            tables = (
                f'[notify.to-{shape}]\nurl = "{hook}/{shape}"\nshape = "{shape}"\nhttp = true\n' for shape in SHAPES
            )
            (folder / "doctor.toml").write_text("".join(tables))
            case.files.update({"bin/sendmail": "", "doctor.toml": ""})
            environ["PATH"] = f"{mail.parent}:{environ['PATH']}"
            argv += ["--notify", "command:tee message.out", "--notify", "mailto:ops@example.org"]
            argv += [word for shape in SHAPES for word in ("--notify", f"to-{shape}")]
        done = preloaded.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE)
        if "Traceback" in done.stderr:
            yield f"a traceback: {done.stderr[-300:]}"
        texts = {"stdout": done.stdout, "stderr": done.stderr}
        for file in folder.rglob("*"):
            if file.is_file() and str(file.relative_to(folder)) not in case.files:
                texts[str(file.relative_to(folder))] = file.read_text("utf-8", "replace")
        texts.update((f"webhook {number}", body) for number, body in enumerate(bodies))
        sent = [(folder / place).exists() for place in ("message.out", "mail.out")] + [len(bodies) == len(SHAPES)]
        if case.name in NOTIFYING and not (all(sent) or done.returncode in (0, 11)):
            yield f"no message: {done.returncode}: {done.stderr[-300:]}"
        for place, text in texts.items():
            if held.hidden in text:
                at = text.index(held.hidden)
                yield f"{case.name} -f {form}: {place}: ...{text[max(0, at - 80) : at + len(held.hidden)]!r}"


def campaign(count: int, seed: int) -> int:
    """``count`` commands. Returns how many let a secret out."""
    source, failed = random.Random(seed), 0
    drawn: list[Secret] = []
    for number in range(count):
        drawn = drawn or source.sample(everything := list(corpus(source)), len(everything))
        held = drawn.pop()
        case = MAKERS[number % len(MAKERS)](held, source)
        form = FORMATS[number // len(MAKERS) % len(FORMATS)]
        with webhook() as (hook, bodies):
            found = list(leaks(case, held, form, source.random() < 0.3, hook, bodies))
        failed += bool(found)
        for description in found[:3]:
            print(f"number {number}, {held.text!r}: {description}", flush=True)
    return failed


if __name__ == "__main__":
    from tests.attack.__main__ import main

    sys.exit(main(["secrets", *sys.argv[1:]]))
