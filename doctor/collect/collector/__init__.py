"""The collector: the one program that runs on a host. Standard library only, Python 3.6 and later, ASCII.

It comes over stdin, packed by zlib, is never written to disk, and prints one framed JSON record. It starts what the
request asks for, each command in a session of its own that is ended completely: at its timeout, when it prints too
much, when it leaves children behind, and when stdin closes, which means that the controller has gone.

A request, as `marshal` writes it: {"marker", "seconds", "common"}, in which "common" is how many bytes come behind it.
They are what all hosts are sent alike, written the same way and packed by zlib: {"given": {...}, "boot", "more",
"parts": [{"prefix": [...], "probes": {id: probe}}]}. With "more" it waits for a further request behind its record:
eight digits, its length in bytes, and the request.
A part with a prefix (`sudo -n`, `docker exec -i NAME`) is answered by a second collector started behind it. One with
"digests" of its probes is answered by the helper of `doctor root-helper` instead, where that is installed.
"""
