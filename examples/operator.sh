#!/bin/sh
# The journey of an operator: a topic, a group with lag, a reset of its offsets, and the clean-up.
#
#     partage broker &
#     examples/operator.sh 127.0.0.1:9092
#
# Every command works with Apache Kafka too.
set -eu
export PARTAGE_BOOTSTRAP_SERVER="${1:?usage: examples/operator.sh HOST:PORT}"

partage topics create orders --partitions 3
printf 'a:1\nb:2\nc:3\n' | partage produce --topic orders --key-separator :
partage consume --topic orders --group billing --from-beginning --max-messages 3 > /dev/null
partage groups describe billing

echo "--- what a reset would change"
partage groups reset-offsets billing --topic orders --to-earliest
partage groups reset-offsets billing --topic orders --to-earliest --execute > /dev/null
partage groups describe billing

echo "--- keep records for an hour"
partage configs alter --topic orders --add-config retention.ms=3600000
partage configs describe --topic orders

echo "--- remove the group and the topic"
partage groups delete billing --yes
partage topics delete orders --yes
