"""Upstream's keys that have no effect here, or only with some values.

Owns three lists of keys of Apache RocketMQ 5.4.0: those that have no effect here, each with the
reason; those with values that would promise something this broker cannot do, which are therefore
refused; and those that upstream marks as important.
"""

from __future__ import annotations

from roquet.runtime.settings import IgnoredKeys, Unsupported

__all__ = ["IMPORTANT_KEYS", "UNSUPPORTED", "WITHOUT_EFFECT"]


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


WITHOUT_EFFECT = (
    IgnoredKeys(
        "one event loop does the work: there are no thread pools with queues of their own",
        _keys(
            """
            ackMessageThreadPoolNums ackThreadPoolQueueCapacity asyncSendEnable
            batchDispatchRequestThreadPoolNums clientManageThreadPoolNums
            clientManagerThreadPoolQueueCapacity
            consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
            endTransactionPoolQueueCapacity endTransactionThreadPoolNums heartbeatThreadPoolNums
            heartbeatThreadPoolQueueCapacity litePullMessageThreadPoolNums
            litePullThreadPoolQueueCapacity loadBalanceProcessorThreadPoolNums
            loadBalanceThreadPoolQueueCapacity processReplyMessageThreadPoolNums
            pullMessageThreadPoolNums putMessageFutureThreadPoolNums putThreadPoolQueueCapacity
            queryMessageThreadPoolNums recoverConcurrently recoverThreadPoolNums
            replyThreadPoolQueueCapacity sendMessageThreadPoolNums waitTimeMillsInAckQueue
            waitTimeMillsInHeartbeatQueue waitTimeMillsInLitePullQueue
            waitTimeMillsInTransactionQueue
            """
        ),
    ),
    IgnoredKeys(
        "one loop owns the store: there is no lock to choose and no thread that follows the log",
        _keys(
            """
            debugLockEnable diskFallRecorded dispatchCqCacheNum dispatchCqThreads
            dispatchFromSenderThread enableAsyncReput enableBuildConsumeQueueConcurrently
            enableRunningFlagsInFlush maxAsyncPutMessageRequests putMessageTimeout
            recheckReputOffsetFromCq spinLockCollisionRetreatOptimalDegree topicQueueLockNum
            useABSLock useReentrantLockWhenPutMessage
            """
        ),
    ),
    IgnoredKeys(
        "Netty's own",
        _keys(
            """
            channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
            clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
            clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
            clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
            enableFastChannelEventProcess enableReconnectForGoAway enableShutdownGracefully
            isScanAvailableNameSrv maxReconnectIntervalTimeSeconds printChannelGroups
            printChannelGroupsMinNum scanAvailableNameSrv serverAsyncSemaphoreValue
            serverCallbackExecutorThreads serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
            serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
            serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
            shutdownWaitTimeSeconds transferMsgByHeap useEpollNativeSelector
            """
        ),
    ),
    IgnoredKeys(
        "the store maps, flushes and deletes files in its own way",
        _keys(
            """
            accessMessageInMemoryHotRatio cleanSwapedMapInterval commitLogForceSwapMapInterval
            commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum
            correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
            dataReadAheadEnable deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
            disappearTimeAfterStart enableAcceleratedRecovery enableCleanExpiredOffset
            enableLogConsumeQueueRepeatedlyBuildWhenRecover flushCommitLogTimed
            flushLeastPagesWhenWarmMapedFile indexFileReadEnable indexFileWriteEnable
            logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
            logicalDiskSpaceCleanForciblyThreshold mappedFileSwapEnable maxBatchDeleteFilesNum
            maxChecksumRange maxConsumeQueueScan maxRecoveryCommitlogFiles maxTopicLength
            messageIndexSafe pullBatchMaxMessageCount putConsumeQueueDataByFileChannel
            putMsgIndexHightWater readUnCommitted redeleteHangedFileInterval
            replicasPerDiskPartition sampleCountThreshold sampleSteps sharedByteBufferNum
            travelCqFileNumWhenGetMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage
            writeWithoutMmap
            """
        ),
    ),
    IgnoredKeys(
        "nothing is kept in RocksDB",
        _keys(
            """
            bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
            combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
            combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType enableRocksDBLog
            maxRocksDBIndexQueryDays memTableFlushIntervalMs realTimePersistRocksDBConfig
            rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
            statRocksDBCQIntervalSec timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
            timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
            timerRocksDBTimeExpiredMaxTps transWriteOriginTransHalfEnable
            """
        ),
        feature="RocksDB",
    ),
    IgnoredKeys(
        "roles are fixed: there is no controller, no DLedger and no acting master",
        _keys(
            """
            asyncLearner brokerElectionPriority brokerHeartbeatInterval checkSyncStateSetPeriod
            compatibleWithOldNameSrv controllerAddr controllerHeartBeatTimeoutMills dLegerGroup
            dLegerPeers dLegerSelfId enableBatchPush fetchControllerAddrByDnsLookup
            haMaxTimeSlaveNotCatchup lockInStrictMode maxSlaveResendLength preferredLeaderId
            sendHeartbeatTimeoutMillis skipPreOnline storePathBrokerIdentity
            storePathDLedgerCommitLog storePathEpochFile syncBrokerMemberGroupPeriod
            syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFromLastFile
            syncMasterFlushOffsetWhenStartup totalReplicas
            """
        ),
        feature="controller mode",
    ),
    IgnoredKeys(
        "the loop delivers delayed messages itself and writes all tables together",
        _keys(
            """
            delayOffsetUpdateVersionStep enableScheduleAsyncDeliver enableScheduleMessageStats
            flushDelayOffsetInterval scheduleAsyncDeliverMaxPendingLimit
            scheduleAsyncDeliverMaxResendNum2Blocked transactionMetricFlushInterval
            """
        ),
    ),
    IgnoredKeys(
        "timed messages are not part of this version",
        _keys(
            """
            allowRecallWhenBrokerNotWriteable appendTopicForTimerDeleteKey mappedFileSizeTimerLog
            timerCheckMetricsWhen timerCongestNumEachSlot timerEnableCheckMetrics
            timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
            timerGetMessageThreadNum timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
            timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
            timerRecallToTimelineEnable timerRollWindowSlot timerSkipUnknownError timerStopDequeue
            timerStopEnqueue timerWarmEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
            """
        ),
        feature="timed messages",
    ),
    IgnoredKeys(
        "POP consumption and queue assignment by brokers are not part of this version",
        _keys(
            """
            appendAckAsync appendCkAsync cleanOfflineBrokerInterval defaultPopShareQueueNum
            enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
            enablePopBufferMerge enablePopLog enablePopMessageThreshold enableRetryTopicV2
            enableSkipLongAwaitingAck initPopOffsetByCheckMsgInMem loadBalancePollNameServerInterval
            maxPopPollingSize popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
            popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceLog
            popFromRetryProbability popFromRetryProbabilityForPriority popInflightMessageThreshold
            popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
            popPollingSize popResponseReturnActualRetryTopic popReviveConcurrency
            popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead priorityOrderAsc
            retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
            reviveScanTime serverLoadBalancerEnable skipWhenCKRePutReachMaxTimes
            useSeparateRetryQueue
            """
        ),
        feature="POP consumption",
    ),
    IgnoredKeys(
        "compaction and light message queues are not part of this version",
        _keys(
            """
            compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
            compactionThreadNum enableCompaction enableLmqStats maxLmqConsumeQueueNum
            maxOffsetMapSize
            """
        ),
        feature="compaction, batch queues or light message queues",
    ),
    IgnoredKeys(
        "batch queues are searched without a cache",
        _keys("searchBcqByCacheEnable"),
    ),
    IgnoredKeys(
        "follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter",
        _keys("bitMapLengthConsumeQueueExt"),
    ),
    IgnoredKeys(
        "users, policies and their caches are not part of this version",
        _keys(
            """
            aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath
            authenticationMetadataProvider authenticationProvider authenticationStrategy
            authenticationWhitelist authorizationMetadataProvider authorizationProvider
            authorizationStrategy authorizationWhitelist clusterName configName
            initAuthenticationUser innerClientAuthenticationCredentials
            statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
            statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
            userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
            """
        ),
        feature="access control",
    ),
    IgnoredKeys(
        "statistics are counted differently",
        _keys(
            """
            accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats commercialBaseCount
            commercialSizePerMsg enableDetailStat estimateAccumulation maxStatsIdleTimeInMinutes
            """
        ),
    ),
    IgnoredKeys(
        "metrics are not exported in this version",
        _keys(
            """
            enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics
            enablePopMetrics enableRemotingMetrics enableRequestMetrics enableStatsMetrics
            enableTransactionMetrics metricGrpcExporterIntervalInMills
            metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills
            metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
            metricsOtelCardinalityLimit metricsPromExporterHost metricsPromExporterPort
            """
        ),
        feature="export of metrics",
    ),
    IgnoredKeys(
        "cold reads never block the loop, so they are not throttled",
        _keys(
            """
            cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
            globalColdReadThreshold timerColdDataCheckIntervalMs usePIDColdCtrStrategy
            """
        ),
    ),
    IgnoredKeys(
        "not used in this version",
        _keys(
            """
            broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerConfigPath
            clearRetryTopicWhenDeleteTopic configBlackList defaultQueryMaxNum
            enableBroadcastOffsetStore enableNetWorkFlowControl enableSplitMetadata
            fetchNamesrvAddrInterval flushConsumerOffsetHistoryInterval highSpeedMode
            isolateLogEnable rocketmqHome splitMetadataSize
            """
        ),
    ),
)
"""Upstream's keys that a file may contain and that have no effect here."""

