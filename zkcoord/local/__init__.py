"""The local stack: real servers as child processes."""
