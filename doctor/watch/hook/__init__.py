"""What travels with the program that `doctor watch` starts."""
