"""The continuous noise families, in floating point: to analyse, to compare and to draw figures, never to release.

Doubles betray by their low bits what they were added to (specs/lossless 5, no. 8), so nothing that decides a release
may import this package; an import contract sees to it. What is released comes from the integer families beside it.
"""
