#!/usr/bin/env bash
# Start script of train.yaml: fine-tunes a small language model. /root/work and the models are in the lease's cache.
#
# A start script runs once in the life of a machine. A pause may stop the machine (then a service has to go on at its
# next boot) or give it back and keep the cache (then this script runs again on the next one). Both go on from the last
# checkpoint.
set -euo pipefail

WORK=${WORK:-/root/work}
UNITS=${UNITS:-/etc/systemd/system}
mkdir -p "$WORK"

# Packages live in the cache too, so that only the first machine waits for them.
if [ ! -x "$WORK/venv/bin/python" ]; then
  if [ -e /etc/debian_version ] && ! python3 -c "import ensurepip" 2> /dev/null; then
    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv
  fi
  python3 -m venv "$WORK/venv"
fi
"$WORK/venv/bin/python" -m pip install --quiet torch transformers datasets accelerate

cat > "$WORK/train.py" << 'PYTHON'
"""Fine-tune distilgpt2 on wikitext; the last checkpoint is where it goes on."""

import os
from pathlib import Path

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

OUT = Path(__file__).parent / "checkpoints"
MODEL = os.environ.get("MODEL", "distilgpt2")


def main() -> None:
    if (OUT / "done").exists():
        return
    OUT.mkdir(exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.eos_token
    texts = load_dataset("Salesforce/wikitext", "wikitext-2-raw-v1", split="train").filter(lambda row: row["text"].strip())
    tokens = texts.map(
        lambda rows: tokenizer(rows["text"], truncation=True, max_length=256), batched=True, remove_columns=["text"]
    )
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL),
        args=TrainingArguments(
            output_dir=str(OUT),
            num_train_epochs=3,
            per_device_train_batch_size=8,
            save_steps=200,
            save_total_limit=2,
            report_to="none",
        ),
        train_dataset=tokens,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(OUT)))
    trainer.save_model(str(OUT / "final"))
    (OUT / "done").touch()


main()
PYTHON

# gpulease-busy: as long as it runs the machine is in use, also while it only downloads. When it ends, idleness counts.
cat > "$UNITS/train.service" << UNIT
[Unit]
Description=Fine-tuning that goes on after each boot
After=network-online.target gpulease-agent.service
Wants=network-online.target

[Service]
# The cache is mounted by the agent some seconds after boot.
ExecStartPre=/bin/sh -c 'until [ -e $WORK/train.py ]; do sleep 2; done'
ExecStart=/bin/sh -c 'exec \$\$(command -v gpulease-busy || true) $WORK/venv/bin/python $WORK/train.py'
Environment=HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
StandardOutput=append:$WORK/train.log
StandardError=inherit
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=30

[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl enable train.service
systemctl start --no-block train.service
