"""The version of the package, read by the build and written into every release record."""

__version__ = "0.1.0"
