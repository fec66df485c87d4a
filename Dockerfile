# A broker and the command line tools. Build: docker build -t partage .
FROM python:3.13-slim AS build
WORKDIR /src
COPY . .
# The compiler builds the record decoder; the image that runs does not need it.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends --yes gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/* \
    && python -m venv /opt/partage \
    && /opt/partage/bin/pip install --no-cache-dir '.[cli,re2,zookeeper]'

FROM python:3.13-slim
COPY --from=build /opt/partage /opt/partage
ENV PATH=/opt/partage/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/partage partage
USER 10001
VOLUME /var/lib/partage
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s \
    CMD ["partage", "topics", "list", "--json"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["partage"]
# The broker has no authentication yet: publish the port on the loopback interface only.
CMD ["broker", "--listen", "0.0.0.0:9092", "--advertised", "127.0.0.1:9092", "--data-dir", "/var/lib/partage/data"]
