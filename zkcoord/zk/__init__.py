"""ZooKeeper: sessions and znodes. The only room that knows kazoo."""
