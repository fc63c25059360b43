"""The `zkcoord` command."""
