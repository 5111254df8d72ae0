# The image of onnxd: the program, the libraries that it is linked with, and nothing else; no shell.
#   docker build -t onnxd .
#   docker run --rm --read-only -p 8000:8000 -p 8001:8001 -p 8002:8002 -v "$PWD/models:/models:ro" onnxd
# With NVIDIA's GPUs, whose driver the container runtime brings; NVRTC comes from CUDA_BASE, CUDA 12 or 13:
#   docker build --build-arg CUDA_BASE=nvidia/cuda:12.9.1-runtime-ubuntu22.04 -t onnxd-cuda .
#   docker run --rm --gpus all --read-only -p 8000:8000 -p 8001:8001 -p 8002:8002 -v "$PWD/models:/models:ro" onnxd-cuda
# BASE is what it is built on, a Debian 12; RUN_BASE what the result stands on, whose libraries of the same
# names become Debian 12's.
ARG BASE=debian:bookworm-slim
ARG RUN_BASE=scratch
ARG CUDA_BASE=${BASE}

FROM ${CUDA_BASE} AS toolkit

FROM ${BASE} AS build
# Where the compiler's cache is, if one is mounted.
ARG CCACHE_DIR
WORKDIR /src
COPY scripts/setup scripts/packages.txt scripts/packages-image.txt scripts/
RUN scripts/setup packages.txt packages-image.txt
COPY . .
RUN scripts/build release -DONNXD_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr
RUN DESTDIR=/image cmake --install build/release --component server --strip \
 && rm -r /image/usr/lib/systemd && deploy/image/fill /image \
 && cp deploy/image/onnxd.yaml /image/etc/onnxd/onnxd.yaml && cp -r models /image/models

FROM ${BASE} AS image
ARG CUDA_BASE
COPY --from=build /image /image
COPY deploy/image/fill-cuda /usr/local/bin/
RUN --mount=type=bind,from=toolkit,target=/toolkit fill-cuda /image /toolkit "${CUDA_BASE}"

FROM ${RUN_BASE}
LABEL org.opencontainers.image.title="onnxd" \
      org.opencontainers.image.description="Serves ONNX models over REST and gRPC" \
      org.opencontainers.image.version="0.1.0"
COPY --from=image /image /
# Where runtimes put a driver, besides what its ldconfig finds.
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/lib64
USER 65532:65532
# REST; gRPC; Prometheus and health
EXPOSE 8000 8001 8002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["/usr/bin/onnxd", "health", "--ready"]
ENTRYPOINT ["/usr/bin/onnxd"]
CMD ["serve", "--config", "/etc/onnxd/onnxd.yaml"]
