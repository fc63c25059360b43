"""`python -m zkcoord_cli`, and the entry point that the `zkcoord` script calls."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line in sys.argv and exit."""
    try:
        from zkcoord_cli import streams

        streams.take_free_numbers()
        from zkcoord_cli.main import cli
    except KeyboardInterrupt:  # pressed while the program was still loading
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
