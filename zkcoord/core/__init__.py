"""Pure logic: no I/O, no threads, no clock reads. Callers pass time in and move the bytes."""
