# Build: the toolchain, the locked dependencies, and a program that needs no library. Run: that program, the certificates of public
# authorities and the demo; no shell, and no writable root needed.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends musl-tools && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY proto proto
COPY src src
COPY tests/bench tests/bench
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    target="$(uname -m)-unknown-linux-musl" && rustup target add "$target" && \
    cargo build --release --locked --bin pilothouse --target "$target" && \
    install -D "target/$target/release/pilothouse" /image/usr/local/bin/pilothouse && \
    install -D --mode=644 /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ca-certificates.crt

FROM scratch
LABEL org.opencontainers.image.title="pilothouse" \
      org.opencontainers.image.description="An Istio-API control plane in one binary" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
COPY config/demo /etc/pilothouse/demo
USER 1337:1337
# Inside a container loopback is unreachable from outside: the listeners of istiod's container, by the variables of their
# flags. Without a folder for its state the secure listener makes a new root at each start; a cluster keeps the root itself.
ENV PILOTHOUSE_GRPC_ADDR=:15010 \
    PILOTHOUSE_HTTP_ADDR=:8080 \
    PILOTHOUSE_MONITORING_ADDR=:15014 \
    PILOTHOUSE_SECURE_GRPC_ADDR=:15012
# xDS in plain text and over TLS, pages with GET /ready, metrics.
EXPOSE 15010 15012 8080 15014
ENTRYPOINT ["/usr/local/bin/pilothouse"]
CMD ["serve", "--config-dir", "/etc/pilothouse/demo"]
