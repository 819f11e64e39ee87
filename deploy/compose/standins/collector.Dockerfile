# Stand-in for otel/opentelemetry-collector: the program that `make collector` builds from its published modules. Context:
# build/bin.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
COPY otelcol /usr/local/bin/otelcol
USER 10001
ENTRYPOINT ["otelcol"]
