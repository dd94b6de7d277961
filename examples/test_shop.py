"""Test your own program with an in-process broker: pytest examples/test_shop.py."""

from roquet.sync import ConsumeFromWhere, LitePullConsumer, Message, Producer
from roquet.testing.background import BackgroundBroker


def place_order(namesrv: str, what: str) -> None:
    """Do what the program under test does."""
    with Producer(namesrv, group="shop") as producer:
        producer.send(Message("Orders", what.encode(), tags="paid"))


def test_an_order_is_stored(roquet_broker: BackgroundBroker, roquet_namesrv: str) -> None:
    roquet_broker.create_topic("Orders", queues=1)
    place_order(roquet_namesrv, "a book")
    (order,) = roquet_broker.messages("Orders")
    assert (order.body, order.tags) == (b"a book", "paid")


def test_an_order_is_consumed(roquet_namesrv: str) -> None:
    place_order(roquet_namesrv, "a cup")
    with LitePullConsumer(
        roquet_namesrv, group="billing", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("Orders", "paid")
        assert next(consumer).body == b"a cup"
