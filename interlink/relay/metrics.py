"""What the relay counts, in a registry of its own (`GET /metrics`, Prometheus text)."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode("ascii")
_SECONDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_GROUP = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """Counters are increased by the server; gauges read their value when they are asked for."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.sent = Counter("interlink_relay_sent", "messages stored (answered 202)", registry=registry)
        self.delivered = Counter("interlink_relay_delivered", "messages in answers to polls", registry=registry)
        self.acked = Counter("interlink_relay_acked", "messages deleted by an ack", registry=registry)
        self.announced = Counter("interlink_relay_announced", "announcements taken", registry=registry)
        self.refused = Counter(
            "interlink_relay_refused", "requests answered with an error", ["status"], registry=registry
        )
        self.commit_seconds = Histogram(
            "interlink_relay_commit_seconds", "duration of a commit", buckets=_SECONDS, registry=registry
        )
        self.commit_group = Histogram(
            "interlink_relay_commit_requests", "requests that shared a commit", buckets=_GROUP, registry=registry
        )

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A value that is read at each scrape."""
        Gauge(f"interlink_relay_{name}", text, registry=self.registry).set_function(read)

    def commit(self, seconds: float, requests: int) -> None:
        self.commit_seconds.observe(seconds)
        self.commit_group.observe(requests)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)
