"""How a replica starts: without a task that has nothing to download, on CPU with one process of vLLM.

Importing this file has replicas in this process listen where their node does (`_add_port`).
"""

from __future__ import annotations

from typing import Any

import ray
from ray.llm._internal.common.callbacks.base import CallbackBase
from ray.llm._internal.serve.engines.vllm.vllm_engine import VLLMEngine
from ray.serve._private import replica

_REPLICA: Any = replica
_ADD_PORT = _REPLICA.add_port_to_grpc_server


def _add_port(server: Any, address: str) -> Any:
    """Ray's replicas listen at all addresses, even if their node is at loopback; then these listen there only."""
    node = ray.util.get_node_ip_address()
    return _ADD_PORT(server, address.replace("[::]", node) if node == "127.0.0.1" else address)


_REPLICA.add_port_to_grpc_server = _add_port


class LocalFolder(CallbackBase):
    """Ray's callback for a model in a folder that each node has.

    Otherwise Ray starts a process that downloads what is there, and that imports vLLM for it: 8 seconds of a core.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ctx.run_init_node = False


class ComputingCore(VLLMEngine):
    """Ray's engine, whose core computes by itself on CPU, as that of `VllmEngine` does.

    A worker beside it costs 9 seconds of a core to start, and the two spin while they wait for each other.
    """

    def _start_async_llm_engine(self, vllm_engine_args: Any, vllm_engine_config: Any, placement_group: Any) -> Any:
        parallel = vllm_engine_config.parallel_config
        if parallel.distributed_executor_backend == "mp" and parallel.world_size == 1:
            parallel.distributed_executor_backend = "uni"
        return super()._start_async_llm_engine(vllm_engine_args, vllm_engine_config, placement_group)
