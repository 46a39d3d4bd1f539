"""Private Lossless Multiple Release (Andersson, Retschmeier, Nelson, Pagh): continuous noise in doubles, and Figure 2.

`gaussian` and `kernels` are behind Figure 2. `laplace`, `exponential` and `sparse_gaussian` are the corrected Lemma F.5
and Algorithm 6; docs/lossless.md says where the print is wrong, and the tests keep the printed forms as controls.
"""
