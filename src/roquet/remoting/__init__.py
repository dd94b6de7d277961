"""Bytes in flight: frames, commands, codes, typed headers and bodies of RocketMQ's protocol.

The codecs here are sans-I/O: they convert bytes to values and back, without a socket, clock or
file. Imports ``roquet.model`` and ``roquet.runtime``; everything that talks to a peer imports it.

================== ===================================================================
module             what it owns
================== ===================================================================
``codes``          request and response codes, languages, versions
``frame``          cutting a stream of bytes into frames, and making frames
``command``        one request or response
``json_header``    the header of a command as JSON
``binary_header``  the header of a command in RocketMQ's own form
``codec``          from frames to commands and back, with either header
``headers``        the ext fields of each request and response as typed values
``bodies``         the JSON bodies of requests and responses as typed values
``protocol_page``  the page docs/reference/protocol.md, made from all these tables
================== ===================================================================
"""
