"""The release engine: everything that a partition keeps of its windows, and what is released, sharpened and expires."""
