"""Kafka: producing, reading, topics. The only room that knows confluent_kafka."""

from zkcoord.kafka.admin import Admin, Cluster, Mismatch, TopicInfo, TopicSpec
from zkcoord.kafka.compacted import CompactedWriter, read_compacted
from zkcoord.kafka.ends import Ends
from zkcoord.kafka.log import LogAppender, LogReader
from zkcoord.kafka.producer import Producer
from zkcoord.kafka.reader import Reader
from zkcoord.kafka.record import (
    BEGINNING,
    END,
    INTERNAL_RECORD_BYTES_MAX,
    RECORD_BYTES_MAX,
    Headers,
    OnAck,
    Partition,
    Record,
)

__all__ = [
    "BEGINNING",
    "END",
    "INTERNAL_RECORD_BYTES_MAX",
    "RECORD_BYTES_MAX",
    "Admin",
    "Cluster",
    "CompactedWriter",
    "Ends",
    "Headers",
    "LogAppender",
    "LogReader",
    "Mismatch",
    "OnAck",
    "Partition",
    "Producer",
    "Reader",
    "Record",
    "TopicInfo",
    "TopicSpec",
    "read_compacted",
]
