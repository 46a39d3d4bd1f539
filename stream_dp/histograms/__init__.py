"""Histograms on finite computers: integers alone, no rejection, a public number of random bits for every draw.

Source: Balcer and Vadhan, "Differential Privacy on Finite Computers" (2018); specs/finite.
"""
