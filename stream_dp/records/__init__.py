"""What is published, and what a reader can work out from it."""
