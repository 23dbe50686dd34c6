"""A smoke run on ranks that a launcher started: how its processes find each other."""
