"""RLlib's private names under public ones, for all other files. Verified with Ray 2.60.

RLlib has no public way to run a learner's update on custom data, or to read a runner's exceptions and states.
"""

import socket
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.core import COMPONENT_LEARNER_GROUP
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.policy.sample_batch import MultiAgentBatch, SampleBatch
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from ray.tune.execution.class_cache import ENV_VARS_TO_PROPAGATE
from ray.tune.execution.experiment_state import _ExperimentCheckpointManager
from torch import Tensor, nn

from envs.errors import SealError, UserError
from seal_ray.state import read_state, write_state

_TAG = "sample"
_MINIBATCHES = "minibatches"
_RENDEZVOUS: Any = sys.modules["torch.distributed.rendezvous"]  # a function has the module's name
_OPEN_STORE = _RENDEZVOUS.TCPStore


class RoundConfig(AlgorithmConfig):
    """A config whose runners get all data with each call, and whose modules have their own settings."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class)
        self._dont_auto_sync_env_runner_states = True

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        return {}

    def attribute_of(self, key: str) -> str:
        """The attribute that a key of a config dict sets."""
        return str(self._translate_special_keys(key, warn_deprecated=False))


class RoundAlgorithm(Algorithm):
    """An algorithm that evaluates on its training runners, with checkpoints without pickles."""

    config: Any
    learner_group: Any

    @classmethod
    def _should_create_evaluation_env_runners(cls, eval_config: Any) -> bool:  # noqa: ARG003 - RLlib passes it
        return False

    def wants(self, component: str, components: Any, not_components: Any) -> bool:
        """Whether a part of the state is requested."""
        return bool(self._check_component(component, components, not_components))

    @classmethod
    def from_checkpoint(cls, *_: Any, **__: Any) -> Any:
        """Raises `UserError`: RLlib's method would run code of a checkpoint's pickle."""
        raise UserError("a checkpoint holds no config; build the algorithm from the run's, and call restore_from_path.")

    def save_to_path(self, path: Any, *, wait: bool = True, **_: Any) -> str:  # type: ignore[override] # RLlib's others
        """Writes the state to a folder, and the learner group's to a folder inside, with its `wait`."""
        inside = [name for name, _ in self.get_checkpointable_components()]
        write_state(Path(path), self.get_state(not_components=inside))
        self.learner_group.save_to_path(Path(path, COMPONENT_LEARNER_GROUP), wait=wait)
        return str(path)

    @property
    def is_saving(self) -> bool:
        """Whether learners still write what was saved."""
        return bool(self.learner_group.is_saving)

    def finish_saving(self) -> None:
        """Blocks until learners have written what was saved."""
        self.learner_group.finish_saving()

    def restore_from_path(self, path: Any, **_: Any) -> None:
        """The inverse. Raises `UserError` for an unreadable state."""
        try:
            self.learner_group.restore_from_path(Path(path, COMPONENT_LEARNER_GROUP))
            self.set_state(read_state(Path(path)))
        except SealError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path} is the state of another run, or of another version ({error!r:.120}).") from None


