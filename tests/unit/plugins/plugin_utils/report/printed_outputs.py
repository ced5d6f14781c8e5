# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Output of training programs with the expected curves, and output of other programs without any."""

from __future__ import annotations

Values = dict[str, list[tuple[float, float]]]

# Name of the program: its output, and (step, value) for each curve that must be extracted. Other curves are allowed.
TRAINING: dict[str, tuple[str, Values]] = {
    "nanoGPT train.py": (
        """\
tokens per iteration will be: 16,384
number of parameters: 10.65M
step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2654, time 34.12ms, mfu -100.00%
iter 10: loss 3.2377, time 12.71ms, mfu 29.30%
iter 20: loss 2.7884, time 12.80ms, mfu 29.28%
step 250: train loss 1.9632, val loss 2.0655
""",
        {
            "loss": [(0, 4.2654), (10, 3.2377), (20, 2.7884)],
            "train loss": [(0, 4.2874), (250, 1.9632)],
            "val loss": [(0, 4.2823), (250, 2.0655)],
        },
    ),
    "minGPT demo": (
        """\
iter_dt 0.00ms; iter 0: train loss 1.06340
iter_dt 21.05ms; iter 100: train loss 0.16402
iter_dt 20.31ms; iter 200: train loss 0.06511
""",
        {"train loss": [(0, 1.0634), (100, 0.16402), (200, 0.06511)]},
    ),
    "llm.c train_gpt2.py": (
        """\
step    1/10 | train loss 5.270007 | norm 31.2300 | lr 1.00e-04 | (1602.60 ms | 160 tok/s)
step    2/10 | train loss 4.059714 | norm 17.2600 | lr 1.00e-04 | (1430.14 ms | 179 tok/s)
val loss 4.515787
step    3/10 | train loss 3.375104 | norm 9.8500 | lr 1.00e-04 | (1441.81 ms | 178 tok/s)
""",
        {"train loss": [(1, 5.270007), (2, 4.059714), (3, 3.375104)]},
    ),
    "pytorch/examples mnist": (
        """\
Train Epoch: 1 [0/60000 (0%)]\tLoss: 2.282550
Train Epoch: 1 [640/60000 (1%)]\tLoss: 1.383931
\nTest set: Average loss: 0.0478, Accuracy: 9848/10000 (98%)\n
Train Epoch: 2 [0/60000 (0%)]\tLoss: 0.071331
\nTest set: Average loss: 0.0351, Accuracy: 9883/10000 (99%)\n
""",
        {"loss": [(0, 2.28255), (640, 1.383931), (60000, 0.071331)]},
    ),
    "pytorch/examples imagenet": (
        """\
Epoch: [0][  1/196]\tTime  5.309 ( 5.309)\tData  3.120 ( 3.120)\tLoss 6.9873e+00 (6.9873e+00)\tAcc@1   0.00 (  0.00)
Epoch: [0][ 11/196]\tTime  0.310 ( 0.771)\tData  0.000 ( 0.284)\tLoss 6.8120e+00 (6.9021e+00)\tAcc@1   1.56 (  0.43)
Test: [ 1/40]\tTime  2.1 ( 2.1)\tLoss 6.5001e+00 (6.5001e+00)\tAcc@1   3.12 (  3.12)
 *   Acc@1 4.330 Acc@5 13.120
Epoch: [1][  1/196]\tTime  5.009 ( 5.009)\tData  3.020 ( 3.020)\tLoss 6.2001e+00 (6.2001e+00)\tAcc@1   4.69 (  4.69)
""",
        {"loss": [(1, 6.9873), (11, 6.812), (197, 6.2001)], "acc@1": [(1, 0.0), (11, 1.56), (197, 4.69)]},
    ),
    "torchvision references MetricLogger": (
        """\
Epoch: [0]  [  0/938]  eta: 0:05:12  lr: 0.01  img/s: 96.1  loss: 2.3561 (2.3561)  acc1: 9.3750 (9.3750)  time: 0.33
Epoch: [0]  [ 10/938]  eta: 0:02:10  lr: 0.01  img/s: 230.4  loss: 2.1040 (2.2003)  acc1: 21.8750 (18.1818)  time: 0.1
Test:  [ 0/79]  eta: 0:00:08  loss: 1.9512 (1.9512)  acc1: 40.6250 (40.6250)  time: 0.1039  data: 0.07
Epoch: [1]  [  0/938]  eta: 0:01:50  lr: 0.01  img/s: 250.0  loss: 1.5011 (1.5011)  acc1: 51.5625 (51.5625)
Test:  [78/79]  eta: 0:00:00  loss: 1.2034 (1.3301)  acc1: 62.5000 (55.0300)  time: 0.04  data: 0.01
""",
        {
            "loss": [(0, 2.3561), (10, 2.104), (938, 1.5011)],
            "test acc1": [(0, 40.625), (78, 62.5)],
            "lr": [(0, 0.01), (10, 0.01), (938, 0.01)],
        },
    ),
    "timm's evaluation, whose last batch has the number that others show as the total": (
        """\
Train: 0 [   3/4 (100%)]  Loss: 0.664 (0.727)  Time: 0.409s,   19.55/s  (0.941s,    8.50/s)  LR: 1.000e-05
Test: [   0/2]  Time: 1.058 (1.058)  Loss:   0.670 ( 0.670)  Acc@1:  75.000 ( 75.000)  Acc@5: 100.000 (100.000)
Test: [   1/2]  Time: 0.331 (0.694)  Loss:   0.666 ( 0.668)  Acc@1:  87.500 ( 81.250)  Acc@5: 100.000 (100.000)
Test: [   2/2]  Time: 0.064 (0.484)  Loss:   0.729 ( 0.688)  Acc@1:  12.500 ( 58.333)  Acc@5: 100.000 (100.000)
Test: [   0/2]  Time: 0.187 (0.187)  Loss:   0.710 ( 0.710)  Acc@1:  62.500 ( 62.500)  Acc@5: 100.000 (100.000)
Test: [   1/2]  Time: 0.050 (0.119)  Loss:   0.720 ( 0.715)  Acc@1:  37.500 ( 50.000)  Acc@5: 100.000 (100.000)
Test: [   2/2]  Time: 0.080 (0.106)  Loss:   0.704 ( 0.711)  Acc@1:  25.000 ( 41.667)  Acc@5: 100.000 (100.000)
""",
        {
            "test loss": [(0, 0.67), (1, 0.666), (2, 0.729), (3, 0.71), (4, 0.72), (5, 0.704)],
            "test acc@5": [(number, 100.0) for number in range(6)],
        },
    ),
    "tqdm from 0, whose bar is drawn once more at its end": (
        "".join(
            f"\rEpoch {epoch}: {step * 50:3}%|██| {step}/2 [00:01<00:05, 1.22it/s, loss={loss}]"
            for epoch, losses in enumerate([(3.0, 2.5, 2.5), (2.0, 1.5, 1.5)])
            for step, loss in enumerate(losses)
        )
        + "\n",
        {"loss": [(0, 3.0), (1, 2.5), (2, 2.0), (3, 1.5), (4, 1.5)]},
    ),
    "timm train.py": (
        """\
Train: 0 [   0/1251 (  0%)]  Loss: 6.94 (6.94)  Time: 2.345s,  109.17/s  LR: 1.000e-05  Data: 1.2 (1.2)
Train: 0 [  50/1251 (  4%)]  Loss: 6.92 (6.93)  Time: 0.331s,  773.22/s  LR: 1.000e-05  Data: 0.0 (0.0)
Test: [   0/195]  Time: 1.100 (1.100)  Loss:   6.310 ( 6.310)  Acc@1:   3.125 (  3.125)  Acc@5:  10.156 ( 10.156)
Train: 1 [   0/1251 (  0%)]  Loss: 6.51 (6.51)  Time: 1.345s,  190.17/s  LR: 2.000e-04  Data: 1.0 (1.0)
Test: [ 195/195]  Time: 0.300 (0.250)  Loss:   5.910 ( 6.010)  Acc@1:   9.375 (  7.125)  Acc@5:  20.156 ( 19.0)
""",
        {"loss": [(0, 6.94), (50, 6.92), (1251, 6.51)], "test acc@1": [(0, 3.125), (195, 9.375)]},
    ),
    "Hugging Face Trainer": (
        """\
{'loss': 2.7046, 'grad_norm': 7.2167, 'learning_rate': 4.9e-05, 'epoch': 0.05}
{'loss': 2.1933, 'grad_norm': 5.0012, 'learning_rate': 4.8e-05, 'epoch': 0.11}
{'eval_loss': 1.9021, 'eval_accuracy': 0.61, 'eval_runtime': 12.1, 'eval_samples_per_second': 82.6, 'epoch': 0.11}
{'loss': 1.8410, 'grad_norm': 4.1, 'learning_rate': 4.7e-05, 'epoch': 0.16}
""",
        {
            "loss": [(0.05, 2.7046), (0.11, 2.1933), (0.16, 1.841)],
            "grad_norm": [(0.05, 7.2167), (0.11, 5.0012), (0.16, 4.1)],
        },
    ),
    "Hugging Face Trainer 5, whose numbers are texts": (
        """\
{'loss': '2.705', 'grad_norm': '7.217', 'learning_rate': '4.9e-05', 'epoch': '1'}
{'loss': '2.193', 'grad_norm': '5.001', 'learning_rate': '4.8e-05', 'epoch': '2'}
""",
        {"loss": [(1, 2.705), (2, 2.193)], "learning_rate": [(1, 4.9e-05), (2, 4.8e-05)]},
    ),
    "tqdm with a postfix": (
        "".join(
            f"\r {step * 10:3}%|{'█' * step:10}| {step}/10 [00:01<00:05, 1.22it/s, loss={3 / step:.2f}, lr=0.001]"
            for step in range(1, 4)
        )
        + "\n",
        {"loss": [(1, 3.0), (2, 1.5), (3, 1.0)], "lr": [(1, 0.001), (2, 0.001), (3, 0.001)]},
    ),
    "PyTorch Lightning's progress bar": (
        "Epoch 0:  50%|█████     | 469/938 [00:05<00:05, 89.1it/s, v_num=0, train_loss=0.453]\r"
        "Epoch 0: 100%|██████████| 938/938 [00:10<00:00, 89.2it/s, v_num=0, train_loss=0.301]\r"
        "Epoch 1:  50%|█████     | 469/938 [00:05<00:05, 90.0it/s, v_num=0, train_loss=0.250]\n",
        {"train_loss": [(469, 0.453), (938, 0.301), (1407, 0.25)]},
    ),
    "Keras, one line per epoch": (
        """\
Epoch 1/3
938/938 - 4s - 4ms/step - accuracy: 0.8771 - loss: 0.4312 - val_accuracy: 0.9512 - val_loss: 0.1670
Epoch 2/3
938/938 - 3s - 3ms/step - accuracy: 0.9581 - loss: 0.1433 - val_accuracy: 0.9660 - val_loss: 0.1131
Epoch 3/3
938/938 - 3s - 3ms/step - accuracy: 0.9702 - loss: 0.0991 - val_accuracy: 0.9701 - val_loss: 0.0990
""",
        {
            "val_loss": [(938, 0.167), (1876, 0.1131), (2814, 0.099)],
            "accuracy": [(938, 0.8771), (1876, 0.9581), (2814, 0.9702)],
        },
    ),
    "Ultralytics": (
        """\
      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
        1/3      2.61G      1.153      1.398      1.192         81        640: 100%|████| 8/8 [00:01<00:00, 7.83it/s]
                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|█| 1/1 [00:00, 4.8it/s]
                   all          4         17      0.617       0.56      0.622      0.487
      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
        2/3      2.56G      1.141      1.345      1.190        121        640: 100%|████| 8/8 [00:00<00:00, 9.01it/s]
        3/3      2.57G      1.101      1.243      1.171         93        640: 100%|████| 8/8 [00:00<00:00, 9.10it/s]
""",
        {"box_loss": [(1, 1.153), (2, 1.141), (3, 1.101)], "cls_loss": [(1, 1.398), (2, 1.345), (3, 1.243)]},
    ),
    "fastai": (
        """\
epoch     train_loss  valid_loss  accuracy  error_rate  time
0         0.168456    0.016234    0.994587  0.005413    00:10
1         0.051234    0.010011    0.997294  0.002706    00:11
""",
        {"train_loss": [(0, 0.168456), (1, 0.051234)], "accuracy": [(0, 0.994587), (1, 0.997294)]},
    ),
    "skorch": (
        """\
  epoch    train_loss    valid_acc    valid_loss     dur
-------  ------------  -----------  ------------  ------
      1        \x1b[36m0.6905\x1b[0m       \x1b[32m0.6150\x1b[0m        \x1b[35m0.6749\x1b[0m  0.2245
      2        \x1b[36m0.6648\x1b[0m       \x1b[32m0.6450\x1b[0m        \x1b[35m0.6633\x1b[0m  0.0197
""",
        {"train_loss": [(1, 0.6905), (2, 0.6648)], "valid_acc": [(1, 0.615), (2, 0.645)]},
    ),
    "Transformers in a notebook": (
        "Step\tTraining Loss\tValidation Loss\n500\t0.512300\t0.481200\n1000\t0.401100\t0.422700\n",
        {"training loss": [(500, 0.5123), (1000, 0.4011)], "validation loss": [(500, 0.4812), (1000, 0.4227)]},
    ),
    "Megatron-LM": (
        """\
 [2026-11-25 09:46:40] iteration       10/     100 | consumed samples:         2560 | elapsed time per iteration (ms): \
613.2 | learning rate: 4.687500E-06 | global batch size:   256 | lm loss: 1.083145E+01 | loss scale: 1.0 | grad norm: \
21.374 | number of skipped iterations:   0 | number of nan iterations:   0 |
 [2026-11-25 09:46:46] iteration       20/     100 | consumed samples:         5120 | elapsed time per iteration (ms): \
611.9 | learning rate: 9.375000E-06 | global batch size:   256 | lm loss: 1.021800E+01 | loss scale: 1.0 | grad norm: \
11.002 | number of skipped iterations:   0 | number of nan iterations:   0 |
""",
        {
            "lm loss": [(10, 10.83145), (20, 10.218)],
            "grad norm": [(10, 21.374), (20, 11.002)],
            "learning rate": [(10, 4.6875e-06), (20, 9.375e-06)],
        },
    ),
    "fairseq with json": (
        """\
2026-11-25 09:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.055, "loss": "9.871", "ppl": "936.1", "wps": \
"21000", "num_updates": "100", "lr": "1.25e-05", "gnorm": "2.91", "clip": "0", "wall": "41"}
2026-11-25 09:01:00 | INFO | train_inner | {"epoch": 1, "update": 0.11, "loss": "8.990", "ppl": "508.6", "wps": \
"21400", "num_updates": "200", "lr": "2.5e-05", "gnorm": "1.90", "clip": "0", "wall": "79"}
""",
        {"loss": [(100, 9.871), (200, 8.99)], "ppl": [(100, 936.1), (200, 508.6)]},
    ),
    "fairseq, its older form": (
        """\
| epoch 010:   1000 / 8223 loss=1.27 (1.50), wps=962, wpb=908, bsz=32, lr=0.001, clip=100%, gnorm=2.1427
| epoch 010:   2000 / 8223 loss=1.28 (1.49), wps=962, wpb=908, bsz=32, lr=0.001, clip=100%, gnorm=2.1507
""",
        {"loss": [(1000, 1.27), (2000, 1.28)], "gnorm": [(1000, 2.1427), (2000, 2.1507)]},
    ),
    "DeepSpeed-Chat": (
        """\
Epoch: 0, Step: 0, Rank: 0, loss = 2.8515625
Epoch: 0, Step: 1, Rank: 0, loss = 2.5078125
Epoch: 0, Step: 2, Rank: 0, loss = 2.25
""",
        {"loss": [(0, 2.8515625), (1, 2.5078125), (2, 2.25)]},
    ),
    "the PyTorch quickstart": (
        """\
Epoch 1
-------------------------------
loss: 2.302806  [   64/60000]
loss: 2.294006  [ 6464/60000]
Test Error:
 Accuracy: 45.4%, Avg loss: 2.151920
Epoch 2
-------------------------------
loss: 2.168806  [   64/60000]
Test Error:
 Accuracy: 57.2%, Avg loss: 1.885420
""",
        {
            "loss": [(64, 2.302806), (6464, 2.294006), (60064, 2.168806)],
            "accuracy": [(1, 45.4), (2, 57.2)],
            "avg loss": [(1, 2.15192), (2, 1.88542)],
        },
    ),
    "the PyTorch CIFAR-10 tutorial": (
        """\
[1,  2000] loss: 2.170
[1,  4000] loss: 1.840
[1,  6000] loss: 1.671
""",
        {"loss": [(2000, 2.17), (4000, 1.84), (6000, 1.671)]},
    ),
    "DeepSpeed's CIFAR-10 example, over two epochs": (
        """\
[ 1,    10] loss:  2.303
[ 1,    20] loss:  2.281
[ 2,    10] loss:  2.102
[ 2,    20] loss:  1.950
""",
        {"loss": [(10, 2.303), (20, 2.281), (30, 2.102), (40, 1.95)]},
    ),
    "mmdetection": (
        """\
2026/11/25 09:00:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 1.9820e-03  eta: 12:11:01  time: 0.4989  \
data_time: 0.0071  memory: 3782  loss: 1.2801  loss_rpn_cls: 0.3512  loss_cls: 0.6102  acc: 92.1875
2026/11/25 09:00:25 - mmengine - INFO - Epoch(train)  [1][ 100/7330]  lr: 3.9840e-03  eta: 12:01:01  time: 0.4889  \
data_time: 0.0070  memory: 3782  loss: 1.1020  loss_rpn_cls: 0.3001  loss_cls: 0.5313  acc: 93.3594
""",
        {"loss": [(50, 1.2801), (100, 1.102)], "loss_cls": [(50, 0.6102), (100, 0.5313)]},
    ),
    "detectron2": (
        """\
[11/25 09:00:00 d2.utils.events]:  eta: 0:03:01  iter: 19  total_loss: 2.013  loss_cls: 0.7311  loss_box_reg: 0.6112  \
time: 0.5001  last_time: 0.5102  data_time: 0.0102  lr: 4.9953e-06  max_mem: 2722M
[11/25 09:00:10 d2.utils.events]:  eta: 0:02:51  iter: 39  total_loss: 1.802  loss_cls: 0.6099  loss_box_reg: 0.6021  \
time: 0.4901  last_time: 0.4802  data_time: 0.0063  lr: 9.9902e-06  max_mem: 2722M
""",
        {"total_loss": [(19, 2.013), (39, 1.802)], "loss_box_reg": [(19, 0.6112), (39, 0.6021)]},
    ),
    "maskrcnn-benchmark": (
        """\
2026-08-13 19:12:26,520 maskrcnn_benchmark INFO: eta: 1:05:16  iter: 26000  loss: 0.0018 (0.0215)  loss_rel: 0.0000 \
(0.0002)  time: 0.9628 (0.9792)  data: 0.0123 (0.0197)  lr: 0.000009  max mem: 8478
2026-08-13 19:15:40,100 maskrcnn_benchmark INFO: eta: 1:02:01  iter: 26200  loss: 0.0015 (0.0214)  loss_rel: 0.0000 \
(0.0002)  time: 0.9630 (0.9790)  data: 0.0120 (0.0197)  lr: 0.000009  max mem: 8478
""",
        {"loss": [(26000, 0.0018), (26200, 0.0015)]},
    ),
    "open_clip": (
        """\
2026-11-25,09:00:00 | INFO | Train Epoch: 0 [  2048/100000 (2%)] Data (t): 0.123 Batch (t): 0.456, 4491.2/s \
LR: 0.000050 Logit Scale: 14.286 Contrastive_loss: 7.6213 (7.6213) Loss: 7.6213 (7.6213)
2026-11-25,09:00:20 | INFO | Train Epoch: 0 [206848/100000 (2%)] Data (t): 0.123 Batch (t): 0.456, 4491.2/s \
LR: 0.000100 Logit Scale: 14.286 Contrastive_loss: 7.1002 (7.3) Loss: 7.1002 (7.3)
2026-11-25,09:00:40 | INFO | Train Epoch: 0 [ 40960/100000 (41%)] Data (t): 0.120 Batch (t): 0.456, 4491.2/s \
LR: 0.000100 Logit Scale: 14.287 Contrastive_loss: 6.9001 (7.0) Loss: 6.9001 (7.0)
""",
        {"loss": [(2048, 7.6213), (40960, 6.9001)]},
    ),
    "torchtitan": (
        """\
[rank0]:[titan] 2026-11-25 09:00:00,000 - root - INFO - step:  1  loss: 12.2721  grad_norm:  4.0012  memory:  2.51GiB\
(3.17%)  tps: 1,021  tflops: 12.12  mfu: 1.31%
[rank0]:[titan] 2026-11-25 09:00:05,000 - root - INFO - step: 10  loss:  8.1021  grad_norm:  2.1100  memory:  2.60GiB\
(3.28%)  tps: 9,980  tflops: 80.20  mfu: 12.40%
""",
        {"loss": [(1, 12.2721), (10, 8.1021)], "grad_norm": [(1, 4.0012), (10, 2.11)], "mfu": [(1, 1.31), (10, 12.4)]},
    ),
    "torchtune": (
        """\
1|1|Loss: 2.1912:   1%|          | 1/100 [00:02<04:10, 2.53s/it]\r1|2|Loss: 2.0101:   2%|▏         | 2/100 [00:04<04:0\
0,  2.45s/it]\r1|3|Loss: 1.9440:   3%|▎         | 3/100 [00:07<03:55,  2.43s/it]
""",
        {"loss": [(1, 2.1912), (2, 2.0101), (3, 1.944)]},
    ),
    "lerobot": (
        """\
INFO 2026-11-25 09:00:00 ts/train.py:232 step:200 smpl:2K ep:3 epch:0.06 loss:3.706 grdn:94.749 lr:1.0e-05 updt_s:0.12
INFO 2026-11-25 09:00:30 ts/train.py:232 step:400 smpl:3K ep:6 epch:0.12 loss:2.806 grdn:74.267 lr:1.0e-05 updt_s:0.12
""",
        {"loss": [(200, 3.706), (400, 2.806)], "lr": [(200, 1e-05), (400, 1e-05)]},
    ),
    "Stable-Baselines3": (
        "".join(
            f"""\
| rollout/           |          |
|    ep_len_mean     | {length} |
|    ep_rew_mean     | {reward} |
| time/              |          |
|    total_timesteps | {total}     |
------------------------------
"""
            for length, reward, total in ((21.4, 21.4, 2048), (26.0, 26.5, 4096), (35.1, 35.2, 6144))
        ),
        {"ep_rew_mean": [(0, 21.4), (1, 26.5), (2, 35.2)]},
    ),
    "CleanRL": (
        """\
global_step=2048, episodic_return=[21.], loss=0.51
global_step=4096, episodic_return=[31.], loss=0.42
""",
        {"loss": [(2048, 0.51), (4096, 0.42)]},
    ),
    "XGBoost": (
        """\
[0]\tvalidation_0-logloss:0.60413\tvalidation_0-auc:0.96110
[1]\tvalidation_0-logloss:0.53101\tvalidation_0-auc:0.97020
[2]\tvalidation_0-logloss:0.47001\tvalidation_0-auc:0.97500
""",
        {"validation_0-auc": [(0, 0.9611), (1, 0.9702), (2, 0.975)]},
    ),
    "OpenNMT-py": (
        """\
[2026-11-25 09:00:00,000 INFO] Step 50/100000; acc: 7.15; ppl: 8541.20; xent: 9.05; lr: 0.00001; sents: 3000
[2026-11-25 09:00:30,000 INFO] Step 100/100000; acc: 12.02; ppl: 2101.00; xent: 7.65; lr: 0.00001; sents: 3011
""",
        {"acc": [(50, 7.15), (100, 12.02)], "ppl": [(50, 8541.2), (100, 2101.0)]},
    ),
    "a printed dictionary and a JSON line": (
        """\
{"step": 10, "train/loss": 1.5, "val": {"acc": 0.25}}
{"step": 20, "train/loss": 1.25, "val": {"acc": 0.5}}
""",
        {"train/loss": [(10, 1.5), (20, 1.25)], "acc": [(10, 0.25), (20, 0.5)]},
    ),
    "a script with plain prints": (
        "epoch 1 loss 0.93 time 12.1s\nepoch 2 loss 0.71 time 12.0s\nepoch 3 loss nan time 12.2s\n",
        {"loss": [(1, 0.93), (2, 0.71)]},
    ),
    "a CSV table on the terminal": (
        "epoch,loss,val_acc\n1,0.9,0.5\n2,0.7,0.625\n",
        {"loss": [(1, 0.9), (2, 0.7)], "val_acc": [(1, 0.5), (2, 0.625)]},
    ),
    "a Markdown table": (
        "| Epoch | Train Loss | Val Acc |\n|------:|-----------:|--------:|\n| 1 | 0.9 | 50.0 |\n| 2 | 0.7 | 62.5 |\n",
        {"train loss": [(1, 0.9), (2, 0.7)], "val acc": [(1, 50.0), (2, 62.5)]},
    ),
}

