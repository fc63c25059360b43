#!/bin/sh
# Formats the storage once, then becomes the broker. ADVERTISED says where clients are sent.
set -eu
conf=/tmp/server.properties
{ cat /opt/kafka/server.properties; echo "advertised.listeners=$ADVERTISED"; } >"$conf"
if [ ! -f /data/log/meta.properties ]; then
    java -Xmx128m -cp "/opt/kafka/libs/*" kafka.tools.StorageTool format \
        -t "${CLUSTER_ID:-zkcoordZkcoordZkcoordZ}" -c "$conf"
fi
exec java -Xmx512m -cp "/opt/kafka/libs/*" kafka.Kafka "$conf"
