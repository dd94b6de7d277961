import pytest

from roquet.remoting.codec import encode_command
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.processor import (
    PUBLIC,
    Action,
    Permission,
    Port,
    ProcessorRegistry,
    RequestContext,
    Resource,
    Response,
    processor,
    unknown_code_response,
)
from tests.unit.remoting.net_kit import SizeHeader


class Some:
    @processor(1, 2, permission=Permission(Action.PUB, Resource.TOPIC))
    def both(self, context: RequestContext) -> Response:
        return context.response(ResponseCode.SUCCESS)

    @processor(3, header=SizeHeader, permission=PUBLIC, ports={Port.MAIN})
    def main_only(self, context: RequestContext, header: SizeHeader) -> Response:
        return context.response(header.size)

    def no_processor(self) -> None: ...


def test_registry_collects_the_declared_methods() -> None:
    registry = ProcessorRegistry(Some())
    assert list(registry.table(Port.FAST)) == [1, 2]
    table = registry.table(Port.MAIN)
    assert [(code, each.name) for code, each in table.items()] == [
        (1, "Some.both"),
        (2, "Some.both"),
        (3, "Some.main_only"),
    ]
    found = registry.find(2, Port.FAST)
    assert found is not None
    assert found.permission == Permission(Action.PUB, Resource.TOPIC)
    assert registry.find(3, Port.FAST) is None
    assert registry.find(4, Port.MAIN) is None


def test_registry_accepts_functions() -> None:
    @processor(5, permission=PUBLIC)
    def five(context: RequestContext) -> Response:
        return context.response(ResponseCode.SUCCESS)

    assert list(ProcessorRegistry(five).table(Port.MAIN)) == [5]


def test_methods_of_base_classes_are_collected() -> None:
    class More(Some):
        @processor(4, permission=PUBLIC)
        def four(self, context: RequestContext) -> Response:
            return context.response(ResponseCode.SUCCESS)

    assert sorted(ProcessorRegistry(More()).table(Port.MAIN)) == [1, 2, 3, 4]


def test_without_a_permission_nothing_is_declared() -> None:
    with pytest.raises(TypeError, match="permission"):
        processor(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="QUERY_MESSAGE states no permission"):
        processor(12, permission=None)  # type: ignore[arg-type]


def test_bad_declarations_are_refused() -> None:
    with pytest.raises(TypeError, match="at least one request code"):
        processor(permission=PUBLIC)
    with pytest.raises(TypeError, match="has no port"):
        processor(1, permission=PUBLIC, ports=())
    with pytest.raises(TypeError, match="is no function"):
        processor(1, permission=PUBLIC)(7)

    def without_header(context: RequestContext) -> Response:
        return context.response(ResponseCode.SUCCESS)

    with pytest.raises(TypeError, match=r"must take \(context, header\)"):
        processor(1, permission=PUBLIC, header=SizeHeader)(without_header)


def test_two_processors_of_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two processors on port .*: Some.both and Some.both"):
        ProcessorRegistry(Some(), Some())


def test_an_object_without_processors_is_refused() -> None:
    with pytest.raises(TypeError, match="declares no processor"):
        ProcessorRegistry(object())


def test_unknown_code_has_upstreams_words() -> None:
    response = unknown_code_response(RemotingCommand(code=9999, opaque=762))
    assert encode_command(response)[8:] == (
        b'{"code":3,"flag":1,"language":"JAVA","opaque":762,'
        b'"remark":" request type 9999 not supported",'
        b'"serializeTypeCurrentRPC":"JSON","version":493}'
    )
