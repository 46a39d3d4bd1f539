"""Differential privacy on finite computers (Balcer and Vadhan): the paper's own parameters, and what they cost."""
