"""One run made from the node files that `doctor node` left on each host."""
