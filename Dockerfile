# Build: the toolchain and the locked dependencies. Run: a shell-less image with one binary, which needs no writable root.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY proto proto
COPY src src
COPY tests/bench tests/bench
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin pilothouse && cp target/release/pilothouse /pilothouse

FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="pilothouse" \
      org.opencontainers.image.description="An Istio-API control plane in one binary" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /pilothouse /usr/local/bin/pilothouse
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
