# Build: the toolchain and the locked dependencies. Run: a shell-less image with one binary.
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
COPY config /etc/pilothouse
USER 1337:1337
EXPOSE 15010 8080 15014
# Listens on all interfaces: inside a container loopback is unreachable from outside. Probe GET /ready on 8080.
ENTRYPOINT ["/usr/local/bin/pilothouse"]
CMD ["serve", "--config-dir", "/etc/pilothouse/demo", "--grpc-addr", ":15010", "--http-addr", ":8080", "--monitoring-addr", ":15014"]
