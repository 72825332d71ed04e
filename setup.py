"""How the `tf-wu-shard` distribution is made: packages, dependencies, the `wu-shard` command."""

from __future__ import annotations

import pathlib

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent

# models/ stands beside tf_wu_shard/ in a checkout, as tests, tools and benchmarks share it, and
# ships inside it, so that the installed command needs no checkout.
MODEL_PACKAGES = ["tf_wu_shard.models"] + [
    f"tf_wu_shard.models.{name}" for name in find_packages(str(HERE / "models"))
]


def _readme() -> str:
    path = HERE / "README.md"
    return path.read_text(encoding="utf-8") if path.exists() else ""


setup(
    name="tf-wu-shard",
    version="0.1.0",
    description="Weight-update sharding for TensorFlow: the optimizer's work and memory, cut 1/N.",
    long_description=_readme(),
    long_description_content_type="text/markdown",
    python_requires=">=3.11",
    packages=[*find_packages(include=["tf_wu_shard", "tf_wu_shard.*"]), *MODEL_PACKAGES],
    package_dir={"tf_wu_shard.models": "models"},
    package_data={"tf_wu_shard": ["py.typed"]},
    install_requires=[
        # The releases whose private names are known, see docs/versions.md.
        "tensorflow>=2.18,<2.22",
        "numpy>=1.26",
        "absl-py>=1.0",
        "protobuf>=4.21",
    ],
    extras_require={
        # What the main job reads and how: tokens of real text, pictures of digits.
        "demo": ["tensorflow-text>=2.18,<2.22", "scikit-learn>=1.4"],
        # The TPU compiler, ahead of time; both know each other's versions by heart.
        "tpu-compile": ["jax>=0.10,<0.11", "libtpu>=0.0.51,<0.1"],
        # The documentation site: pages in Markdown, the API reference from docstrings.
        "docs": ["sphinx>=9.0,<10", "myst-parser>=5,<6", "furo>=2025.12"],
        "test": [
            *("pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100", "ruff", "mypy"),
            # The Keras before version 3, whose models are trained sharded too.
            "tf-keras>=2.18,<2.22",
            # Reads the Markdown that inspection writes as a code host does.
            "markdown-it-py>=3",
            # What TensorBoardReport writes is looked at in it.
            "tensorboard>=2.18,<2.22",
        ],
    },
    entry_points={"console_scripts": ["wu-shard = tf_wu_shard.cli.main:main"]},
)
