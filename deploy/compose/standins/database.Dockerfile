# Stand-in for timescale/timescaledb: Debian's PostgreSQL, without the extension. Context: deploy/compose/standins.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update && apt-get install -y --no-install-recommends postgresql \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /var/lib/postgresql/15 \
    && ln -s /usr/lib/postgresql/*/bin/* /usr/local/bin/ 2>/dev/null; install -d -o postgres -m 700 /var/lib/postgresql/data
# Where the published image has its socket, too.
RUN install -d -o postgres /var/run/postgresql
COPY database-start /usr/local/bin/database-start
USER postgres
CMD ["database-start"]
