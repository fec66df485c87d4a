#!/bin/sh
# The journey of an operator: a topic, a group with lag, a reset of its offsets, and the clean-up.
#
#     partage broker &
#     examples/operator.sh 127.0.0.1:9092
#
# Every command works with Apache Kafka too.
set -eu
export PARTAGE_BOOTSTRAP_SERVER="${1:?usage: examples/operator.sh HOST:PORT}"

partage topics create payments --partitions 3
printf 'a:1\nb:2\nc:3\n' | partage produce --topic payments --key-separator :
partage consume --topic payments --group audit --from-beginning --max-messages 3 > /dev/null
partage groups describe audit

echo "--- what a reset would change"
partage groups reset-offsets audit --topic payments --to-earliest
partage groups reset-offsets audit --topic payments --to-earliest --execute > /dev/null
partage groups describe audit

echo "--- keep records for an hour"
partage configs alter --topic payments --add-config retention.ms=3600000
partage configs describe --topic payments

echo "--- remove the group and the topic"
partage groups delete audit --yes
partage topics delete payments --yes
