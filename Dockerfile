# One image per framework: the framework in /opt/framework, perfrun in /opt/perfrun, side by side.
# The benchmarks run in the first, so what is measured is what the user asked for and nothing else.
#
#   python3 setup.py --framework=torch        builds this file
#   docker compose run --rm perfrun ...       builds it the first time
#
# Written for BuildKit and for the classic builder alike: no mounts, no heredocs.
# What changes seldom comes first, so a change in perfrun's code leaves the framework's layer alone.

# Any Debian or Ubuntu with Python >= 3.10, or one that apt-get can bring it to.
ARG base_image=python:3.11-slim-bookworm
FROM ${base_image}

ENV LANG=C.UTF-8
RUN set -eu; \
    wanted=; \
    command -v git >/dev/null || wanted="git ca-certificates"; \
    python3 -c 'import ensurepip, venv' 2>/dev/null || wanted="$wanted python3 python3-venv"; \
    if [ -n "$wanted" ]; then \
        apt-get update; \
        apt-get install -y --no-install-recommends $wanted; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    # Checkouts are mounted from outside and may belong to anybody; this container serves one user.
    git config --system --add safe.directory '*'; \
    # Usable without any mount, and by a user the image has never heard of.
    mkdir -m 1777 /workspace /data

# Where packages come from, for sites with their own index. To pip empty means not set, and then
# the base image's own pip settings count.
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ARG PIP_FIND_LINKS=
ARG PIP_TRUSTED_HOST=
ARG PIP_CERT=

# torch or tensorflow; its pip spec (empty: the version pinned in install_framework.py);
# more packages for the benchmarks, separated by `;`; cpu or cuda.
ARG framework=torch
ARG framework_pip_spec=
ARG extra_pip_specs=
ARG device=cpu
COPY scripts/install_framework.py /opt/build/
RUN python3 -m venv /opt/framework && \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 /opt/framework/bin/python /opt/build/install_framework.py \
        --framework "$framework" --device "$device" --spec "$framework_pip_spec" --extra "$extra_pip_specs"

# perfrun's own libraries. Installed in place from a package that holds only its version,
# so that the code, which changes most, needs nothing but to be copied in afterwards.
COPY pyproject.toml /opt/perfrun/src/
COPY perfrun/__init__.py /opt/perfrun/src/perfrun/
RUN touch /opt/perfrun/src/README.md && \
    python3 -m venv /opt/perfrun && \
    PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 /opt/perfrun/bin/python -m pip install --editable /opt/perfrun/src

# What this image was built from and with, for the summaries of the runs in it.
ARG base_image
COPY scripts/container/record_image.py /opt/build/
RUN /opt/perfrun/bin/python -I /opt/build/record_image.py /opt/perfrun/image.json \
        "framework=$framework" "framework_pip_spec=$framework_pip_spec" "extra_pip_specs=$extra_pip_specs" \
        "base_image=$base_image" "device=$device"
LABEL perfrun.framework="${framework}" \
      perfrun.framework_pip_spec="${framework_pip_spec}" \
      perfrun.extra_pip_specs="${extra_pip_specs}" \
      perfrun.base_image="${base_image}" \
      perfrun.device="${device}"

# The name `perfrun` on the path is the entry point, which first becomes the owner of the results.
COPY scripts/container/entrypoint.py /usr/local/bin/perfrun
COPY benchmarks /opt/perfrun/src/benchmarks
COPY perfrun /opt/perfrun/src/perfrun
# Compiled here, because whoever runs it may not write there and would compile it for every trial.
RUN chmod 0755 /usr/local/bin/perfrun && chmod -R a+rX /opt/perfrun/src && \
    /opt/perfrun/bin/python -m compileall -q /opt/perfrun/src && \
    /opt/framework/bin/python -m compileall -q /opt/perfrun/src/perfrun/worker /opt/perfrun/src/benchmarks

ENV PERFRUN_PYTHON=/opt/framework/bin/python
# `--workspace` is ./workspace unless said otherwise, so seen from here it is the mounted /workspace.
WORKDIR /
ENTRYPOINT ["perfrun"]
