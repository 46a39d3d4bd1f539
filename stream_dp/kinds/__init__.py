"""Release kinds: one file for each, with everything that is peculiar to it."""
