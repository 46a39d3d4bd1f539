"""What the experiments share: the frame of a command, and charts on a terminal."""
