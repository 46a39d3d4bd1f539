"""Selections in floating point: to analyse, to compare and to draw figures, never to release.

Probabilities of a selection on known scores, by sums and integrals in doubles, and the mechanisms of the literature
that the exact ones are compared with. Nothing that decides a release may import this package; an import contract sees
to it.
"""
