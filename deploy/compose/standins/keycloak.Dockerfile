# Stand-in for the published image of Keycloak: its published distribution (deploy/keycloak/pom.xml) on Debian's Java.
# Context: build/keycloak.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
# Java's packages write manual pages, for which slim images have no folder.
RUN mkdir -p /usr/share/man/man1 && apt-get update && apt-get install -y --no-install-recommends \
      openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
RUN useradd --uid 1000 --gid 0 --no-create-home keycloak
COPY --chown=1000:0 . /opt/keycloak
RUN rm -rf /opt/keycloak/data && install -d -o 1000 -g 0 /opt/keycloak/data
USER 1000
ENTRYPOINT ["/opt/keycloak/bin/kc.sh"]
