"""One read API over ZooKeeper and Kafka, for the command line and for dashboards."""
