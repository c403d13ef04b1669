"""The start of a replica: without a download task, and on CPU with one process of vLLM.

Importing this file makes replicas in this process listen at their node's address (`_add_port`).
"""

from typing import Any

import ray
from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.serve._private import replica

_REPLICA: Any = replica
_ADD_PORT = _REPLICA.add_port_to_grpc_server


def _add_port(server: Any, address: str) -> Any:
    """Restricts replicas to loopback if their node is there; Ray's would listen at all addresses."""
    node = ray.util.get_node_ip_address()
    return _ADD_PORT(server, address.replace("[::]", node) if node == "127.0.0.1" else address)


_REPLICA.add_port_to_grpc_server = _add_port


class LocalFolder(CallbackBase):
    """Ray's callback for a model in a local folder, without a download process: 8 seconds of a core for its imports."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ctx.run_init_node = False


class ComputingCore(VLLMEngine):
    """Ray's engine, whose core computes by itself on CPU, as in `VllmEngine`.

    A separate worker takes 9 seconds of a core to start, and the two spin while they wait for each other.
    """

    def _start_async_llm_engine(self, vllm_engine_args: Any, vllm_engine_config: Any, placement_group: Any) -> Any:
        parallel = vllm_engine_config.parallel_config
        if parallel.distributed_executor_backend == "mp" and parallel.world_size == 1:
            parallel.distributed_executor_backend = "uni"
        return super()._start_async_llm_engine(vllm_engine_args, vllm_engine_config, placement_group)
