"""Every frame of the golden runs is cut, read and written back byte for byte."""

from __future__ import annotations

from collections import Counter

from roquet.remoting.codec import decode_command, encode_command, encode_command_head
from roquet.remoting.codes import LanguageCode
from roquet.remoting.command import CURRENT_VERSION, create_response
from roquet.remoting.frame import FrameDecoder, SerializeType, encode_frame
from tests.golden.wire_frames import golden_frames


def test_all_frames_are_present() -> None:
    runs = Counter(golden.place.partition(".")[0] for golden in golden_frames())
    assert runs == {"json": 1011, "binary": 1015, "ext": 366, "ha": 294}
    types = Counter(golden.frame.serialize_type for golden in golden_frames())
    assert types == {SerializeType.JSON: 2185, SerializeType.ROCKETMQ: 501}
    without_body = [golden.place for golden in golden_frames() if not golden.has_body]
    assert without_body == ["json.jsonl:852", "binary.jsonl:852"]


def test_every_header_is_written_back_byte_for_byte() -> None:
    for golden in golden_frames():
        command = decode_command(golden.frame)
        written = encode_command(command)
        assert written == encode_frame(*golden.frame), golden.place
        head = encode_command_head(command, body_bytes=len(command.body))
        assert head + command.body == written, golden.place


def test_every_header_matches_the_recorder() -> None:
    for golden in golden_frames():
        command = decode_command(golden.frame)
        header = golden.header
        language = header["language"]
        assert (command.code, command.version, command.opaque, command.flag) == (
            header["code"],
            header["version"],
            header["opaque"],
            header["flag"],
        ), golden.place
        assert language in {command.language.name, int(command.language)}, golden.place
        assert (command.remark or "") == (header.get("remark") or ""), golden.place
        assert (command.ext_fields or {}) == (header.get("extFields") or {}), golden.place
        assert command.is_response == golden.is_response, golden.place


def test_all_frames_in_one_stream_cut_anywhere() -> None:
    stream = b"".join(encode_frame(*golden.frame) for golden in golden_frames())
    expected = [golden.frame for golden in golden_frames()]
    for step in (len(stream), 65_536, 4_099):
        decoder = FrameDecoder()
        found = []
        for start in range(0, len(stream), step):
            decoder.feed(stream[start : start + step])
            found += list(decoder)
        assert found == expected, f"in steps of {step}"
        assert decoder.buffered_bytes == 0


def test_responses_are_built_as_by_the_java_server() -> None:
    """Same opaque, flag 1, language JAVA, version 5.4.0, and JSON even for a binary request."""
    commands = {golden.place: decode_command(golden.frame) for golden in golden_frames()}
    requests = {}
    checked = Counter[SerializeType]()
    for golden in golden_frames():
        command = commands[golden.place]
        key = (golden.place.partition(".")[0], golden.request_code, command.opaque)
        if not golden.is_response:
            requests[key] = command
            continue
        request = requests.get(key)
        if request is None or golden.frame.serialize_type is SerializeType.ROCKETMQ:
            continue
        made = create_response(request, command.code, remark=command.remark, body=command.body)
        made.ext_fields = command.ext_fields
        assert made == command, golden.place
        assert (made.language, made.version) == (LanguageCode.JAVA, CURRENT_VERSION)
        checked[request.serialize_type] += 1
    assert checked[SerializeType.JSON] > 700
    assert checked[SerializeType.ROCKETMQ] > 400
