# Stand-in for hashicorp/vault: the program that `make vault` builds from the published source. Context: build/bin.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN useradd --uid 100 --no-create-home vault && install -d -o vault -m 700 /vault/file && install -d /vault/config
COPY vault /usr/local/bin/vault
USER vault
CMD ["vault", "server", "-config=/vault/config"]
