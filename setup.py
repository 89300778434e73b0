"""What mxamp is called, what it needs, and what is installed with it."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent


def read_version() -> str:
    """Read the version from the source text: importing mxamp would need its dependencies first."""
    text = (ROOT / "mxamp" / "version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    if match is None:
        raise RuntimeError('mxamp/version.py has no line of the form __version__ = "1.2.3".')
    return match.group(1)


# The ranges below are what works; constraints/ holds the exact versions that were tested together.
CORE = [
    "numpy>=1.21",
    "scipy>=1.10",  # scipy.sparse.csgraph.maximum_flow got Dinic's algorithm in 1.10.
    "ml_dtypes>=0.2",
    "tomli>=1.2; python_version < '3.11'",  # The standard library reads TOML from 3.11 on ...
    "tomli_w>=1.0",  # ... and writes it in no version.
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

# The demonstration's images: the digits and the two photographs that come with scikit-learn.
DEMO = [
    *ZOO,
    "scikit-learn>=1.3; python_version < '3.12'",
]

TEST = [
    "pytest>=8.2",
    "pytest-xdist>=3.5",
    "hypothesis>=6.100",
]

DEV = [
    *TEST,
    "mypy>=1.14",
    "ruff>=0.17",
]

setup(
    name="mxamp",
    version=read_version(),
    description="Turn trained FP32 MXNet models into mixed-precision ones (float16, bfloat16) for inference.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    keywords="mxnet gluon gluoncv mixed-precision bfloat16 float16 amp inference",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.8",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    python_requires=">=3.8,<3.14",
    packages=find_packages(include=["mxamp", "mxamp.*"]),
    package_data={
        "mxamp": ["py.typed"],
        "mxamp.policy": ["tables/*.toml"],
        "mxamp.targets": ["builtin/*.json"],
    },
    zip_safe=False,
    install_requires=CORE,
    extras_require={"mxnet": MXNET, "zoo": ZOO, "demo": DEMO, "test": TEST, "dev": DEV},
    entry_points={"console_scripts": ["mxamp = mxamp.cli.main:main"]},
)
