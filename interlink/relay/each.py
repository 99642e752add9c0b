"""The same question to every relay at once, from a command that has no event loop."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from interlink.errors import RelayError

T = TypeVar("T")


def ask_each(urls: Sequence[str], call: Callable[[str], T]) -> dict[str, T | RelayError]:
    """url -> the answer, or why there is none, in the order of `urls`. `call` bounds its own time."""

    def one(url: str) -> T | RelayError:
        try:
            return call(url)
        except RelayError as exc:
            return exc

    if not urls:
        return {}
    with ThreadPoolExecutor(max_workers=min(len(urls), 16)) as pool:
        return dict(zip(urls, pool.map(one, urls), strict=True))
