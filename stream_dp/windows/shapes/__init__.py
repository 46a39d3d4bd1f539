"""Window shapes: one file each, all of them in `registry`. A shape says how a view's windows cut time, and who pays."""
