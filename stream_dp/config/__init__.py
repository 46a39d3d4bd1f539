"""The configuration file: from YAML to a plan, with every fault at once, and a plan in words."""
