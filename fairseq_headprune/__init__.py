"""Attention-head gates, importance, pruning and their statistics for fairseq's translation models and BERT.

``fairseq-train --user-dir fairseq_headprune`` registers the package's architectures, tasks and losses. In Python,
``import fairseq_headprune`` does so if fairseq has been imported already, ``import fairseq_headprune.plugin`` always.
"""

import importlib
import os
import sys

__version__ = "0.1.0"

_NAME = "fairseq_headprune"


class _Folders(list[str]):
    """The package's folder (``__path__``), equal to any path to it: a link, a relative name, with ``..``.

    If a package with the name given by ``--user-dir`` is already imported, fairseq does not import it again; it only
    checks whether the package's folder is that one. This check triggers registration if fairseq was imported after us.
    """

    def __contains__(self, folder: object) -> bool:
        path = str(folder)
        if not os.path.exists(path) or not any(os.path.samefile(path, own) for own in self):
            return False
        importlib.import_module(f"{_NAME}.plugin")
        return True


def _be_one_package() -> None:
    """If fairseq imports the package through a link with another name, use this package instead of a second copy.

    Raises:
        ImportError: the folder is not a link to the package ``fairseq_headprune``.
    """
    folder = os.path.realpath(os.path.dirname(__file__))
    # First: where another copy is installed, the one that the link names is meant.
    sys.path.insert(0, os.path.dirname(folder))
    try:
        package = importlib.import_module(_NAME)
    finally:
        sys.path.remove(os.path.dirname(folder))
    if os.path.realpath(os.path.dirname(str(package.__file__))) != folder:
        raise ImportError(f"{folder} is a copy of {_NAME} under another name; give the folder {_NAME} itself")
    importlib.import_module(f"{_NAME}.plugin")
    ours = {name: module for name, module in sys.modules.items() if name.split(".")[0] == _NAME}
    sys.modules.update({__name__ + name.removeprefix(_NAME): module for name, module in ours.items()})


if __name__ != _NAME:
    _be_one_package()
else:
    __path__ = _Folders(__path__)
    if "fairseq" in sys.modules:
        importlib.import_module(f"{_NAME}.plugin")
