"""What mxamp is called, what it needs, and what is installed with it.

The native libraries (``mxamp/ops/src``) are built too, where there is a compiler and, for MXNet's operators,
where the build can see MXNet. Neither is needed to install: without the kernels mxamp computes with NumPy,
and the operators are built when first used. With ``MXAMP_BUILD=0`` in the environment nothing is built.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import types
from pathlib import Path
from typing import Iterator

from setuptools import Command, Distribution, find_packages, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:  # no wheel can be made, but all else can
        bdist_wheel = Command

ROOT = Path(__file__).resolve().parent


def read_version() -> str:
    """Read the version from the source text: importing mxamp would need its dependencies first."""
    text = (ROOT / "mxamp" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    if match is None:
        raise RuntimeError('mxamp/version.py has no line of the form __version__ = "1.2.3".')
    return match.group(1)


def read_long_description(url: str) -> str:
    """Return the README for a page outside the checkout, where its relative links lead nowhere.

    Links lead to the files of this version's tag under ``url``; without one they are only text.
    """

    def link(match: re.Match) -> str:  # type: ignore[type-arg]
        text, to = match["text"], match["to"]
        if re.match(r"[a-z]+:|#", to):
            return match[0]
        return f"[{text}]({url}/blob/v{read_version()}/{to})" if url else text

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<to>[^)\s]+)\)", link, readme)


@contextlib.contextmanager
def package_without_contents() -> Iterator[None]:
    """Let modules of mxamp be imported alone: the packages' own files import what is not installed yet."""
    packages = ("mxamp", "mxamp.ops")
    for name in packages:
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT.joinpath(*name.split(".")))]  # type: ignore[attr-defined]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "mxamp"]:
            del sys.modules[name]


class BuildNative(build_ext):
    """Build the native libraries into ``mxamp/ops/lib``; what cannot be built is reported and left out."""

    def run(self) -> None:
        """Build, in place for an editable installation."""
        self.built: list[str] = []
        root = ROOT if self.inplace or self.editable_mode else Path(self.build_lib).resolve()
        folder = root / "mxamp" / "ops" / "lib"
        with package_without_contents():
            build = importlib.import_module("mxamp.ops.build")
            for describe in (build.kernels_library, build.operators_library):
                try:
                    self.built.append(str(build.build(describe(), folder=folder)))
                except build.LibraryError as error:
                    print(f"warning: mxamp is installed without a native library. {error}", file=sys.stderr)

    def get_outputs(self) -> list[str]:
        """Name what was built, which belongs to the installation."""
        return [] if self.inplace or self.editable_mode else getattr(self, "built", [])

    def get_output_mapping(self) -> dict[str, str]:
        """Say that nothing is to be copied: an editable installation uses the source folder itself."""
        return {}

    def get_source_files(self) -> list[str]:
        """Name no sources: they are package data."""
        return []


class NativeDistribution(Distribution):
    """A distribution for one operating system and processor, if anything native is to be built."""

    def has_ext_modules(self) -> bool:
        """Tell whether ``build_ext`` is to run, and the package goes where platform-specific ones do."""
        return os.environ.get("MXAMP_BUILD", "").strip() != "0"


class PlatformWheel(bdist_wheel):
    """A wheel for every version of Python: the libraries know nothing of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return the tags of Python, its binary interface, and the platform."""
        return ("py3", "none", super().get_tag()[2])


# The ranges below are what works; constraints/ holds the exact versions that were tested together.
CORE = [
    "numpy>=1.21",
    "scipy>=1.10",  # scipy.sparse.csgraph.maximum_flow got Dinic's algorithm in 1.10.
    "ml_dtypes>=0.2",
    "tomli>=1.2; python_version < '3.11'",  # The standard library reads TOML from 3.11 on ...
    "tomli_w>=1.0",  # ... and writes it in no version.
    "jinja2>=3.1",
    "rich>=13.0",
    "shtab>=1.6",  # the completion of the shell
    # Hashes files: not needed, but fast. There are wheels of it for these machines.
    "blake3>=1.0; platform_machine in 'x86_64 AMD64 aarch64 arm64'",
]

