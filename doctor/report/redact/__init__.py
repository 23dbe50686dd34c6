"""Reports with pseudonyms in place of names and addresses."""
