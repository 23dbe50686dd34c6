"""What is searched of a text is few lines of it, and it is left exactly as the search of all of it leaves it."""

from __future__ import annotations

import base64
import random
import time

from doctor.diagnose.bundle.pack import gated
from doctor.engine.secrets import _searched, hide_secrets
from tests.attack.secrets import corpus
from tests.diagnose.speed import lines
from tests.test_one_way_out import OTHERS, SECRETS

SENTENCES = [text for text, _ in SECRETS] + [text.format(*["hunter2hunter2"] * 2) for text in OTHERS]
SENTENCES += [text for text, _ in corpus(random.Random(4))]
SPLIT = [
    "machine x\nlogin bob\npassword hunter2hunter2",
    "login\nbob\n\n\npassword hunter2hunter2",
    "Authorization:\n\n\n  Bearer hunter2hunter2",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabcd\nefgh\nijkl\n-----END RSA PRIVATE KEY-----",
    "PAſſWORD=hunter2hunter2",
    "the \u212aEY api_\u212aEY=hunter2hunter2",
    "x" * 9000 + " password=hunter2hunter2",
    "curl\n-u me:hunter2hunter2 http://h",
    "<password>\na\nb\nc\nd\nhunter2hunter2\n</password>",
    "echo hunter2hunter2\n| kinit me",
    "//open.feishu.cn/open-apis/bot/v2/hook/hunter2hunter2",
]
FILLER = [*b"".join(lines(1)).decode().splitlines()[:3000], "", "  ", "tokens 12 key: value", "\xe9t\xe9", "task msg."]


def searched(data: bytes) -> bytes:
    """By all patterns, whatever words are there."""
    return _searched(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def by_words(data: bytes) -> bytes:
    return hide_secrets(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def test_a_text_behind_the_gate_is_what_the_search_of_all_of_it_leaves() -> None:
    draw = random.Random(7)
    assert any(gated(text.encode()) != text.encode() for text in SENTENCES)
    for number, sentence in enumerate([*SENTENCES, *SPLIT]):
        before, behind = (draw.choices(FILLER, k=draw.randrange(6)) for _ in range(2))
        data = "\n".join([*before, sentence, *behind]).encode() + b"\n" * (number % 3) + b"\xff\xfe\r\n"
        assert gated(data) == by_words(data) == searched(data), sentence


def test_every_sentence_with_a_secret_is_hidden_alone_on_its_line() -> None:
    for sentence in [*SENTENCES, *SPLIT]:
        data = sentence.encode()
        assert gated(data) == by_words(data) == searched(data), sentence


def test_lines_without_a_secret_pass_ten_times_faster_than_the_search_of_all() -> None:
    data = b"".join(lines(2))
    began = time.process_time()
    assert gated(data) == data
    fast = time.process_time() - began
    began = time.process_time()
    searched(data[: 1 << 18])
    assert fast * (1 << 18) / len(data) < (time.process_time() - began) / 10


def test_a_short_number_is_a_token_unless_it_counts_some() -> None:
    assert hide_secrets("token: 123456 api_token=12345") == "token: [hidden] api_token=[hidden]"
    assert hide_secrets("#token: 2048, s/token=0.5s") == "#token: 2048, s/token=0.5s"


def test_a_block_of_yaml_whose_lines_were_joined_is_hidden() -> None:
    assert hide_secrets("out of memory while token: >-  Sf6KNFu7sWY1") == "out of memory while token: >-  [hidden]"
    assert hide_secrets("max token: > 4096, token: >- expected") == "max token: > 4096, token: >- expected"


def test_quoting_without_end_is_read_for_some_layers_and_ends_nothing() -> None:
    """A log may hold an ampersand that was escaped as often as it has characters."""
    text = "token=&amp;amp;amp;quot;hunter2hunter2&amp;amp;amp;quot; &" + "amp;" * 20_000
    hidden = hide_secrets(text)
    assert "hunter2" not in hidden and hidden.endswith("amp;" * 20_000)


def test_all_secrets_of_a_quoted_line_are_hidden_in_a_bundle_too() -> None:
    """Before, none of a line with more than three, or of more than 10,000 characters; and none in a bundle."""
    quoted = ", ".join(f'\\"K{number}_TOKEN\\": \\"hunter2hunter{number}\\"' for number in range(6))
    html = "&quot;password&quot;: &quot;hunter2hunter2&quot;"
    for text in (f"{{{quoted}}}\n", f"{'a' * 20_000} {{{quoted}}}\n", f"{html}\n"):
        assert "hunter2" not in hide_secrets(text)
        assert gated(text.encode()) == hide_secrets(text).encode()


def test_base64_is_searched_for_tokens_and_what_stands_beside_it_for_all() -> None:
    draw = random.Random(11)
    encoded = base64.b64encode(draw.randbytes(60_000)).decode()
    wrapped = "\n".join(encoded[at : at + 76] for at in range(0, len(encoded), 76))
    token = "AKCp" + "x1Y2" * 16
    for text in (
        encoded, wrapped, f"password={encoded}", f"{encoded} --api-key hunter2hunter2", f"{encoded}/{token}/{encoded}",
        f"x {encoded}\npassword: hunter2hunter2\n{wrapped}", f"{wrapped}\n{token}\n{wrapped}",
        f"image: {encoded};token={encoded}",
    ):  # fmt: skip
        data = gated(text.encode())
        assert data == searched(text.encode()), text[:60]
        assert b"hunter2" not in data and token.encode() not in data
