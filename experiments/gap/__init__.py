"""Noisy top-k with gap (Ding, Wang, Xiao, Zhang and Kifer): the published secure mechanism, its draws and its time."""
