# mxamp with MXNet 1.9.1, for converting, comparing and exporting models on a CPU.
#
#   docker build -t mxamp .
#   docker run --rm -v "$PWD:/models" mxamp convert PREFIX --dtype bfloat16 -o OUT
#
# --build-arg WITH=onnx leaves MXNet and GluonCV out: files are converted, and ONNX files written and run, without.

FROM python:3.11-slim-bookworm AS build
RUN apt-get update \
    && apt-get install --no-install-recommends --yes g++ \
    && rm -rf /var/lib/apt/lists/*
ARG WITH=mxnet,onnx
WORKDIR /source
COPY constraints/python3.11.txt constraints/
RUN python -m venv /opt/mxamp \
    && /opt/mxamp/bin/python -m pip install --no-cache-dir --constraint constraints/python3.11.txt setuptools wheel \
    && case ",$WITH," in *,mxnet,*|*,zoo,*) \
        /opt/mxamp/bin/python -m pip install --no-cache-dir --constraint constraints/python3.11.txt mxnet==1.9.1 ;; esac
COPY setup.py pyproject.toml MANIFEST.in README.md LICENSE mxamp_command.py ./
COPY mxamp mxamp
# Not isolated: MXNet is there, so that its operator library is built, too.
RUN /opt/mxamp/bin/python -m pip install --no-cache-dir --no-build-isolation \
        --constraint constraints/python3.11.txt ".[$WITH]"

FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --no-install-recommends --yes libgomp1 libquadmath0 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 mxamp
COPY --from=build /opt/mxamp /opt/mxamp
ENV PATH=/opt/mxamp/bin:$PATH \
    PYTHONWARNINGS=ignore
USER mxamp
WORKDIR /models
ENTRYPOINT ["mxamp"]
CMD ["--help"]
