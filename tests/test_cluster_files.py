"""The files for clusters hold under the schemas and checkers of those who read them."""

import gzip
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import typer
import yaml  # type: ignore[import-untyped]

from seal_ray.cli.app import app

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "docs" / "examples"
BIN = Path(sys.executable).parent
SCHEMAS = ROOT.parent / "shared" / "data" / "kuberay" / "schemas.json.gz"


@pytest.mark.parametrize("name", ["cluster-one-node.yaml", "cluster-nodes.yaml"])
def test_files_of_ray_up_are_valid(name: str) -> None:
    """As `ray up` checks them, before it requests machines."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((EXAMPLES / name).read_text("utf-8"))
    validate_config(prepare_config(config))
    # The token is copied, and every part of the cluster requires it.
    assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    starts = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    assert all("RAY_AUTH_MODE=token" in line for line in starts if "ray start" in line)
    for kind in config["available_node_types"].values():
        assert kind["node_config"]["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] >= 200


@pytest.mark.skipif(not SCHEMAS.is_file(), reason="shared/data/kuberay/schemas.json.gz is not there")
@pytest.mark.parametrize("name", ["ray-job.yaml", "ray-service.yaml"])
def test_files_of_kuberay_hold_under_its_schemas(name: str) -> None:
    document = yaml.safe_load((EXAMPLES / name).read_text("utf-8"))
    with gzip.open(SCHEMAS, "rt", encoding="utf-8") as file:
        schema = json.load(file)[document["kind"]]
    jsonschema.Draft7Validator(schema).validate(document)
    cluster = document["spec"].get("rayClusterSpec") or document["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        pod = group["template"]["spec"]
        assert {"name": "shm", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]
        assert any(volume.get("emptyDir", {}).get("medium") == "Memory" for volume in pod["volumes"])


def test_the_commands_of_kuberay_are_ours() -> None:
    from seal_ray.serving.app import ServingSettings

    job = yaml.safe_load((EXAMPLES / "ray-job.yaml").read_text("utf-8"))
    words = job["spec"]["entrypoint"].split()
    command = typer.main.get_command(app).commands[words[1]]  # type: ignore[attr-defined]
    command.make_context(words[1], words[2:], resilient_parsing=False)
    service = yaml.safe_load((EXAMPLES / "ray-service.yaml").read_text("utf-8"))
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    ServingSettings(**application["args"])


def test_the_image_has_what_the_set_up_installs() -> None:
    subprocess.run([BIN / "hadolint", "--failure-threshold", "style", str(ROOT / "Dockerfile")], check=True)
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.findall(r"^RUN (\./.*)$", text, re.MULTILINE) == ["./setup.sh cpu", "./setup.sh gpu"]
    assert re.findall(r"^FROM \S+ AS (\w+)$", text, re.MULTILINE) == ["base", "cpu", "gpu"]
    assert ".venv" in (ROOT / ".dockerignore").read_text("utf-8").split()


STUBS = {
    "scontrol": "printf 'node1\\nnode2\\n'",
    "srun": 'echo "srun $*" >>"$LOG"; exec sleep 60',
    "ray": "echo '[{}, {}]'",
    "seal-ray": 'echo "seal-ray $* $RAY_ADDRESS $RAY_AUTH_MODE" >>"$LOG"; exit "${CODE:-0}"',
}


@pytest.mark.parametrize("code", [0, 2])
def test_a_slurm_job_starts_a_cluster_and_trains(code: int, tmp_path: Path) -> None:
    script = EXAMPLES / "slurm.sh"
    subprocess.run([BIN / "shellcheck", str(script)], check=True)
    bin_folder, log = tmp_path / ".venv" / "bin", tmp_path / "log"
    bin_folder.mkdir(parents=True)
    for name, body in STUBS.items():
        file = bin_folder / name
        file.write_text(f"#!/usr/bin/env bash\n{body}\n", "utf-8")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    slurm = {"SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]"}
    environment: dict[str, Any] = {**os.environ, **slurm, "LOG": str(log), "CODE": str(code)}
    done = subprocess.run(
        ["bash", str(script), "--preset", "tiny"], env=environment, timeout=60, capture_output=True, check=False
    )
    assert done.returncode == code, done.stderr
    lines = log.read_text("utf-8").splitlines()
    assert lines[-1] == "seal-ray train --preset tiny node1:20007 token"
    assert sorted(line.partition(" ray ")[2] for line in lines[:-1]) == [
        "start --address=node1:20007 --num-gpus=8 --block",
        "start --head --port=20007 --num-gpus=8 --dashboard-host=127.0.0.1 --block",
    ]
