#!/bin/sh
# Formats the log directories of a node if CLUSTER_ID is set, and becomes the node.
#
# The configuration is $TRIOKA_CONFIG; else the file that Apache Kafka's image reads too; else nothing, if
# KAFKA_PROCESS_ROLES says that variables describe the node; else a node of its own. KAFKA_ variables override any file.
# Arguments go to `trioka serve`.
set -eu

shared=/mnt/shared/config/server.properties

if [ -n "${TRIOKA_CONFIG:-}" ]; then
    config=$TRIOKA_CONFIG
elif [ -f "$shared" ]; then
    config=$shared
elif [ -n "${KAFKA_PROCESS_ROLES:-}" ]; then
    config=/dev/null
else
    config=/etc/trioka/single-node.properties
fi

if [ -n "${CLUSTER_ID:-}" ]; then
    trioka storage format --cluster-id "$CLUSTER_ID" --config "$config" --ignore-formatted >/dev/null
fi

# Every line is JSON, except on a terminal.
if [ -t 2 ]; then format=human; else format=json; fi
exec trioka serve "$config" --log-format "$format" "$@"
