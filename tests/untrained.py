"""Checkpoints as fairseq-train writes them, without a training: what is built from its flags is saved as it is."""

from pathlib import Path

import torch
from fairseq import criterions, options, tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf
from torch import nn

from fairseq_headprune.files import PathLike


def write_checkpoint(data: PathLike, path: Path, *flags: str) -> Path:
    """Build task, criterion and model from fairseq-train's flags, and write them as a training of no update would.

    The weights are random, drawn with seed 1, those of linear layers four times as large as fairseq's: translations
    then depend on the source and on the mask.
    """
    words = [str(data), "--cpu", "--optimizer", "adam", "--lr", "0.01", "--max-tokens", "4000", *flags]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    torch.manual_seed(1)
    task = tasks.setup_task(cfg.task)
    model = task.build_model(cfg.model)
    criterion = criterions.build_criterion(cfg.criterion, task)
    with torch.no_grad():
        for module in model.modules():
            if type(module) is nn.Linear:
                module.weight *= 4
    history = {"criterion_name": type(criterion).__name__, "optimizer_name": "FairseqAdam", "num_updates": 0}
    state = {
        "args": None,
        "cfg": OmegaConf.to_container(cfg, resolve=True, enum_to_str=True),
        "model": model.state_dict(),
        "criterion": criterion.state_dict(),
        "optimizer_history": [{**history, "lr_scheduler_state": {}}],
        "task_state": task.state_dict(),
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": None},
        "last_optimizer_state": {},
    }
    torch.save(state, path)
    return path
