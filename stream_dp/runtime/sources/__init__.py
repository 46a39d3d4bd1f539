"""Sources as they really are: samples, diagnoses, and schemas from a registry."""
