"""Shared by the experiments: the frame of a command, and charts on a terminal."""
