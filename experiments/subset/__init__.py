"""The canonical Lipschitz mechanism (Shekelyan and Loukides): what an exact subset of k costs, beside its rivals.

Probabilities of a selection on known scores, by sums and integrals in doubles, and the mechanisms of the literature
that the exact ones are compared with.
"""
