"""`python -m zkcoord_cli`, and the entry point that the `zkcoord` script calls."""

from __future__ import annotations

from zkcoord_cli import streams
from zkcoord_cli.main import cli


def main() -> None:
    """Run the command line in sys.argv and exit."""
    streams.take_free_numbers()
    cli.main()


if __name__ == "__main__":
    main()