_FALSE = frozenset({"false"})
_NOTHING = frozenset({""})
_ACCESS = "there is no access control: requests would be served without being checked"
_CONTROLLER = "roles are fixed: there is no controller and no DLedger"
_CONTAINERS = "there are no broker containers"
_TIMED = "there are no timed messages, and none can be recalled; delay levels work"
_POP = "there is no POP consumption"
_ROCKSDB = "everything is kept in files, nothing in RocksDB"
_METRICS = "no metrics are exported"


def _unsupported(reason: str, accepted: frozenset[str], keys: str) -> list[Unsupported]:
    return [Unsupported(key, accepted, reason) for key in keys.split()]


UNSUPPORTED = (
    *_unsupported(_ACCESS, _FALSE, "aclEnable authenticationEnabled authorizationEnabled"),
    *_unsupported(_ACCESS, _FALSE, "migrateAuthFromV1Enabled"),
    *_unsupported(
        _CONTROLLER,
        _FALSE,
        """
        allAckInSyncStateSet duplicationEnable enableControllerMode enableDLegerCommitLog
        enableRemoteEscape
        """,
    ),
    *_unsupported(_CONTAINERS, _FALSE, "inBrokerContainer isBrokerContainer isInBrokerContainer"),
    *_unsupported(
        _TIMED,
        _FALSE,
        "recallMessageEnable timerInterceptDelayLevel timerRocksDBEnable timerWheelEnable",
    ),
    *_unsupported(_POP, frozenset({"pull"}), "defaultMessageRequestMode"),
    *_unsupported(_POP, _FALSE, "popConsumerKVServiceEnable popConsumerKVServiceInit"),
    *_unsupported(
        _ROCKSDB,
        _FALSE,
        """
        indexRocksDBEnable rocksdbCQDoubleWriteEnable transRocksDBEnable
        useSingleRocksDBForAllConfigs
        """,
    ),
    Unsupported("configManagerVersion", frozenset({"v1"}), _ROCKSDB),
    Unsupported("storeType", frozenset({"default"}), _ROCKSDB),
    Unsupported("enableLmq", _FALSE, "messages would reach no light message queue"),
    Unsupported("enableMultiDispatch", _FALSE, "messages would reach only their own queue"),
    Unsupported("metricsExporterType", frozenset({"disable", "0"}), _METRICS),
    Unsupported("readOnlyCommitLogStorePaths", _NOTHING, "what is stored there would be missed"),
    Unsupported(
        "socksProxyConfig",
        frozenset({"", "{}"}),
        "name servers would be reached without the proxy",
    ),
)
"""Keys of which only these values are supported."""

IMPORTANT_KEYS = _keys(
    """
    accessMessageInMemoryMaxRatio autoCreateSubscriptionGroup autoCreateTopicEnable
    brokerClusterName brokerIP1 brokerId brokerName brokerRole cleanFileForciblyEnable
    commitIntervalCommitLog deleteFileBatchMax deleteWhen enableAutoInSyncReplicas
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fileReservedTime flushDiskType
    flushIntervalCommitLog haFlowControlEnable haMasterAddress inSyncReplicas listenPort
    maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory messageIndexEnable
    minInSyncReplicas
    msgTraceTopicName namesrvAddr rejectTransactionMessage storePathRootDir traceTopicEnable
    transactionCheckInterval transactionCheckMax
    transactionTimeOut transientStorePoolEnable
    """
)
"""The keys that upstream marks as important and that have an effect here."""
