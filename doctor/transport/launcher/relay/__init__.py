"""The relay: the program that carries the lines of carriers through the gateways of a tree, and starts them there.

Standard library only, Python 3.6 and later, ASCII. It runs on this machine and on each gateway. The first line of its
stdin is the part of the tree below it (JSON); all others are for carriers, and go to the children on whose way those
are. It starts each child by ssh: a carrier on a leaf, a relay on a gateway. What it prints:

``o TASK DATA``, ``e TASK DATA``
    A piece of a carrier's stdout or stderr.
``u "NAME"``
    The relay on this gateway has started.
``x {"host": ..., "code": ..., "text": ..., "tasks": [...]}``
    A child ended: nothing more comes of these tasks.

A child speaks only for the tasks below it: all else that it prints is dropped, and too much of that ends it.
"""
