"""Train a small language model with the Hugging Face Trainer, and with DeepSpeed ZeRO if --deepspeed names a file.

    torchrun --standalone --nproc-per-node 2 train.py --deepspeed zero2.json --max_steps 200

The model is created from a configuration and learns to repeat its input: nothing is downloaded. Uses GPUs if there are
any, otherwise the CPU. Accepts all options of TrainingArguments. To train your own model, replace make_model() and
Refrains.

Checkpoints go to $MUSTER_RUN_DIRECTORY/checkpoints, and --resume_from_checkpoint true continues from the newest
one in --output_dir. The last line of rank 0, MUSTER_RESULT, is shown in the summary of a run.
"""

from __future__ import annotations

import gc
import json
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before the group exists: if imported later, it would keep the group alive
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY_SIZE = 31
PERIOD = 4
LENGTH = 16


class Refrains(torch.utils.data.Dataset):
    """Lines of four random words repeated four times, so that all words after the first four are predictable."""

    def __init__(self, held_out: bool) -> None:
        generator = torch.Generator().manual_seed(int(held_out))
        starts = torch.randint(VOCABULARY_SIZE, (160 if held_out else 4096, PERIOD), generator=generator)
        self.lines = starts.repeat(1, LENGTH // PERIOD)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.lines[index], "labels": self.lines[index]}


def make_model() -> GPT2LMHeadModel:
    """Return a model with about 100,000 parameters."""
    torch.manual_seed(0)
    size = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 4}
    ends = {"bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY_SIZE, **size, **ends, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    )


def accuracy(predicted: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    """Return the fraction of correctly predicted words after the first four."""
    predictions, labels = (torch.as_tensor(array) for array in predicted)
    return {"accuracy": (predictions[:, PERIOD - 1 : -1] == labels[:, PERIOD:]).float().mean().item()}


def parse_arguments() -> TrainingArguments:
    """Parse TrainingArguments options, some of which have different defaults here."""
    parser = HfArgumentParser(TrainingArguments)
    parser.set_defaults(
        output_dir=os.path.join(os.environ.get("MUSTER_RUN_DIRECTORY", "."), "checkpoints"),
        max_steps=300,
        learning_rate=3e-3,
        warmup_steps=10,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=40,
        logging_steps=20,
        save_steps=100,
        save_total_limit=2,
        report_to="none",
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    (arguments,) = parser.parse_args_into_dataclasses()
    return arguments


@record  # writes a failed rank's traceback to the file that the launcher reads
def main() -> None:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # several ranks share the cores
    train(arguments)
    gc.collect()  # objects that hold the group, and thereby gloo's threads
    if dist.is_initialized():
        dist.destroy_process_group()


def train(arguments: TrainingArguments) -> None:
    trainer = Trainer(
        model=make_model(),
        args=arguments,
        train_dataset=Refrains(held_out=False),
        eval_dataset=Refrains(held_out=True),
        compute_metrics=accuracy,
        preprocess_logits_for_metrics=lambda logits, _labels: logits.argmax(dim=-1),
    )
    resume = str(arguments.resume_from_checkpoint or "").lower()
    newest = get_last_checkpoint(arguments.output_dir) if os.path.isdir(arguments.output_dir) else None
    training = trainer.train(resume_from_checkpoint=newest if resume == "true" else arguments.resume_from_checkpoint)
    metrics = trainer.evaluate()
    trainer.save_model()
    if trainer.is_world_process_zero():
        result = {
            "accuracy": round(metrics["eval_accuracy"], 4),
            "loss": round(training.training_loss, 4),
            "samples_per_second": training.metrics["train_samples_per_second"],
            "checkpoint": os.path.abspath(arguments.output_dir),
        }
        print("MUSTER_RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
