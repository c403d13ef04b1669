"""The answers to mistakes of users."""

from collections.abc import Callable

import pytest

from envs.errors import UserError


def refusal(call: Callable[..., object], *arguments: object, **settings: object) -> str:
    """The one sentence of the `UserError` that a call raises."""
    with pytest.raises(UserError) as caught:
        call(*arguments, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)
