"""Kafka: producer, reader, log, admin. The only room that knows confluent_kafka."""
