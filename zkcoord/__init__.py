"""zkcoord: fair locks, elections and prioritized task streams for fleets of agents."""
