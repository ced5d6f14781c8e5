"""Train a small language model with the Trainer of Hugging Face, and DeepSpeed's ZeRO where --deepspeed names a file.

    torchrun --standalone --nproc-per-node 2 train.py --deepspeed zero2.json --max_steps 200

The model is made from a configuration and learns to repeat what it has read: nothing is downloaded. GPUs are used where
there are any, else the CPU. All options of TrainingArguments can be given. A model of yours takes the place of
make_model(), and your data that of Refrains.

Checkpoints go to $MUSTER_RUN_DIRECTORY/checkpoints, and --resume_from_checkpoint true goes on from the newest of
--output_dir. The last line of rank 0, MUSTER_RESULT, is shown in the summary of a run.
"""

from __future__ import annotations

import gc
import json
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: imported later it keeps it alive
from torch.distributed.elastic.multiprocessing.errors import record
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

WORDS = 31
PERIOD = 4
LENGTH = 16


class Refrains(torch.utils.data.Dataset):
    """Four random words, said four times: what comes after the first time can be known from it."""

    def __init__(self, held_out: bool) -> None:
        generator = torch.Generator().manual_seed(int(held_out))
        words = torch.randint(WORDS, (160 if held_out else 4096, PERIOD), generator=generator)
        self.lines = words.repeat(1, LENGTH // PERIOD)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.lines[index], "labels": self.lines[index]}


def make_model() -> GPT2LMHeadModel:
    """Some 100,000 weights."""
    torch.manual_seed(0)
    size = {"n_positions": LENGTH, "n_embd": 64, "n_layer": 2, "n_head": 4}
    ends = {"bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **size, **ends, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def accuracy(predicted: tuple[torch.Tensor, torch.Tensor]) -> dict[str, float]:
    """Share of words told rightly after the first time."""
    found, wanted = (torch.as_tensor(one) for one in predicted)
    return {"accuracy": (found[:, PERIOD - 1 : -1] == wanted[:, PERIOD:]).float().mean().item()}


def parse_arguments() -> TrainingArguments:
    """Options of TrainingArguments, some of which have other defaults here."""
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


@record  # the traceback of a failed rank goes where the launcher looks for it
def main() -> None:
    arguments = parse_arguments()
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # several ranks share the cores
    train(arguments)
    gc.collect()  # what holds the group, and so threads of gloo
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
    done = trainer.train(resume_from_checkpoint=newest if resume == "true" else arguments.resume_from_checkpoint)
    told = trainer.evaluate()
    trainer.save_model()
    if trainer.is_world_process_zero():
        result = {
            "accuracy": round(told["eval_accuracy"], 4),
            "loss": round(done.training_loss, 4),
            "samples_per_second": done.metrics["train_samples_per_second"],
            "checkpoint": os.path.abspath(arguments.output_dir),
        }
        print("MUSTER_RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
