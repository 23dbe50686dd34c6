"""What earlier runs found: a small file for each run in the state folder, and what came, went and flapped."""
