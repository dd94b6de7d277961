"""What is known of upstream's keys beyond those that have an effect.

Owns three lists about the keys of Apache RocketMQ 5.4.0: those that change nothing here, each with
the reason; those of which some values would be a promise that cannot be kept, which are therefore
refused; and those that upstream marks as important.
"""

from __future__ import annotations

from roquet.runtime.settings import Unsupported, WithoutEffect

__all__ = ["IMPORTANT_KEYS", "UNSUPPORTED", "WITHOUT_EFFECT"]


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


WITHOUT_EFFECT = (
    WithoutEffect(
        "one event loop does the work: there are no thread pools with queues of their own",
        _keys(
            """
            ackMessageThreadPoolNums ackThreadPoolQueueCapacity adminBrokerThreadPoolNums
            adminBrokerThreadPoolQueueCapacity asyncSendEnable batchDispatchRequestThreadPoolNums
            clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity
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
    WithoutEffect(
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
    WithoutEffect(
        "Netty's own",
        _keys(
            """
            channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
            clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
            clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
            clientWorkerThreads connectTimeoutMillis disableCallbackExecutor
            disableNettyWorkerGroup enableFastChannelEventProcess enableReconnectForGoAway
            enableShutdownGracefully isScanAvailableNameSrv maxReconnectIntervalTimeSeconds
            printChannelGroups printChannelGroupsMinNum scanAvailableNameSrv
            serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable
            serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
            serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
            shutdownWaitTimeSeconds transferMsgByHeap useEpollNativeSelector
            writeBufferHighWaterMark writeBufferLowWaterMark
            """
        ),
    ),
    WithoutEffect(
        "how files are mapped, flushed and deleted is the store's own way",
        _keys(
            """
            accessMessageInMemoryHotRatio cleanSwapedMapInterval commitLogForceSwapMapInterval
            commitLogRecoverMaxNum commitLogSwapMapInterval commitLogSwapMapReserveFileNum
            correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
            dataReadAheadEnable deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
            disappearTimeAfterStart duplicationEnable enableAcceleratedRecovery
            enableCleanExpiredOffset enableLogConsumeQueueRepeatedlyBuildWhenRecover
            flushCommitLogTimed flushLeastPagesWhenWarmMapedFile indexFileReadEnable
            indexFileWriteEnable logicQueueForceSwapMapInterval logicQueueSwapMapInterval
            logicQueueSwapMapReserveFileNum logicalDiskSpaceCleanForciblyThreshold
            mappedFileSwapEnable maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan
            maxRecoveryCommitlogFiles maxTopicLength messageIndexSafe pullBatchMaxMessageCount
            putConsumeQueueDataByFileChannel putMsgIndexHightWater readUnCommitted
            redeleteHangedFileInterval replicasPerDiskPartition sampleCountThreshold sampleSteps
            sharedByteBufferNum travelCqFileNumWhenGetMessage wakeCommitWhenPutMessage
            wakeFlushWhenPutMessage writeWithoutMmap
            """
        ),
    ),
    WithoutEffect(
        "nothing is kept in RocksDB",
        _keys(
            """
            bottomMostCompressionTypeForConsumeQueueStore cleanRocksDBDirtyCQIntervalMin
            combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
            combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType enableRocksDBLog
            indexRocksDBEnable maxRocksDBIndexQueryDays memTableFlushIntervalMs
            realTimePersistRocksDBConfig rocksdbCQDoubleWriteEnable rocksdbCompressionType
            rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec
            timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
            timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan
            timerRocksDBTimeExpiredMaxTps transRocksDBEnable transWriteOriginTransHalfEnable
            useSingleRocksDBForAllConfigs
            """
        ),
    ),
    WithoutEffect(
        "there is no replication in this version",
        _keys(
            """
            allAckInSyncStateSet asyncLearner brokerElectionPriority brokerHeartbeatInterval
            checkSyncStateSetPeriod compatibleWithOldNameSrv controllerAddr
            controllerHeartBeatTimeoutMills dLegerGroup dLegerPeers dLegerSelfId
            enableAutoInSyncReplicas enableBatchPush enableRemoteEscape
            fetchControllerAddrByDnsLookup forwardTimeout haFlowControlEnable
            haHousekeepingInterval haListenPort haMasterAddress haMaxGapNotInSync
            haMaxTimeSlaveNotCatchup haSendHeartbeatInterval haTransferBatchSize inBrokerContainer
            inSyncReplicas isBrokerContainer isInBrokerContainer lockInStrictMode
            maxHaTransferByteInSecond maxSlaveResendLength minInSyncReplicas preferredLeaderId
            sendHeartbeatTimeoutMillis skipPreOnline storePathBrokerIdentity
            storePathDLedgerCommitLog storePathEpochFile syncBrokerMemberGroupPeriod
            syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFromLastFile
            syncMasterFlushOffsetWhenStartup totalReplicas
            """
        ),
    ),
    WithoutEffect(
        "the loop delivers delayed messages itself and writes all tables together",
        _keys(
            """
            delayOffsetUpdateVersionStep enableScheduleAsyncDeliver enableScheduleMessageStats
            flushDelayOffsetInterval scheduleAsyncDeliverMaxPendingLimit
            scheduleAsyncDeliverMaxResendNum2Blocked transactionMetricFlushInterval
            """
        ),
    ),
    WithoutEffect(
        "messages at any time are not part of this version",
        _keys(
            """
            allowRecallWhenBrokerNotWriteable appendTopicForTimerDeleteKey
            mappedFileSizeTimerLog recallMessageEnable
            timerCheckMetricsWhen timerCongestNumEachSlot timerEnableCheckMetrics
            timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs
            timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec
            timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs
            timerPutMessageThreadNum timerRecallToTimeWheelEnable timerRecallToTimelineEnable
            timerRollWindowSlot timerSkipUnknownError timerStopDequeue timerStopEnqueue
            timerWarmEnable timerWheelEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
            """
        ),
    ),
    WithoutEffect(
        "consuming by POP is not part of this version",
        _keys(
            """
            appendAckAsync appendCkAsync cleanOfflineBrokerInterval defaultMessageRequestMode
            defaultPopShareQueueNum enableNotifyAfterPopOrderLockRelease
            enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
            enablePopMessageThreshold enableRetryTopicV2 enableSkipLongAwaitingAck
            initPopOffsetByCheckMsgInMem loadBalancePollNameServerInterval maxPopPollingSize
            popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
            popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
            popConsumerKVServiceLog popFromRetryProbability popFromRetryProbabilityForPriority
            popInflightMessageThreshold popLongPollingForceNotifyInterval
            popPollingMapExpireTimeSeconds popPollingMapSize popPollingSize
            popResponseReturnActualRetryTopic popReviveConcurrency popReviveMaxAttemptTimes
            popReviveMaxReturnSizePerRead priorityOrderAsc retrieveMessageFromPopRetryTopicV1
            reviveAckWaitMs reviveInterval reviveMaxSlow reviveScanTime serverLoadBalancerEnable
            skipWhenCKRePutReachMaxTimes useSeparateRetryQueue
            """
        ),
    ),
    WithoutEffect(
        "compaction, batch queues and light message queues are not part of this version",
        _keys(
            """
            compactionCqMappedFileSize compactionMappedFileSize compactionScheduleInternal
            compactionThreadNum enableCompaction enableLmqStats mapperFileSizeBatchConsumeQueue
            maxLmqConsumeQueueNum maxOffsetMapSize searchBcqByCacheEnable
            """
        ),
    ),
    WithoutEffect(
        "follows from expectConsumerNumUseFilter and maxErrorRateOfBloomFilter",
        _keys("bitMapLengthConsumeQueueExt"),
    ),
    WithoutEffect(
        "users, policies and their caches are not part of this version",
        _keys(
            """
            aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath
            authenticationMetadataProvider authenticationProvider authenticationStrategy
            authenticationWhitelist authorizationMetadataProvider authorizationProvider
            authorizationStrategy authorizationWhitelist clusterName configName
            initAuthenticationUser innerClientAuthenticationCredentials migrateAuthFromV1Enabled
            statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
            statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
            userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
            """
        ),
    ),
    WithoutEffect(
        "figures are counted in another way",
        _keys(
            """
            accountStatsEnable accountStatsPrintZeroValues autoDeleteUnusedStats
            commercialBaseCount commercialSizePerMsg enableConnectionMetrics enableDetailStat
            enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics
            enableRemotingMetrics enableRequestMetrics enableStatsMetrics
            enableTransactionMetrics estimateAccumulation maxStatsIdleTimeInMinutes
            metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
            metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
            metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
            metricsPromExporterHost metricsPromExporterPort
            """
        ),
    ),
    WithoutEffect(
        "reads of cold data never hold up the loop, so they are not throttled",
        _keys(
            """
            cgColdReadThreshold coldCtrStrategyEnable coldDataFlowControlEnable coldDataScanEnable
            globalColdReadThreshold timerColdDataCheckIntervalMs usePIDColdCtrStrategy
            """
        ),
    ),
    WithoutEffect(
        "read by no part of this version",
        _keys(
            """
            broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerConfigPath
            clearRetryTopicWhenDeleteTopic configBlackList defaultQueryMaxNum
            enableBroadcastOffsetStore enableNetWorkFlowControl enableSingleTopicRegister
            enableSplitMetadata enableSplitRegistration fetchNamesrvAddrInterval
            flushConsumerOffsetHistoryInterval highSpeedMode isolateLogEnable rocketmqHome
            splitMetadataSize splitRegistrationSize
            """
        ),
    ),
)
"""Upstream's keys that a file may have and that change nothing here."""

_FALSE = frozenset({"false"})
_UNCHECKED = "requests would be served without being checked"

UNSUPPORTED = (
    Unsupported("aclEnable", _FALSE, _UNCHECKED),
    Unsupported("authenticationEnabled", _FALSE, _UNCHECKED),
    Unsupported("authorizationEnabled", _FALSE, _UNCHECKED),
    Unsupported(
        "configManagerVersion",
        frozenset({"v1"}),
        "topics, groups and offsets are kept in JSON files, not in RocksDB",
    ),
    Unsupported("enableControllerMode", _FALSE, "no controller would choose a master"),
    Unsupported("enableDLegerCommitLog", _FALSE, "nothing would be replicated"),
    Unsupported("enableLmq", _FALSE, "messages would reach no light message queue"),
    Unsupported("enableMultiDispatch", _FALSE, "messages would reach only their own queue"),
    Unsupported(
        "readOnlyCommitLogStorePaths",
        frozenset({""}),
        "what is stored there would not be found",
    ),
    Unsupported(
        "socksProxyConfig",
        frozenset({"", "{}"}),
        "name servers would be reached without the proxy",
    ),
    Unsupported(
        "storeType",
        frozenset({"default"}),
        "queues are kept in files, not in RocksDB",
    ),
)
"""Keys of which only these values are understood."""

IMPORTANT_KEYS = _keys(
    """
    accessMessageInMemoryMaxRatio autoCreateSubscriptionGroup autoCreateTopicEnable
    brokerClusterName brokerIP1 brokerId brokerName brokerRole cleanFileForciblyEnable
    commitIntervalCommitLog deleteFileBatchMax deleteWhen fetchNameSrvAddrByDnsLookup
    fetchNamesrvAddrByAddressServer fileReservedTime flushDiskType flushIntervalCommitLog
    listenPort maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
    maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory messageIndexEnable
    msgTraceTopicName namesrvAddr rejectTransactionMessage storePathRootDir traceTopicEnable
    transactionCheckInterval transactionCheckMax
    transactionTimeOut transientStorePoolEnable
    """
)
"""The keys that upstream marks as important, as far as they have an effect here."""
