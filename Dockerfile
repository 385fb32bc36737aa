# One image per framework (or both): the framework in /opt/framework, perfrun in /opt/perfrun.
# The benchmarks run in the first, so what is measured is what the user asked for and nothing else.
#
#   python3 setup.py --framework=torch        builds this file
#   docker compose run --rm perfrun ...       builds it the first time
#
# Needs BuildKit (Docker 20.10 or newer), for the mounts: no wheel and no lock stays in a layer.
# What changes seldom comes first, so a change in perfrun's code leaves the framework's layer alone.

# Any Debian or Ubuntu with Python >= 3.10, or one that apt-get can bring it to.
ARG base_image=python:3.11-slim-bookworm
FROM ${base_image}

ENV LANG=C.UTF-8
# X.Y of the framework's Python; empty: the base image's python3.
ARG python_version=
# Debian packages that benchmarks need, separated by spaces; torch.compile on the CPU: g++.
ARG extra_apt_packages=
RUN --mount=type=bind,source=scripts/container/prepare_base.sh,target=/run/build/prepare_base.sh \
    --mount=type=bind,source=scripts/site,target=/run/build/site \
    sh /run/build/prepare_base.sh /run/build/site "$python_version" "$extra_apt_packages"

# Where packages come from, for sites with their own index. To pip empty means not set, and then
# the base image's own pip settings count.
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_INDEX_URL=
ARG PIP_FIND_LINKS=
ARG PIP_NO_INDEX=
ARG PIP_TRUSTED_HOST=
ARG PIP_CERT=

# torch, tensorflow, jax or both (torch and tensorflow); its version or pip spec (empty: what install_framework.py pins);
# more packages for the benchmarks, separated by `;`; cpu, cuda or rocm.
ARG framework=torch
ARG framework_version=
ARG framework_pip_spec=
ARG extra_pip_specs=
ARG device=cpu
RUN --mount=type=bind,source=scripts/install_framework.py,target=/run/build/install_framework.py \
    --mount=type=bind,source=scripts/site,target=/run/build/site \
    export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1; \
    lock=/run/build/site/framework.txt; \
    if [ -f $lock ]; then export PIP_CONSTRAINT=$lock UV_CONSTRAINT=$lock; fi; \
    "$(readlink /opt/python/framework)" -m venv /opt/framework && \
    /opt/framework/bin/python /run/build/install_framework.py \
        --framework "$framework" --device "$device" --version "$framework_version" \
        --spec "$framework_pip_spec" --extra "$extra_pip_specs"

# perfrun's own libraries. Installed in place from a package that holds only its version,
# so that the code, which changes most, needs nothing but to be copied in afterwards.
COPY pyproject.toml /opt/perfrun/src/
COPY perfrun/__init__.py /opt/perfrun/src/perfrun/
RUN --mount=type=bind,source=scripts/site,target=/run/build/site \
    export PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1; \
    lock=/run/build/site/perfrun.txt; \
    if [ -f $lock ]; then export PIP_CONSTRAINT=$lock; fi; \
    touch /opt/perfrun/src/README.md && mkdir /opt/perfrun/src/benchmarks && \
    "$(readlink /opt/python/perfrun)" -m venv /opt/perfrun && \
    /opt/perfrun/bin/python -m pip install --editable '/opt/perfrun/src[postgresql]'

# The bill of materials, as CycloneDX.
RUN --mount=type=bind,source=scripts/container/write_sbom.py,target=/run/build/write_sbom.py \
    /opt/perfrun/bin/python -I /run/build/write_sbom.py /opt/perfrun/sbom.cdx.json \
        framework=/opt/framework/bin/python perfrun=/opt/perfrun/bin/python
LABEL perfrun.sbom="/opt/perfrun/sbom.cdx.json"

# The name `perfrun` on the path is the entry point, which first becomes the owner of the results.
COPY scripts/container/entrypoint.py /usr/local/bin/perfrun
COPY benchmarks /opt/perfrun/src/benchmarks
COPY perfrun /opt/perfrun/src/perfrun
# Compiled here, because whoever runs it may not write there and would compile it for every trial.
RUN chmod 0755 /usr/local/bin/perfrun && chmod -R a+rX /opt/perfrun/src && \
    /opt/perfrun/bin/python -m compileall -q /opt/perfrun/src && \
    /opt/framework/bin/python -m compileall -q /opt/perfrun/src/perfrun/worker /opt/perfrun/src/benchmarks

# What this image was built from and with, for the summaries of the runs in it. Last, because the
# commit of perfrun changes most often of all.
ARG base_image
ARG harness_url=
ARG harness_branch=
ARG harness_hash=
ARG harness_modified=
RUN --mount=type=bind,target=/run/build/checkout \
    /opt/perfrun/bin/python -I /run/build/checkout/scripts/container/record_image.py \
        /opt/perfrun/image.json /run/build/checkout/.git \
        "framework=$framework" "framework_version=$framework_version" \
        "framework_pip_spec=$framework_pip_spec" "extra_pip_specs=$extra_pip_specs" \
        "extra_apt_packages=$extra_apt_packages" \
        "base_image=$base_image" "python_version=$python_version" "device=$device" \
        "harness_url=$harness_url" "harness_branch=$harness_branch" \
        "harness_hash=$harness_hash" "harness_modified=$harness_modified"
LABEL perfrun.framework="${framework}" \
      perfrun.framework_version="${framework_version}" \
      perfrun.framework_pip_spec="${framework_pip_spec}" \
      perfrun.extra_pip_specs="${extra_pip_specs}" \
      perfrun.extra_apt_packages="${extra_apt_packages}" \
      perfrun.base_image="${base_image}" \
      perfrun.python_version="${python_version}" \
      perfrun.device="${device}" \
      perfrun.harness_hash="${harness_hash}"

# Certificates of the site (setup.py --ca_certificate); empty means not set to all who read these.
ARG ca_bundle=
ENV REQUESTS_CA_BUNDLE=${ca_bundle} PIP_CERT=${ca_bundle}
ENV PERFRUN_PYTHON=/opt/framework/bin/python
# `--workspace` is ./workspace unless said otherwise, so seen from here it is the mounted /workspace.
WORKDIR /
ENTRYPOINT ["perfrun"]
