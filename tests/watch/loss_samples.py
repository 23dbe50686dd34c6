"""Lines of training programs, each with its source, and what they tell: (source, line, value, step, rank)."""

from __future__ import annotations

LINES: tuple[tuple[str, str, float | None, int | None, int | None], ...] = (
    ("MindSpore docs, resnet50_expand_loss", "global_step: 194, loss: 1.997", 1.997, 194, None),
    ("MindSpore LossMonitor, model_zoo lenet", "epoch: 1 step: 1, loss is 2.3040335", 2.3040335, 1, None),
    ("MindSpore model_zoo dpn", "epoch: 1 step 5004, loss is 4.5680037", 4.5680037, 5004, None),
    (
        "MindFormers docs, msrun_log/worker_0.log",
        (
            "2025-04-07 15:34:27,308 - [mindformers/core/callback/callback.py:529] - INFO - { Epoch:[  1/  2], step:[    1/"
            "   19], loss: 10.649, per_step_time: 103328ms, lr: 0.0, overflow cond: False, loss_scale: 1.0, global_norm: "
            "[1 31049], train_throughput_per_npu: 2.896T"
        ),
        10.649,
        1,
        None,
    ),
    (
        "MindFormers, 2023, callback.py:269",
        (
            "[INFO] 2023-07-11 10:48:37,162 [callback.py:269] print_output_info: Epoch:[  1/  1], step:[  116/  125], "
            "loss:[2.220/2.220], time:1951.612 ms, lr:[2.4499998e-06], overflow cond: False, loss_scale: 16384.0"
        ),
        2.22,
        116,
        None,
    ),
    (
        "MindFormers, 2023, callback.py:146: the mean of a sink, beside the step's own line",
        "[INFO] callback.py:146] epoch_end: Per sink_size step time: 1958.791 ms, avg loss: 2.1",
        None,
        None,
        None,
    ),
    (
        "Megatron-DeepSpeed under torchrun",
        (
            "[default3]: iteration       10/  292968 | consumed samples:        10240 | elapsed time per iteration (s): "
            "35.8651 | learning rate: 4.734E-06 | global batch size:  1024 | lm loss: 1.332803E+01 | loss scale: 4096.0 | "
            "grad norm: 42.627 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        ),
        13.32803,
        10,
        3,
    ),
    (
        "Megatron-LM: all steps of the interval were skipped, and no loss is told",
        (
            " [2025-04-13 23:41:12] iteration       10/    1000 | consumed samples:      160 | elapsed time per iteration "
            "(ms): 1147.6 | learning rate: 0.000000E+00 | global batch size:    16 | loss scale: 8388608.0 | number of "
            "skipped iterations:  10 | number of nan iterations:   0 |"
        ),
        None,
        None,
        None,
    ),
    (
        "Megatron-LM with a mixture of experts",
        "iteration       50/      50 | lm loss: 8.114214E+00 | load_balancing_loss: 1.000000E+00 | loss scale: 1.0 |",
        8.114214,
        50,
        None,
    ),
    (
        "ROCm Primus over Megatron-LM",
        "[rank-31/32][INFO ] [--------trainer.py:2488] :  iteration    12125/   36000 | lm loss: 2.352391E+00 |",
        2.352391,
        12125,
        31,
    ),
    ("DeepSpeed pipeline engine", "steps: 200 loss: 5.5508 lm loss: 5.5103 iter time (s): 0.936", 5.5508, 200, None),
    (
        "Hugging Face Trainer",
        "{'loss': 1.3736, 'grad_norm': 3.4177560806274414, 'learning_rate': 0.0001, 'epoch': 1.0}",
        1.3736,
        None,
        None,
    ),
    ("Hugging Face Trainer, evaluation", "{'eval_loss': 1.0216, 'epoch': 1.0}", None, None, None),
    ("Hugging Face Trainer, end", "{'train_runtime': 12.1, 'train_loss': 1.2, 'epoch': 3.0}", None, None, None),
    (
        "LLaMA-Factory trainer_log.jsonl",
        '{"current_steps": 10, "total_steps": 189, "loss": 8.0, "lr": 1e-4}',
        8,
        10,
        None,
    ),
    (
        "Lightning",
        "Epoch 0:   6%|█▍   | 86/1563 [00:06<01:44, 14.19it/s, v_num=0, train_loss=1.800, train_acc=0.281]",
        1.8,
        86,
        None,
    ),
    (
        "Lightning, with a validation loss behind",
        "Epoch 0: 100%|█| 1563/1563 [01:57<00:00, 13.25it/s, v_num=0, train_loss=1.590, val_loss=1.420]",
        1.59,
        1563,
        None,
    ),
    ("tqdm postfix", "Training: 100%|████| 391/391 [01:30<00:00,  4.81it/s, loss=0.928]", 0.928, 391, None),
    (
        "InternEvo",
        (
            "2023-07-07 12:28:57,802\tINFO train.py:323 in record_current_batch_training_metrics -- "
            "tflops=63.27010355651958,step=0,loss=11.634403228759766,tgs (tokens/gpu/second)=1424.64,loss_scale=65536.0"
        ),
        11.634403228759766,
        0,
        None,
    ),
    (
        "NeMo 2 under srun --label",
        (
            "0: Training epoch 0, iteration 28/99 | lr: 5.6e-06 | global_batch_size: 32 | global_step: 28 | "
            "reduced_train_loss: 2.778 | train_step_timing in s: 0.189 | consumed_samples: 928 | val_loss: 2.861"
        ),
        2.778,
        28,
        0,
    ),
    ("torchtitan, coloured", "\x1b[31mstep: 10  \x1b[32mloss:  8.1234  \x1b[33mgrad_norm: 1.2", 8.1234, 10, None),
    ("mpirun --tag-output", "[1,3]<stdout>: step=7 loss=2.5", 2.5, 7, 3),
    (
        "DiT, Megatron form",
        "iteration      200/   10000 | loss: 1.927525E-01 | loss scale: 1.0 |",
        0.1927525,
        200,
        None,
    ),
    ("an epoch's validation", "Validation loss: 1.0750", None, None, None),
    ("nanoGPT, train.py", "iter 12: loss 3.1234, time 23.45ms, mfu 12.30%", 3.1234, 12, None),
    (
        "llm.c, train_gpt2.cu",
        "step   12/74 | loss 7.231045 (+nanz)| norm 15.2137 (+nanz)| lr 1.80e-06 | 2851.20 ms | 183886 tok/s",
        7.231045,
        12,
        None,
    ),
    ("llm.c, train_gpt2.c", "step 12: train loss 2.312500 (took 1200.5 ms)", 2.3125, 12, None),
    ("a loop of batches", "epoch 1 batch 40 loss 2.3107", 2.3107, 40, None),
    ("a table", "Step\t12\tTrain loss\t2.3107", 2.3107, 12, None),
    ("tqdm description", "loss 2.3107:  10%|#   | 12/120 [00:10<01:20,  9.1it/s]", 2.3107, 12, None),
    ("tqdm, loss without a sign", "4%|4  | 20/500 [00:12<04:50, 1.65it/s, loss 4.9]", 4.9, 20, None),
    ("tqdm without a total", "20it [00:12, 1.65it/s, loss 4.9]", 4.9, 20, None),
    ("tqdm without a bar", "Training 12/120 [00:03<00:30,  3.5it/s, acc 0.4, loss 4.9]", 4.9, 12, None),
    ("tqdm of an evaluation", "Evaluating: 20it [00:12, 1.65it/s, loss=4.9]", None, None, None),
    (
        "Lightning, validation",
        "Validation DataLoader 0:  12%|# | 12/120 [00:03<00:30, 3.5it/s, loss=4.9]",
        None,
        None,
        None,
    ),
    ("a host's name before", "test-1: Epoch 1:  10%|#| 12/120 [00:03<00:30, 3.5it/s, loss 4.9]", 4.9, 12, None),
    ("OLMo, train.py", "    train/CrossEntropyLoss=2.3107", 2.3107, None, None),
    ("Chinese", "第 12 步 损失 2.3107", 2.3107, 12, None),
    ("Chinese, with an epoch", "第 1 轮，第 12 步，训练损失：2.3107，学习率 1e-5", 2.3107, 12, None),
    ("Chinese, validation", "第 12 步 验证损失 2.3107", None, None, None),
    ("Chinese prose", "第 12 步之后损失 下降", None, None, None),
    ("prose beside a step", "step 12: the loss 3 workers saw", None, None, None),
    ("no step beside it", "model with loss 3.12 was loaded", None, None, None),
    ("a sentence", "the loss is significant at this step", None, None, None),
)
