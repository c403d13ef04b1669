"""How `seal-ray serve` ends on a cluster that it has joined, where others serve too."""

from collections.abc import Callable, Iterator

import pytest
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.exceptions import RayServeException

from envs.errors import UserError
from seal_ray.cli.serve import serve_until_interrupted
from seal_ray.serving.app import ServingSettings, resolve
from tests.processes import free_port

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("cluster")]


@serve.deployment(ray_actor_options={"num_cpus": 0}, graceful_shutdown_wait_loop_s=0.1)
class Hello:
    def __call__(self) -> str:
        return "Hello."


@pytest.fixture
def port() -> Iterator[int]:
    """Where a Serve instance listens that ends with the test."""
    found = free_port()
    serve.start(http_options=HTTPOptions(port=found))
    yield found
    serve.shutdown()


def run_server(port: int, say: Callable[[str], None]) -> None:
    served = resolve(ServingSettings(no_key=True))
    serve_until_interrupted(served, host="127.0.0.1", port=port, key=None, say=say, own=False)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small deployment instead of a model, which would take a minute to start: the tests are about Serve."""
    monkeypatch.setattr("seal_ray.serving.app.application", lambda *_, **__: Hello.bind())  # type: ignore[attr-defined]


@pytest.mark.usefixtures("quick")
def test_applications_of_others_go_on(port: int) -> None:
    running: list[set[str]] = []

    def interrupted(_: str) -> None:
        running.append(set(serve.status().applications))
        raise KeyboardInterrupt

    serve.run(Hello.bind(), name="other", route_prefix="/other")  # type: ignore[attr-defined]
    run_server(port, interrupted)
    assert running == [{"other", "seal-ray"}]
    assert set(serve.status().applications) == {"other"}
    assert serve.get_app_handle("other").remote().result() == "Hello."
    serve.delete("other")
    run_server(port, interrupted)
    assert running[1:] == [{"seal-ray"}]
    with pytest.raises(RayServeException, match="no Serve instance"):
        serve.get_app_handle("other")


def test_what_serves_already_is_left_alone(port: int) -> None:
    serve.run(Hello.bind(), name="seal-ray")  # type: ignore[attr-defined]
    for asked, why in (
        (port + 1, f"--port: Serve listens at 127.0.0.1:{port} "),
        (port, "another `seal-ray serve` runs"),
    ):
        with pytest.raises(UserError, match=why):
            run_server(asked, print)
    assert serve.get_app_handle("seal-ray").remote().result() == "Hello."


@pytest.mark.usefixtures("quick")
def test_serve_that_somebody_else_has_ended_is_no_fault(port: int) -> None:
    def interrupted(_: str) -> None:
        serve.shutdown()
        raise KeyboardInterrupt

    run_server(port, interrupted)
    with pytest.raises(RayServeException, match="no Serve instance"):
        serve.get_app_handle("seal-ray")
