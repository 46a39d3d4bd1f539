"""The papers' tables and figures, recomputed: one package per paper, run from a checkout by `python -m experiments`.

Nothing here is part of the product: the wheel does not have it, and an import contract keeps `stream_dp` from importing
it. It computes with doubles and draws noise that is not private.
"""