class RowsModule(TorchRLModule):
    """A module for training only; `forward_rows` is its forward pass."""

    @abstractmethod
    def forward_rows(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """The forward pass with gradients."""

    def _forward_train(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Tensor]:
        return self.forward_rows(batch)


class RowsLearner(TorchLearner):
    """A learner with a custom update, and RLlib's modules, optimizers, distribution and state."""

    _device: Any
    _module: Any
    _weights_seq_no: Any

    def __init__(self, **settings: Any) -> None:
        _RENDEZVOUS.TCPStore = _store  # RLlib creates the process group after this, and before `build`
        super().__init__(**settings)  # type: ignore[no-untyped-call]

    @abstractmethod
    def learn(self, minibatches: Mapping[str, Sequence[Any]]) -> None:
        """The update: this learner's share of each minibatch, by module, in the order of the gradient steps."""

    @abstractmethod
    def shard(self, modules: Sequence[nn.Module]) -> bool:
        """Shards modules over the learners and moves them to their devices. Returns False for copies instead."""

    @abstractmethod
    def optimizer_state(self) -> dict[str, Any]:
        """The optimizers' state, for a checkpoint."""

    @abstractmethod
    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """The inverse."""

    @property
    def device(self) -> Any:
        return self._device

    @property
    def module_ids(self) -> list[str]:
        """The modules that have an optimizer."""
        return list(self._optimizer_name_to_module.values())

    def wrapped(self, module_id: str) -> Any:
        """A module, inside DDP's wrapper if there is one."""
        return self._module[module_id]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """As RLlib's, which ignores weights with a sequence number that is not higher; here they are always set."""
        if WEIGHTS_SEQ_NO in state:
            self._weights_seq_no = 0
        super().set_state(dict(state))

    def compute_loss_for_module(self, **_: Any) -> Any:
        """RLlib's, which `learn` does not use."""
        raise NotImplementedError

    def _uncompiled_update(self, batch: Mapping[str, Any], **_: Any) -> tuple[Any, Any, Any]:
        self.learn({module_id: columns[_MINIBATCHES] for module_id, columns in batch.items()})
        return {}, {}, {}

    def _map_module_to_device(self, module: Any) -> None:
        self._sharded = self.shard([module[key] for key in module.keys()])  # noqa: SIM118 - it is no mapping
        if not self._sharded:
            super()._map_module_to_device(module)

    def _make_modules_ddp_if_necessary(self) -> None:
        if not self._sharded:
            super()._make_modules_ddp_if_necessary()

    def _get_optimizer_state(self) -> dict[str, Any]:
        return self.optimizer_state()

    def _set_optimizer_state(self, state: Mapping[str, Any]) -> None:
        self.load_optimizer_state(state)


def _store(*, host_name: str, port: int, is_master: bool, **settings: Any) -> Any:
    """The rendezvous store of learners. On loopback it listens there only; PyTorch's listens at all addresses."""
    if is_master and host_name == "127.0.0.1":
        settings["master_listen_fd"] = socket.create_server((host_name, port)).detach()
    return _OPEN_STORE(host_name=host_name, port=port, is_master=is_master, **settings)


def minibatch_batch(module_id: str, minibatches: Sequence[Any], *, tokens: int) -> MultiAgentBatch:
    """What RLlib carries to one learner: its share of each minibatch, of so many tokens in all learners together."""
    column = np.empty(len(minibatches), dtype=object)
    column[:] = minibatches
    return MultiAgentBatch({module_id: SampleBatch({_MINIBATCHES: column})}, env_steps=tokens)


class RowsLearnerGroup(LearnerGroup):
    """A group of learners that can be called one by one."""

    _workers: Any
    _get_subcomponents: Any

    @property
    def local(self) -> Any:
        return self._learner

    @property
    def actors(self) -> list[Any]:
        return list(self._workers)

    def wants(self, component: str, components: Any, not_components: Any) -> bool:
        """Whether a part of the state is requested."""
        return bool(self._check_component(component, components, not_components))

    def inside(self, component: str, components: Any) -> Any:
        """The named parts inside a part of the state."""
        return self._get_subcomponents(component, components)


def keep_keys_from_trials() -> None:
    """Keeps AWS's keys out of the runtime environment of trials, which command lines and Ray's logs show."""
    ENV_VARS_TO_PROPAGATE.difference_update({name for name in ENV_VARS_TO_PROPAGATE if name.startswith("AWS_")})


@contextmanager
def tune_files_signed(sign: Callable[[Path], None]) -> Iterator[None]:
    """Calls `sign` with the folder of Tune's state each time before Tune copies it to its storage."""
    manager: Any = _ExperimentCheckpointManager
    sync_up = manager.sync_up_experiment_state

    def signed_sync_up(self: Any, save_fn: Callable[[], None], **options: Any) -> None:
        def save() -> None:
            save_fn()
            sign(Path(self._storage.experiment_driver_staging_path))

        sync_up(self, save, **options)

    manager.sync_up_experiment_state = signed_sync_up
    try:
        yield
    finally:
        manager.sync_up_experiment_state = sync_up


def learner_index(learner: Any) -> int:
    """The rank of a learner among its group's."""
    return int(learner._learner_index or 0)


def send(group: Any, runner: int, **arguments: Any) -> bool:
    """Calls `sample` of a runner of an EnvRunnerGroup. Returns whether the call was sent."""
    return bool(group.foreach_env_runner_async(func="sample", kwargs=arguments, tag=_TAG, remote_worker_ids=[runner]))


def answers(group: Any, *, timeout: float) -> Iterator[tuple[int, Any]]:
    """(runner, result or exception of its `sample`), for runners that are done. The group itself drops exceptions."""
    for result in group._worker_manager.fetch_ready_async_reqs(tags=_TAG, timeout_seconds=timeout):
        yield result.actor_id, result.get()


def replace_runner(group: Any, runner: int) -> None:
    """Kills a runner's process; Ray restarts it."""
    manager = group._worker_manager
    ray.kill(manager.actors()[runner], no_restart=False)
    manager.set_actor_state(runner, healthy=False)


def actor_state(actor: Any) -> str:
    """Ray's state of an actor: "ALIVE", "RESTARTING", "DEAD" and so on."""
    return str(ray._private.state.actors(actor._actor_id.hex()).get("State", "UNKNOWN"))


def cause_of(error: BaseException) -> BaseException:
    """An actor's exception, without Ray's wrapper."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
