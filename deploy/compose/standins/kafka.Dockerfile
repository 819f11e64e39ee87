# Stand-in for apache/kafka: the published jars (deploy/kafka/pom.xml) on Debian's Java. Context: build/kafka.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
# Java's packages write manual pages, for which slim images have no folder.
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends \
      openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
RUN useradd --uid 1000 --no-create-home appuser && install -d -o appuser /var/lib/kafka/data /opt/kafka/config
COPY libs /opt/kafka/libs
# Settings as the published image takes them: KAFKA_LOG_DIRS is log.dirs.
RUN printf '%s\n' '#!/bin/bash' 'set -eu' 'cd /opt/kafka' \
      'for name in $(compgen -e KAFKA_); do' \
      '  case $name in KAFKA_HEAP_OPTS) continue ;; esac' \
      '  key=${name#KAFKA_} && key=${key,,} && echo "${key//_/.}=${!name}"' \
      'done >config/server.properties' \
      'if [ ! -f "$KAFKA_LOG_DIRS/meta.properties" ]; then' \
      '  java -cp "libs/*" kafka.tools.StorageTool format -t "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" -c config/server.properties' \
      'fi' \
      'exec java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "libs/*" kafka.Kafka config/server.properties' \
      >/usr/local/bin/kafka-start && chmod +x /usr/local/bin/kafka-start
USER appuser
CMD ["kafka-start"]
