"""The same question to every relay at once, from a command that has no event loop."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from interlink.errors import RelayError

T = TypeVar("T")


def ask_each(urls: Sequence[str], call: Callable[[str], T]) -> dict[str, T | RelayError]:
    """url -> the answer, or why there is none, in the order of `urls`. `call` bounds its own time.

    What it raises beside RelayError is raised here.
    """
    found: dict[str, T | RelayError] = {}
    faults: list[BaseException] = []

    def one(url: str) -> None:
        try:
            found[url] = call(url)
        except RelayError as exc:
            found[url] = exc
        except BaseException as exc:  # noqa: BLE001 - it belongs to the caller's thread
            faults.append(exc)

    # Plain threads: a pool of the library would load a good deal more than these lines.
    threads = [threading.Thread(target=one, args=(url,), daemon=True) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return {url: found[url] for url in urls}