# Name of the program: its output
UNRELATED: dict[str, str] = {
    "pip": """\
Collecting torch==2.13.0
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl (821.1 MB)
     \u2501\u2501\u2501\u2501\u2501\u2501 821.1/821.1 MB 3.2 MB/s eta 0:00:00
Installing collected packages: mpmath, typing-extensions, sympy, torch
Successfully installed mpmath-1.3.0 sympy-1.13.3 torch-2.13.0
""",
    "apt": """\
Get:1 http://archive.ubuntu.com/ubuntu jammy InRelease [270 kB]
Fetched 38.1 MB in 4s (9,512 kB/s)
0 upgraded, 12 newly installed, 0 to remove and 3 not upgraded.
Setting up libc6-dev:amd64 (2.35-0ubuntu3.8) ...
""",
    "NCCL": """\
node1:275975:275975 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
node1:275975:276011 [0] NCCL INFO comm 0x55d rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1e0 commId 0x9 - Init START
node1:275975:276011 [0] NCCL INFO Channel 00/24 :    0   1   2   3   4   5   6   7
node1:275975:276011 [0] NCCL INFO 16 coll channels, 16 nvls channels, 16 p2p channels, 2 p2p channels per peer
node1:275975:276011 [0] NCCL INFO ncclCommInitRank Init timings - total 1.33 (kernels 0.1, alloc 0.52, bootstrap 0.03)
""",
    "nvidia-smi": """\
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
| N/A   34C    P0             57W /  400W |       0MiB /  40960MiB |      0%      Default |
""",
    "a web server's access log": """\
10.0.0.1 - - [25/Nov/2026:09:46:40 +0000] "GET /train?loss=0.31&acc=0.9&epoch=3 HTTP/1.1" 200 612 "-" "curl/8" 0.003
10.0.0.1 - - [25/Nov/2026:09:46:41 +0000] "GET /train?loss=0.30&acc=0.91&epoch=4 HTTP/1.1" 200 612 "-" "curl/8" 0.002
10.0.0.1 - - [25/Nov/2026:09:46:42 +0000] "GET /train?loss=0.29&acc=0.92&epoch=5 HTTP/1.1" 200 612 "-" "curl/8" 0.002
""",
    "pytest": """\
tests/test_loss.py::test_loss[0.5] PASSED                                [ 25%]
tests/test_loss.py::test_accuracy[3-1.5] PASSED                          [ 50%]
tests/test_train.py ..F.                                                 [100%]
E       assert 0.31 < 0.3
========================= 1 failed, 5 passed in 2.31s =========================
""",
    "git": """\
remote: Enumerating objects: 5042, done.
Receiving objects: 100% (5042/5042), 12.31 MiB | 8.20 MiB/s, done.
Resolving deltas: 100% (3120/3120), done.
 train.py | 12 +++++++-----
 2 files changed, 7 insertions(+), 5 deletions(-)
""",
    "rsync": """\
sending incremental file list
data/train/00001.tar
    104,857,600  10%  100.21MB/s    0:00:09 (xfr#1, to-chk=9/11)
total size is 1,048,576,000  speedup is 1.00
""",
    "make": """\
make[1]: Entering directory '/home/me/ext'
gcc -O3 -c loss.c -o loss.o -DLOSS=1.5 -DSTEP=10
gcc -O3 -c step.c -o step.o -DLOSS=2.5 -DSTEP=20
make[1]: Leaving directory '/home/me/ext'
""",
    "cmake": """\
-- The CXX compiler identification is GNU 11.4.0
-- Found CUDAToolkit: /usr/local/cuda/include (found version "12.4.131")
-- Configuring done (3.2s)
[ 12%] Building CXX object src/CMakeFiles/loss.dir/loss.cpp.o
""",
    "docker pull": """\
24.05-py3: Pulling from nvidia/pytorch
a8b1c5f80c2d: Pull complete
5e5b5b4dd1a1: Downloading [=====>        ]  312.4MB/2.81GB
Digest: sha256:0b1c2d
""",
    "ls -l": """\
total 1204
-rw-r--r-- 1 me me  10240 Nov 25 09:46 loss.csv
-rw-r--r-- 1 me me 204800 Nov 25 09:47 accuracy-0.91.pt
drwxr-xr-x 2 me me   4096 Nov 25 09:48 epoch 3
""",
    "top": """\
top - 09:46:40 up 3 days,  2:11,  1 user,  load average: 1.53, 1.43, 1.40
%Cpu(s): 12.0 us,  1.0 sy,  0.0 ni, 86.7 id,  0.0 wa,  0.0 hi,  0.3 si,  0.0 st
MiB Mem : 515732.1 total, 401234.5 free,  50123.4 used,  64374.2 buff/cache
 275975 me        20   0   42.1g   3.1g   1.1g R 102.3   0.6   3:12.40 python
""",
    "ping": """\
64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.321 ms
3 packets transmitted, 3 received, 0% packet loss, time 2031ms
packet loss: 0.5
packet loss: 0.6
packet loss: 0.7
rtt min/avg/max/mdev = 0.301/0.320/0.345/0.018 ms
""",
    "iperf3": """\
[ ID] Interval           Transfer     Bitrate         Retr  Cwnd
[  5]   0.00-1.00   sec  1.09 GBytes  9.38 Gbits/sec   12   1.5 MBytes
[  5]   1.00-2.00   sec  1.09 GBytes  9.36 Gbits/sec    3   1.5 MBytes
""",
    "systemd": """\
Nov 25 09:46:40 node1 systemd[1]: Started muster-first.service.
Nov 25 09:46:41 node1 kernel: mlx5_core 0000:3b:00.0 eth0: Link up
Nov 25 09:46:42 node1 chronyd[812]: System clock wrong by 0.000214 seconds
""",
    "a list of settings, printed twice": """\
lr: 0.001
loss: 1.0
label_smoothing: 0.1
loss_weight: 0.5
accuracy_threshold: 0.9
target_accuracy: 0.95
lr: 0.001
loss: 1.0
label_smoothing: 0.1
loss_weight: 0.5
accuracy_threshold: 0.9
target_accuracy: 0.95
""",
    "argparse": """\
Namespace(lr=0.001, loss=0.5, batch_size=32, epoch=3, acc=0.1)
Namespace(lr=0.002, loss=0.6, batch_size=32, epoch=4, acc=0.2)
Namespace(lr=0.003, loss=0.7, batch_size=32, epoch=5, acc=0.3)
""",
    "torchrun": """\
W0325 21:16:42.796000 578 site-packages/torch/distributed/run.py:792] *****************************************
W0325 21:16:42.796000 578 site-packages/torch/distributed/run.py:792] Setting OMP_NUM_THREADS environment variable
[rank0]:[W1124 ProcessGroupNCCL.cpp:1250] Warning: process group has NOT been destroyed
""",
    "a traceback": """\
Traceback (most recent call last):
  File "/home/me/train.py", line 31, in train
    loss = loss_fn(model(x), y)  # step 3
ValueError: Expected input batch_size (32) to match target batch_size (16).
""",
    "scikit-learn's classification report": """\
              precision    recall  f1-score   support

           0       0.97      0.99      0.98       980
           1       0.98      0.99      0.99      1135

    accuracy                           0.98     10000
   macro avg       0.98      0.98      0.98     10000
""",
    "apt's and dpkg's progress": "Progress: [ 12%] [##......]\r\nProgress: [ 25%] [####....]\r\n",
    "a download by huggingface_hub": (
        "model.safetensors:  10%|█         | 105M/1.05G [00:01<00:09, 98.1MB/s]\r"
        "model.safetensors:  20%|██        | 210M/1.05G [00:02<00:08, 99.0MB/s]\r"
        "Loading checkpoint shards: 100%|██████████| 2/2 [00:03<00:00,  1.51s/it]\n"
    ),
    "df": """\
Filesystem     1K-blocks     Used Available Use% Mounted on
/dev/nvme0n1p1 507930276 30514220 477399672   7% /
""",
    "a model's summary": """\
  | Name    | Type             | Params | Mode
0 | model   | ResNet           | 11.2 M | train
1 | loss    | CrossEntropyLoss | 0      | train
11.2 M    Trainable params
44.727    Total estimated model params size (MB)
""",
    "sentences": """\
In epoch 3 the loss was higher than expected, as step 5 of the paper explains.
Of 100 patients, 12 had a hearing loss of 30.5 dB, and weight loss 4.5 kg.
Accuracy is what counts. Perplexity 5 is fine.
""",
}
