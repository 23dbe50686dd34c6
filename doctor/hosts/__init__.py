"""Host names, node sets and hostfiles, as users write them."""
