"""Recipes on a session: lease, lock, election, membership."""