# MXNet 1.9.1 uses np.bool, which NumPy 1.24 removed, and distutils, which Python 3.12 removed.
MXNET = [
    "mxnet==1.9.1; python_version < '3.12'",
    "numpy<1.24; python_version < '3.12'",
]

# GluonCV bounds none of its dependencies; the bounds are the last series built against NumPy 1.23.
ZOO = [
    *MXNET,
    "gluoncv==0.10.5.post0; python_version < '3.12'",
    "pandas<2.1; python_version < '3.12'",
    "matplotlib<3.9; python_version < '3.12'",
    "Pillow<11; python_version < '3.12'",
    "opencv-python<4.9; python_version < '3.12'",
]

# The demonstration's and the evaluation's images: the digits and the photographs that come with these.
DEMO = [
    *ZOO,
    "scikit-image>=0.21; python_version < '3.12'",
    "scikit-learn>=1.3; python_version < '3.12'",
]

# model_zoo_eval on several machines: python -m model_zoo_eval run --scheduler dask
DASK = [
    "distributed>=2023.5",  # the last for Python 3.8
]

ONNX = [
    "onnx>=1.14",  # the first that infers the type of one node's outputs
    "onnxruntime>=1.15",
]

# OpenVINO, for `mxamp race` and `mxamp export --for openvino-bf16`: 200 MB, not in the tests' environment.
OPENVINO = [
    *ONNX,
    "openvino>=2024.0; python_version >= '3.10'",
]

TEST = [
    *ONNX,
    "pytest>=8.2",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
]

FUZZ = ["atheris>=2.3; sys_platform != 'win32'"]

DEV = [
    *TEST,
    *DASK,
    "pycocotools<2.0.8; python_version < '3.12'",  # GluonCV's COCO metrics; newer ones want a newer NumPy
    "mypy>=1.14",
    "ruff>=0.17",
]

# Where the repository is published, by whoever publishes it (docs/releasing.md)
URL = os.environ.get("MXAMP_URL", "").strip().rstrip("/")

setup(
    name="mxamp",
    version=read_version(),
    description="Turn trained FP32 MXNet models into mixed-precision ones (float16, bfloat16) for inference.",
    long_description=read_long_description(URL),
    long_description_content_type="text/markdown",
    author="The mxamp maintainers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    project_urls={
        "Documentation": f"{URL}/blob/v{read_version()}/docs/README.md",
        "Changelog": f"{URL}/blob/v{read_version()}/CHANGELOG.md",
        "Source": URL,
        "Issues": f"{URL}/issues",
    }
    if URL
    else {},
    keywords="mxnet gluon gluoncv mixed-precision bfloat16 float16 amp inference",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Environment :: GPU :: NVIDIA CUDA",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.8",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
    python_requires=">=3.8,<3.14",
    py_modules=["mxamp_command"],
    packages=find_packages(include=["mxamp", "mxamp.*"]),
    package_data={
        "mxamp": ["py.typed"],
        "mxamp.html": ["assets/*"],
        "mxamp.ops": ["src/*.h", "src/*.cc"],
        "mxamp.policy": ["tables/*.toml"],
        "mxamp.targets": ["builtin/*.json"],
    },
    distclass=NativeDistribution,
    cmdclass={"build_ext": BuildNative, "bdist_wheel": PlatformWheel},
    zip_safe=False,
    install_requires=CORE,
    extras_require={
        "mxnet": MXNET,
        "zoo": ZOO,
        "demo": DEMO,
        "dask": DASK,
        "onnx": ONNX,
        "openvino": OPENVINO,
        "test": TEST,
        "dev": DEV,
        "fuzz": FUZZ,
    },
    entry_points={"console_scripts": ["mxamp = mxamp_command:main"]},
)
