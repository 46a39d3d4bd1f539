"""The version of the package, read by the build and written into every release record."""

__version__ = "0.1.0"

STATE_FORM = 9
"""Of the rows and internal messages that workers store: a version that changes what is read in one has another form,
and no worker goes on with state of another form."""
