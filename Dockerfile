# One image for every role; the command says which. BASE has Python 3.11 or newer with venv: python3 on the PATH.
#   docker build --build-arg BASE=python:3.13-slim --build-arg EXTRAS=serve,registry,msk -t tracklog:0.1.0 .
ARG BASE=python:3.13-slim

# hadolint ignore=DL3006
FROM ${BASE} AS build
ARG EXTRAS=serve,registry
ENV PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/tracklog
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY schemas schemas
COPY infra infra
COPY producers producers
COPY processors processors
COPY consumers consumers
# What is uninstalled is for the command line of the library of conditions, which Tracklog does not import; nor does it
# import lexers, so they stay source.
# Wheels only: no compiler is needed here, and none is there to be copied. No pip either: `python3 -m ensurepip` brings it.
RUN /opt/build/bin/pip install --only-binary :all: -c constraints.txt hatchling \
    && /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/build/bin/pip --python /opt/tracklog/bin/python install --only-binary :all: --no-compile \
        -c constraints.txt --find-links /wheels "tracklog[${EXTRAS}]" \
    && /opt/build/bin/pip --python /opt/tracklog/bin/python uninstall -y prompt_toolkit wcwidth \
    && find /opt/tracklog -depth -type d \( -name tests -o -name test \) -path '*/site-packages/*' -exec rm -rf {} + \
    && find /opt/tracklog -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete \
    && /opt/tracklog/bin/python -m compileall -q -j 0 -x '/pygments/lexers/' /opt/tracklog/lib

# hadolint ignore=DL3006
FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="tracklog" \
      org.opencontainers.image.description="The durable, replayable record of AI agents' work on Apache Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/tracklog /opt/tracklog
ENV PATH=/opt/tracklog/bin:${PATH} \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TRACKLOG_HOME=/var/lib/tracklog
# Writes below TRACKLOG_HOME and /tmp alone, so the root can be read-only. Mount something there.
RUN mkdir -p /var/lib/tracklog && chown 10001:10001 /var/lib/tracklog
USER 10001:10001
WORKDIR /var/lib/tracklog
# `tracklog` is process 1: it hears SIGTERM itself, from its first line on, and starts no children to be reaped.
STOPSIGNAL SIGTERM
CMD ["tracklog", "--help"]
