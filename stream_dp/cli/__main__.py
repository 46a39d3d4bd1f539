"""`python -m stream_dp.cli`: the `stream-dp` command by way of a named interpreter."""

from stream_dp.cli import main

if __name__ == "__main__":
    main()
