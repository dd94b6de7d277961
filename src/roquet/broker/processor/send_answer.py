"""Responses to sends: maps each store status to a response code with upstream's remark.

Owns the ext fields of send responses, in the order in which Apache RocketMQ writes them:

.. code-block:: text

    stored    queueId, batchUniqId, transactionId, msgId, TRACE_ON, MSG_REGION, queueOffset
    refused   batchUniqId, TRACE_ON, MSG_REGION
    replied   queueId, msgId, TRACE_ON, MSG_REGION, queueOffset

batchUniqId is present only for batches that are stored as one message; transactionId is omitted
for a batch without a unique key. Requests that are refused before they are parsed (flow control,
hooks, an undecodable header) carry no fields.
"""

from __future__ import annotations

from roquet.broker.components import BrokerComponents
from roquet.broker.processor.send_check import Refusal
from roquet.remoting.codes import ResponseCode
from roquet.remoting.command import RemotingCommand, create_response
from roquet.store.results import AppendResult, PutMessageResult, PutMessageStatus

__all__ = ["TIMER_NOT_ENABLED", "SendAnswers"]

TIMER_NOT_ENABLED = Refusal(
    ResponseCode.SYSTEM_ERROR,
    "accurate timer message is not enabled, timerWheelEnable is false",
    is_of_store=True,
)

_PUT_OK = PutMessageStatus.PUT_OK
_STORED = {
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
_SUCCESS = int(ResponseCode.SUCCESS)
_DISK_NEWS_NS = 1_000_000_000


class SendAnswers:
    """Builds responses to sends.

    Args:
        components: The broker's components.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self._store = components.store
        self._clock = components.clock
        self._trace_on = "true" if components.config.trace_on else "false"
        self._region_id = components.config.region_id
        self._id_prefix = components.store_host.pack().hex().upper()
        self._disk_remark = ("", 0)

    def refused(self, request: RemotingCommand, refusal: Refusal) -> RemotingCommand:
        """Return the response to a message that is refused."""
        answer = create_response(request, refusal.code, remark=refusal.remark)
        answer.ext_fields = {"TRACE_ON": self._trace_on, "MSG_REGION": self._region_id}
        if refusal.batch_unique_id is not None:
            answer.ext_fields = {"batchUniqId": refusal.batch_unique_id, **answer.ext_fields}
        return answer

    def of(
        self,
        request: RemotingCommand,
        result: PutMessageResult,
        queue_id: int,
        unique_key: str | None,
        *,
        is_inner_batch: bool = False,
    ) -> RemotingCommand:
        """Return the response to a message that was passed to the store.

        Args:
            request: The send.
            result: The result from the store.
            queue_id: The queue that the producer knows, which may differ from that of the record.
            unique_key: The producer's id of the message.
            is_inner_batch: Whether the broker stored the batch as one message.
        """
        status = result.status
        appended = result.append
        code = _SUCCESS if status is _PUT_OK else _STORED.get(status)
        if code is None or appended is None:
            refusal = self.refusal(status)
            if is_inner_batch:
                refusal = refusal._replace(batch_unique_id=unique_key)
            return self.refused(request, refusal)
        offsets = appended.physical_offsets
        prefix = self._id_prefix
        msg_id = (
            f"{prefix}{offsets[0]:016X}"
            if len(offsets) == 1
            else ",".join([f"{prefix}{offset:016X}" for offset in offsets])
        )
        fields = {"queueId": str(queue_id)}
        if unique_key is not None:
            if is_inner_batch:
                fields["batchUniqId"] = unique_key
            fields["transactionId"] = unique_key
        fields["msgId"] = msg_id
        fields["TRACE_ON"] = self._trace_on
        fields["MSG_REGION"] = self._region_id
        fields["queueOffset"] = str(appended.queue_offset)
        answer = create_response(request, code)
        answer.ext_fields = fields
        return answer

    def of_reply(
        self,
        request: RemotingCommand,
        queue_id: int,
        *,
        failure: str | None,
        appended: AppendResult | None,
    ) -> RemotingCommand:
        """Return the response to a reply, which says whether the requester got it.

        Args:
            request: The reply.
            queue_id: The queue that the replier knows.
            failure: Why the requester did not get it.
            appended: Where it is stored, if it is.
        """
        if appended is not None:
            msg_id = f"{self._id_prefix}{appended.physical_offsets[0]:016X}"
            queue_offset = appended.queue_offset
        elif failure is None:
            msg_id, queue_offset = "0", 0  # clients read numbers here
        else:
            return self.refused(request, Refusal(ResponseCode.SYSTEM_ERROR, failure))
        code = _SUCCESS if failure is None else ResponseCode.SYSTEM_ERROR
        answer = create_response(request, code, remark=failure)
        answer.ext_fields = {
            "queueId": str(queue_id),
            "msgId": msg_id,
            "TRACE_ON": self._trace_on,
            "MSG_REGION": self._region_id,
            "queueOffset": str(queue_offset),
        }
        return answer

    def refusal(self, status: PutMessageStatus) -> Refusal:
        """Return the refusal for a message that the store did not accept."""
        match status:
            case PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
                code, remark = (
                    ResponseCode.SYSTEM_ERROR,
                    "create mapped file failed, server is busy or broken.",
                )
            case PutMessageStatus.MESSAGE_ILLEGAL | PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
                code, remark = (
                    ResponseCode.MESSAGE_ILLEGAL,
                    "the message is illegal, maybe msg body or properties length not matched. "
                    f"msg body length limit {self._store.config.max_message_bytes}B, "
                    "msg properties length limit 32KB.",
                )
            case PutMessageStatus.SERVICE_NOT_AVAILABLE:
                code, remark = (
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    "service not available now. It may be caused by one of the following reasons: "
                    f"the broker's disk is full [{self._disk()}], "
                    "messages are put to the slave, message store has been shut down, etc.",
                )
            case PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
                code, remark = ResponseCode.SYSTEM_ERROR, "in-sync replicas not enough"
            case PutMessageStatus.OS_PAGE_CACHE_BUSY:
                code, remark = (
                    ResponseCode.SYSTEM_BUSY,
                    "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
                )
            case _:
                code, remark = ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"
        return Refusal(code, remark, is_of_store=True)

    def _disk(self) -> str:
        """How full the disk is; measured at most once a second, as a full disk refuses a lot."""
        remark, until_ns = self._disk_remark
        now_ns = self._clock.monotonic_ns()
        if not remark or now_ns >= until_ns:
            info = self._store.runtime_info()
            log = float(info.get("commitLogDiskRatio", "1"))
            queues = float(info.get("consumeQueueDiskRatio", "1"))
            remark = f"CL: {log:5.2f} CQ: {queues:5.2f} INDEX: {queues:5.2f}"
            self._disk_remark = (remark, now_ns + _DISK_NEWS_NS)
        return remark
