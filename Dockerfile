# The image of clusters: docker build --target gpu -t REGISTRY/seal-ray:gpu .   (or --target cpu)
# The driver of GPUs is the host's; CUDA's libraries come with PyTorch.
FROM python:3.11.15-slim-bookworm AS base
# A compiler for Triton; what `ray up` and KubeRay call inside a container. Debian keeps one version of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential git openssh-client procps rsync wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 ray \
    && install --directory --owner=ray /home/ray/seal_ray /shared
WORKDIR /home/ray/seal_ray
COPY --chown=ray . .
USER 1000
ENV PATH=/home/ray/seal_ray/.venv/bin:$PATH

FROM base AS cpu
RUN ./setup.sh cpu

FROM base AS gpu
RUN ./setup.sh gpu
